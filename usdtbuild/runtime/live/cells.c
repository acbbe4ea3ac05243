/*
 * Counting without a locked instruction: each thread has a block of cells of its own, one cell for each point.
 *
 * A trampoline loads this thread's block from thread-local storage and adds 1 in one instruction. No other thread writes there, and a
 * signal comes before an instruction or after it, so no hit is lost; a lock prefix, which costs several times as much as all the rest,
 * isn't needed. A point's count is the sum of its cells in all blocks, and of the word that is added to with a lock where there is no block
 * (`point->count`).
 *
 * Blocks are never given back, and never set to zero: when a thread ends, its block, with all that it has counted, goes to the next thread
 * that needs one. So nothing must run when a thread ends, and nothing that ends at the wrong moment can lose a hit. Whether a thread has
 * ended the kernel says: there is no thread with its number any more.
 *
 *     fork        the child's one thread keeps its block, as a copy; the others' are free (live_cells_forked). A child that was made
 *                 by the bare system call, or shares memory (vfork), is told by its process number: it takes nobody's block, and
 *                 nobody takes one of its own.
 *     signals     a handler that interrupts the taking of a block counts with a lock.
 *     dlclose     a module's cells are zero again before another gets them; nothing hits them any more.
 *
 * A thread's first hit makes system calls (gettid, getpid, mmap; tgkill when there are many blocks), so where a seccomp filter is, counts
 * are locked. A program that confines itself later most often does so in the thread that has switched on, which has its block by then
 * (live_give_cells). Counts are locked, too, when they are shared with another process, which may be a child that shares them, too; and on
 * machines whose memory can't be added to in one instruction. What can't be covered: two threads that share one thread-local storage (a
 * bare clone() without CLONE_SETTLS), which libc can't cover either, and a handler of a signal that continues what it has interrupted on
 * another thread.
 *
 * Knows nothing of what is counted. Other machines have locked additions; here is nothing for them.
 */

#include "internal.h"

#if LIVE_CELLS

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

__thread char *live_cells __attribute__((tls_model("initial-exec"), visibility("hidden")));
static __thread int taking __attribute__((tls_model("initial-exec")));

/* What a block begins with: 64 bytes, so that offset 0 is no cell's. */
typedef struct block {
	struct block *next; /* of all that were ever made */
	int64_t owner;      /* the thread's number; 0 nobody, -1 somebody for ever */
} block;

enum { HEAD = 64, LEAST = 1 << 19, FEW = 32, TRIES = 8 };

static block *blocks, *reclaim_next;
static uint32_t block_count;
static size_t room = LEAST; /* bytes of a block; the lowest bit is set when there is one, and no more can change */
static int64_t process;     /* whose threads' numbers are in the blocks */
static int forbidden = -1;  /* a seccomp filter is there; -1 not asked yet */

/* -- ranges of cells, under the lock of live.c ---------------------------------------------------------------------- */

enum { RANGES = 64 };
static struct range {
	uint32_t start, size;
} returned[RANGES];
static uint32_t next_cell = HEAD;

uint32_t live_take_cells(uint32_t count)
{
	uint32_t size = 8 * count, start;
	size_t now = __atomic_load_n(&room, __ATOMIC_RELAXED), more;
	unsigned i;

	if (forbidden < 0) {
		forbidden = prctl(PR_GET_SECCOMP, 0, 0, 0, 0) > 0;
		process = syscall(SYS_getpid);
	}
	if (forbidden || !count || count > 1u << 24)
		return 0;
	for (i = 0; i < RANGES; i++)
		if (returned[i].size >= size) {
			start = returned[i].start;
			returned[i].start += size;
			returned[i].size -= size;
			return start;
		}
	while (next_cell + size > (now & ~(size_t)1)) {
		for (more = now; more < next_cell + (size_t)2 * size;)
			more *= 2;
		if (now & 1 || more > 1u << 30)
			return 0;
		if (__atomic_compare_exchange_n(&room, &now, more, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			break;
	}
	start = next_cell;
	next_cell += size;
	return start;
}

void live_return_cells(uint32_t start, uint32_t count)
{
	uint32_t size = 8 * count, at;
	block *b;
	unsigned i;

	if (!start)
		return;
	for (b = __atomic_load_n(&blocks, __ATOMIC_ACQUIRE); b; b = b->next)
		for (at = start; at < start + size; at += 8) {
			uint64_t *cell = (uint64_t *)(void *)((char *)b + at);

			if (__atomic_load_n(cell, __ATOMIC_RELAXED)) /* pages that were never used stay so */
				__atomic_store_n(cell, 0, __ATOMIC_RELAXED);
		}
	for (i = 0; i < RANGES; i++) /* beside another, or in a free place; else it is lost */
		if (returned[i].size && (returned[i].start + returned[i].size == start || start + size == returned[i].start)) {
			returned[i].start = start < returned[i].start ? start : returned[i].start;
			returned[i].size += size;
			return;
		}
	for (i = 0; i < RANGES; i++)
		if (!returned[i].size) {
			returned[i].start = start;
			returned[i].size = size;
			return;
		}
}

/* -- blocks: hits run this, between any two instructions of the program --------------------------------------------- */

static LIVE_PLAIN USDT_LIVE_FAST_HANDLER long ask(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long answer;

	__asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return answer;
}

static LIVE_PLAIN USDT_LIVE_FAST_HANDLER int claim(block *b, int64_t from, int64_t me)
{
	return __atomic_compare_exchange_n(&b->owner, &from, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* The block of a thread that has ended. Where there are many blocks only some are tried, in turn: each try is a system call. */
static LIVE_PLAIN USDT_LIVE_FAST_HANDLER block *find_block(int64_t me)
{
	block *first = __atomic_load_n(&blocks, __ATOMIC_ACQUIRE), *b;
	int tries;

	for (b = first; b; b = b->next) {
		int64_t owner = __atomic_load_n(&b->owner, __ATOMIC_RELAXED);

		if ((owner == 0 || owner == me) && claim(b, owner, me))
			return b;
	}
	if (__atomic_load_n(&block_count, __ATOMIC_RELAXED) < FEW)
		return NULL;
	b = __atomic_load_n(&reclaim_next, __ATOMIC_ACQUIRE);
	for (tries = 0; tries < TRIES; tries++) {
		int64_t owner;

		b = b ? b : first;
		owner = __atomic_load_n(&b->owner, __ATOMIC_RELAXED);
		if (owner > 0 && ask(SYS_tgkill, (long)process, (long)owner, 0, 0, 0, 0) == -ESRCH && claim(b, owner, me))
			break;
		b = b->next;
	}
	__atomic_store_n(&reclaim_next, b ? b->next : NULL, __ATOMIC_RELEASE);
	return tries < TRIES ? b : NULL;
}

static LIVE_PLAIN USDT_LIVE_FAST_HANDLER block *make_block(int64_t owner)
{
	size_t size = __atomic_fetch_or(&room, 1, __ATOMIC_RELAXED) & ~(size_t)1;
	long found = ask(SYS_mmap, 0, (long)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	block *b = (block *)found;

	if ((unsigned long)found > -4096ul)
		return NULL;
	b->owner = owner;
	b->next = __atomic_load_n(&blocks, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&blocks, &b->next, b, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
	__atomic_fetch_add(&block_count, 1, __ATOMIC_RELAXED);
	return b;
}

/* This thread's block, the first time that it hits anything. NULL: count with a lock. */
LIVE_PLAIN USDT_LIVE_FAST_HANDLER char *live_new_cells(void)
{
	int64_t me;
	block *b;

	if (taking)
		return NULL;
	taking = 1;
	__asm__ volatile("" ::: "memory");
	me = ask(SYS_gettid, 0, 0, 0, 0, 0, 0);
	if (ask(SYS_getpid, 0, 0, 0, 0, 0, 0) != process) {
		b = make_block(-1);
	} else {
		b = find_block(me);
		b = b ? b : make_block(me);
	}
	live_cells = (char *)b;
	__asm__ volatile("" ::: "memory");
	taking = b == NULL; /* don't ask again */
	return (char *)b;
}

void live_give_cells(void)
{
	if (forbidden == 0 && !live_cells)
		live_new_cells();
}

/* -- reading -------------------------------------------------------------------------------------------------------- */

uint64_t live_sum_cells(uint32_t cell)
{
	const block *b;
	uint64_t sum = 0;

	if (cell)
		for (b = __atomic_load_n(&blocks, __ATOMIC_ACQUIRE); b; b = b->next)
			sum += __atomic_load_n((const uint64_t *)(const void *)((const char *)b + cell), __ATOMIC_RELAXED);
	return sum;
}

/* In the child of a fork, before it has a second thread. A handler that forks while its thread was taking a block doesn't know which. */
void live_cells_forked(void)
{
	block *b;

	if (forbidden < 0)
		return;
	process = syscall(SYS_getpid);
	for (b = blocks; b; b = b->next)
		b->owner = (char *)b == live_cells ? syscall(SYS_gettid) : taking ? -1 : 0;
}

/* Why counts are locked, or NULL. */
const char *live_why_locked(void)
{
	return forbidden > 0 ? "a seccomp filter is there, and a thread's first hit would ask the system for memory"
						 : "there is no room for more cells";
}

#endif
