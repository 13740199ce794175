/*
 * test/reads.c - lets a server read blocks into memory that only stores.c may
 * change.
 *
 * Preloaded by the server of ./zundo compare --shared-lines. The kernel refuses
 * to store into such memory, so the block is read elsewhere and copied.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

ssize_t
pread(int fd, void *to, size_t size, off_t at)
{
	ssize_t		done = syscall(SYS_pread64, fd, to, size, at);
	void	   *copy;

	if (done >= 0 || errno != EFAULT || (copy = malloc(size)) == NULL)
		return done;
	done = syscall(SYS_pread64, fd, copy, size, at);
	if (done > 0)
		memcpy(to, copy, done);
	free(copy);
	return done;
}

ssize_t
preadv(int fd, const struct iovec *to, int n, off_t at)
{
	ssize_t		done = 0;

	for (int i = 0; i < n; i++)
	{
		ssize_t		part = pread(fd, to[i].iov_base, to[i].iov_len, at + done);

		if (part < 0)
			return done > 0 ? done : part;
		done += part;
		if ((size_t) part < to[i].iov_len)
			break;
	}
	return done;
}
