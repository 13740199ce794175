/*
 * test/stores.c - writes down to which places in shared memory a session
 * stores.
 *
 * Loaded by the sessions of ./zundo compare --shared-lines (bench/lines.py), in
 * which shared memory can only be read: a store raises SIGSEGV, the handler
 * notes the place, allows the one instruction, and SIGTRAP comes after it.
 * What the kernel is to store there goes through reads.c. It begins after
 * WARM_UP transactions. For Linux on x86-64.
 *
 * The file stores.PID in the data directory has pairs of 64 bit: begin and end
 * of shared memory, then for each store its place and that of the instruction,
 * and two zeros where a transaction has left the array of running transactions.
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"

PG_MODULE_MAGIC;

extern void _PG_init(void);

#define MOST		(1024 * 1024)	/* stores of a transaction */
#define PAGE		((uint64) 4096)
#define TRAP_FLAG	0x100

static uint64 begin,
			end;				/* of shared memory */
static uint64 (*stores)[2];
static int	nstores;
static uint64 allowed[8];		/* pages that can be written */
static int	nallowed;
static int	file;
static int	transactions;

/* Handles SIGSEGV. */
static void
before_store(int sig, siginfo_t * info, void *context)
{
	uint64		at = (uint64) info->si_addr;
	greg_t	   *registers = ((ucontext_t *) context)->uc_mcontext.gregs;

	if (at < begin || at >= end || nstores == MOST || nallowed == lengthof(allowed) ||
		mprotect((void *) (at & ~(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE) != 0)
		_exit(2);				/* the server restarts */
	stores[nstores][0] = at;
	stores[nstores++][1] = (uint64) registers[REG_RIP];
	allowed[nallowed++] = at & ~(PAGE - 1);
	registers[REG_EFL] |= TRAP_FLAG;
}

/* Handles SIGTRAP. */
static void
after_store(int sig, siginfo_t * info, void *context)
{
	while (nallowed > 0)
		mprotect((void *) allowed[--nallowed], PAGE, PROT_READ);
	((ucontext_t *) context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

/* Finds shared memory, and begins. */
static void
begin_tracing(void)
{
	struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER};
	FILE	   *maps = fopen("/proc/self/maps", "r");
	char		line[1024];

	while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
		if (sscanf(line, "%lx-%lx", &begin, &end) == 2 && begin <= (uint64) ProcGlobal &&
			(uint64) ProcGlobal < end)
			break;
	stores = malloc(MOST * sizeof(*stores));
	snprintf(line, sizeof(line), "stores.%d", MyProcPid);
	file = open(line, O_CREAT | O_WRONLY, 0600);
	if (maps == NULL || stores == NULL || file < 0)
		elog(FATAL, "cannot trace stores");
	fclose(maps);
	stores[0][0] = begin;
	stores[0][1] = end;
	nstores = 1;
	action.sa_sigaction = before_store;
	sigaction(SIGSEGV, &action, NULL);
	action.sa_sigaction = after_store;
	sigaction(SIGTRAP, &action, NULL);
	mprotect((void *) begin, end - begin, PROT_READ);
}

/* Allows all stores again. A callback at exit. */
static void
end_tracing(int code, Datum arg)
{
	if (end > 0)
		mprotect((void *) begin, end - begin, PROT_READ | PROT_WRITE);
}

/* Writes what a transaction has stored, when it ends. */
static void
ended(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT)
		return;
	if (++transactions == WARM_UP)
		begin_tracing();
	if (transactions < WARM_UP)
		return;
	if (nstores == MOST)
		_exit(2);
	stores[nstores][0] = stores[nstores][1] = 0;
	nstores++;
	if (write(file, stores, nstores * sizeof(*stores)) != nstores * sizeof(*stores))
		elog(FATAL, "cannot write stores");
	nstores = 0;
}

void
_PG_init(void)
{
	RegisterXactCallback(ended, NULL);
	before_shmem_exit(end_tracing, (Datum) 0);
}
