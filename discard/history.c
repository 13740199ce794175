/*
 * discard/history.c - the samples of zundo.undo_history.
 *
 * The database's worker adds a sample every zundo.history_interval in which
 * undo was kept, to a file of the database. That takes no shared memory and no
 * lock, and outlives a restart. The file grows to twice zundo.history_size
 * samples; then the older half goes. It is in a folder that base backups leave
 * out, is not in WAL, and no write of it is waited for: an operating system
 * that crashes may lose it.
 *
 * Locks, crash points: none.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/zcount.h"
#include "discard/discard_internal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

/* Returns the checksum of a sample. */
static pg_crc32c
checksum(const ZuSample *sample)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, sample, offsetof(ZuSample, crc));
	FIN_CRC32C(crc);
	return crc;
}

/* Returns the name of a database's file, palloc'd. */
static char *
file_name(Oid dboid)
{
	return psprintf(PG_STAT_TMP_DIR "/zundo.%u.history", dboid);
}

/*
 * zuhistory_read: See discard.h. Leaves out what is no sample, as an incomplete
 * write may have left it.
 */
int
zuhistory_read(ZuSample **out)
{
	int			fd = OpenTransientFile(file_name(MyDatabaseId), O_RDONLY | PG_BINARY);
	struct stat st;
	ZuSample   *all;
	ssize_t		length = 0;
	int			n = 0;

	*out = NULL;
	if (fd < 0)
		return 0;
	if (fstat(fd, &st) == 0)
	{
		*out = palloc(st.st_size + 1);
		length = pg_pread(fd, *out, st.st_size, 0);
	}
	CloseTransientFile(fd);
	all = *out;
	for (ssize_t i = 0; i < length / (ssize_t) sizeof(ZuSample); i++)
		if (all[i].crc == checksum(&all[i]))
			all[n++] = all[i];
	if (n > zundo_history_size)
	{
		*out += n - zundo_history_size;
		n = zundo_history_size;
	}
	return n;
}

/* zuhistory_remove: See discard.h. */
void
zuhistory_remove(Oid dboid)
{
	(void) unlink(file_name(dboid));
}

/* Writes samples at a place of the file 'name'. Returns success. */
static bool
write_samples(const char *name, int flags, const ZuSample *samples, int n, off_t place)
{
	int			fd = OpenTransientFile(name, O_WRONLY | O_CREAT | PG_BINARY | flags);
	Size		length = n * sizeof(ZuSample);
	bool		done;

	if (fd < 0)
		return false;
	errno = ENOSPC;				/* unless the system says otherwise */
	done = pg_pwrite(fd, samples, length, place) == (ssize_t) length;
	return CloseTransientFile(fd) == 0 && done;
}

/* Adds a sample to the database's file. Logs if that fails. */
static void
add(const ZuSample *sample)
{
	char	   *name = file_name(MyDatabaseId);
	char	   *shorter = psprintf("%s.tmp", name);
	struct stat st = {0};
	off_t		n;
	bool		done = true;

	(void) stat(name, &st);
	n = st.st_size / sizeof(ZuSample);
	if (n >= 2 * (off_t) zundo_history_size)
	{
		ZuSample   *newest;

		n = zuhistory_read(&newest);
		done = write_samples(shorter, O_TRUNC, newest, n, 0) && rename(shorter, name) == 0;
	}
	if (!done || !write_samples(name, 0, sample, 1, n * sizeof(ZuSample)))
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", name)));
}

/* zuhistory_look: See discard_internal.h. */
void
zuhistory_look(uint64 bytes)
{
	static TimestampTz last = 0;
	static uint64 most = 0;
	TimestampTz now = GetCurrentTimestamp();
	ZuSample	sample;
	ZuSample   *before;
	int			n;

	most = Max(most, bytes);
	if (zundo_history_interval == 0 || most == 0)
		return;
	if (last == 0 && (n = zuhistory_read(&before)) > 0)
		last = before[n - 1].time;
	if (last <= now && !TimestampDifferenceExceeds(last, now, zundo_history_interval))
		return;
	memset(&sample, 0, sizeof(sample));
	sample.time = now;
	sample.kept = most;
	sample.written = zcount_total(ZCOUNT_WRITTEN);
	zu_find_keeper(&sample.keeper);
	sample.crc = checksum(&sample);
	add(&sample);
	last = now;
	most = 0;
}
