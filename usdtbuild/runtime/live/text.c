/*
 * Memory in reach of code, and stores into code that other threads are running.
 *
 * Knows nothing of probes: live_run() asks the machine's file which stores switch a point, does one step of all points, makes every
 * thread see it, and goes on with the next step. Why each state in between is valid code is the machine file's business.
 */

#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
/* linux/membarrier.h, which the kernel's headers have, and a C library needn't */
enum { SYNC_CORE = 1 << 5, REGISTER_SYNC_CORE = 1 << 6 };

/* -- arenas ---------------------------------------------------------------------------------------------------- */

struct live_chunk {
	struct live_chunk *next;
	size_t size;
};

enum { CHUNK = 1 << 18 };

void *live_allocate(live_arena *arena, size_t size)
{
	char *found;

	size = (size + 15) & ~(size_t)15;
	if (size > arena->left) {
		size_t whole = size + 64 > CHUNK ? (size + 64 + 4095) & ~(size_t)4095 : CHUNK;
		struct live_chunk *chunk = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (chunk == MAP_FAILED)
			return NULL;
		chunk->next = arena->chunks;
		chunk->size = whole;
		arena->chunks = chunk;
		arena->next = (char *)chunk + 32;
		arena->left = whole - 32;
	}
	found = arena->next;
	arena->next += size;
	arena->left -= size;
	return found;
}

char *live_copy(live_arena *arena, const char *text, size_t length)
{
	char *copy = live_allocate(arena, length + 1);

	if (copy)
		memcpy(copy, text, length);
	return copy;
}

void live_free(live_arena *arena)
{
	struct live_chunk *chunk = arena->chunks;

	while (chunk) {
		struct live_chunk *next = chunk->next;

		munmap(chunk, chunk->size);
		chunk = next;
	}
	memset(arena, 0, sizeof *arena);
}

/* -- memory in reach ------------------------------------------------------------------------------------------- */

size_t live_page(void)
{
	static size_t page;

	if (!page)
		page = (size_t)sysconf(_SC_PAGESIZE);
	return page;
}

static void *map_at(uintptr_t at, size_t size)
{
	void *found = mmap((void *)at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (found == MAP_FAILED)
		return NULL;
	if ((uintptr_t)found != at) { /* before Linux 4.17 the flag is unknown, and the address a hint */
		munmap(found, size);
		return NULL;
	}
	return found;
}

/* Map `size` bytes no farther than `reach` from anything between `low` and `high`; NULL. */
void *live_map_near(uintptr_t low, uintptr_t high, size_t size, intptr_t reach)
{
	uintptr_t far = (uintptr_t)reach, step = far / 256, page = live_page(), at, distance;
	void *found;

	step = (step + page) & ~(page - 1);
	low &= ~(page - 1);
	high = (high + page - 1) & ~(page - 1);
	if (high - low + size >= far)
		return NULL;
	/* Not right behind the module: a program's heap begins there. */
	for (distance = far / 4; distance > step; distance = distance > far / 8 ? distance + step : 0) {
		if (low > distance + size && high - low + distance + size < far && (found = map_at(low - distance - size, size)))
			return found;
		at = high + distance;
		if (high - low + distance + size < far && at + size > at && (found = map_at(at, size)))
			return found;
		if (high - low + distance + size >= far)
			break;
	}
	for (distance = 0; high - low + distance + size < far; distance += (step / 4 > page ? step / 4 & ~(page - 1) : page)) {
		if (low > distance + size && (found = map_at(low - distance - size, size)))
			return found;
		at = high + distance;
		if (at + size > at && (found = map_at(at, size)))
			return found;
	}
	return NULL;
}

/*
 * Make written memory executable, and no longer writable. Where no memory may become executable (PR_SET_MDWE, SELinux), its content is
 * mapped anew from a file without a name, as code from the start. Returns 0 if that is refused, too.
 */
int live_make_executable(void *at, size_t size)
{
	int fd, done = 0;

	size = (size + live_page() - 1) & ~(live_page() - 1);
	if (mprotect(at, size, PROT_READ | PROT_EXEC) == 0)
		return 1;
#if defined(__NR_memfd_create)
	fd = (int)syscall(__NR_memfd_create, "usdt_live", 1u /* MFD_CLOEXEC */);
	if (fd < 0)
		return 0;
	if (write(fd, at, size) == (ssize_t)size)
		done = mmap(at, size, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, 0) != MAP_FAILED;
	close(fd);
#else
	(void)fd;
#endif
	return done;
}

static int shared_fd = -1;
static off_t shared_next;

/* From now on, counts lie in the file `fd`, which another process reads. */
void live_share(int fd)
{
	shared_fd = fd;
}

int live_is_shared(void)
{
	return shared_fd >= 0;
}

/* Replace mapped memory at `at` by memory for counts. */
void *live_map_counts(void *at, size_t size, uint64_t *offset)
{
	void *found;

	if (shared_fd < 0)
		return at;
	if (ftruncate(shared_fd, shared_next + (off_t)size))
		return NULL;
	found = mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, shared_fd, shared_next);
	if (found == MAP_FAILED)
		return NULL;
	*offset = (uint64_t)shared_next;
	shared_next += (off_t)size;
	return found;
}

/* -- every thread sees it --------------------------------------------------------------------------------------- */

/*
 * Make each thread of this process execute a serialising instruction before it goes on in user code. Where the kernel has no
 * membarrier for that (before 4.16), taking rights from a page that is in use interrupts every processor that runs one of
 * our threads, and the return from an interrupt serialises.
 */
void live_barrier(void)
{
#if defined(__NR_membarrier)
	static int missing;
	int tries;

	for (tries = 0; !missing && tries < 2; tries++) {
		if (!syscall(__NR_membarrier, SYNC_CORE, 0, 0))
			return;
		if (errno != EPERM || syscall(__NR_membarrier, REGISTER_SYNC_CORE, 0, 0))
			missing = 1;
	}
#endif
	{
		static volatile char *page;

		if (!page) {
			void *found = mmap(NULL, live_page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			if (found == MAP_FAILED)
				return;
			page = found;
		}
		mprotect((void *)page, live_page(), PROT_READ | PROT_WRITE);
		*page = 1;
		mprotect((void *)page, live_page(), PROT_READ);
	}
}

/* -- writing code ----------------------------------------------------------------------------------------------- */

typedef struct writer {
	uintptr_t start[8], end[8]; /* what is writable now, by segment */
	uint8_t open[8];
	live_mapped file;           /* whose pages are exchanged */
	live_store waiting[64];     /* for the exchange of the one page that they are in, and for which points */
	live_point *waits[64];
	size_t waiting_count;
	int memory;                 /* /proc/self/mem, where mprotect is refused; -1 not tried, -2 refused, too */
} writer;

/* Pages that must not change under a running thread stay executable while they are writable. */
static int writable(writer *w, const live_module *module, unsigned segment)
{
	if (w->open[segment])
		return w->open[segment] == 1;
	w->open[segment] = 2;
	if (w->start[segment] >= w->end[segment])
		return 0;
	if (mprotect((void *)w->start[segment], w->end[segment] - w->start[segment], module->code[segment].protection | PROT_WRITE) == 0)
		w->open[segment] = 1;
	return w->open[segment] == 1;
}

static int through_memory(writer *w, uintptr_t at, const void *bytes, size_t size)
{
	if (w->memory == -1) {
		w->memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
		if (w->memory < 0)
			w->memory = -2;
	}
	return w->memory >= 0 && pwrite(w->memory, bytes, size, (off_t)at) == (ssize_t)size;
}

static int same(const volatile uint8_t *at, const uint8_t *old, unsigned size)
{
	while (size--)
		if (*at++ != *old++)
			return 0;
	return 1;
}

/* One store that other threads see whole where its size and place allow that; others are made where nothing runs. */
static void store_bytes(uintptr_t at, const uint8_t *bytes, unsigned size)
{
	if (size == 1) {
		__atomic_store_n((uint8_t *)at, bytes[0], __ATOMIC_RELEASE);
	} else if (size == 2 && at % 2 == 0) {
		uint16_t value;

		memcpy(&value, bytes, 2);
		__atomic_store_n((uint16_t *)at, value, __ATOMIC_RELEASE);
	} else if (size == 4 && at % 4 == 0) {
		uint32_t value;

		memcpy(&value, bytes, 4);
		__atomic_store_n((uint32_t *)at, value, __ATOMIC_RELEASE);
	} else {
		volatile uint8_t *to = (volatile uint8_t *)at;

		while (size--)
			*to++ = *bytes++;
	}
}

/*
 * Exchange the page that stores wait for, which costs the same for one as for all. Points don't know of each other, and each is switched by
 * one step in one exchange; so that others of the page are in the same exchange is as if they had been switched one after the other while
 * nobody ran them. Returns how many failed.
 */
static size_t exchange(writer *w)
{
	const live_point *first = w->waits[0];
	size_t i, failed = 0;
	int done;

	if (!w->waiting_count)
		return 0;
	done = live_exchange_page_of(&w->file, w->waiting, w->waiting_count,
		first->module->code[first->segment].protection | (w->open[first->segment] == 1 ? PROT_WRITE : 0));
	for (i = 0; i < w->waiting_count; i++)
		if (!done || !w->waiting[i].size) {
			w->waits[i]->failed = done ? 1 : 2;
			failed++;
		}
	w->waiting_count = 0;
	return failed;
}

/* A store waits for others into the same page. Returns how many that didn't wait any longer failed. */
static size_t wait_for_others(writer *w, live_point *point, const live_store *store)
{
	size_t failed = 0;

	if (w->waiting_count
		&& (w->waiting_count == sizeof w->waits / sizeof *w->waits || (store->at ^ w->waiting[0].at) & ~(uintptr_t)(live_page() - 1)))
		failed = exchange(w);
	w->waiting[w->waiting_count] = *store;
	w->waits[w->waiting_count++] = point;
	return failed;
}

static int one_store(writer *w, live_point *point, const live_store *store)
{
#if defined(__x86_64__)
	/* Most stores: one instruction looks whether a breakpoint, or another patcher, has come, and stores if not. */
	if (store->size == 1 && store->expected == 1 && w->open[point->segment] == 1) {
		uint8_t old = store->old[0];

		return __atomic_compare_exchange_n((uint8_t *)store->at, &old, store->bytes[0], 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	}
#endif
	/* The last look before the store: a breakpoint, or another patcher, is left alone. */
	if (store->expected && !same((const volatile uint8_t *)store->at, store->old, store->expected))
		return 0;
	if (!writable(w, point->module, point->segment))
		return through_memory(w, store->at, store->bytes, store->size) ? 1 : -1;
	store_bytes(store->at, store->bytes, store->size);
	return 1;
}

/* Whether a point that is on still leads here: 1, 0 if somebody else's bytes stand there, -1 if it is as it is when nothing is on. */
int live_stands(const live_point *point)
{
	live_store store;

	memset(&store, 0, sizeof store);
	live_machine_step(point, 0, 0, &store); /* which looks before it takes out */
	if (!store.expected || same((const volatile uint8_t *)store.at, store.old, store.expected))
		return 1;
	return same((const volatile uint8_t *)store.at, store.bytes, store.size) ? -1 : 0;
}

static void flush(uintptr_t at, size_t size)
{
#if !defined(__x86_64__) && !defined(__i386__) && !defined(__s390x__)
	__builtin___clear_cache((char *)at, (char *)at + size);
#else
	(void)at;
	(void)size;
#endif
}

/*
 * Switch points of one module. A point whose bytes aren't as expected keeps `failed` set: 1 somebody else changed it, 2 code can't be
 * written. Returns how many took it.
 */
int live_run(live_module *module, live_point **points, size_t count, int on)
{
	writer w = {.memory = -1, .file = {0, 0, 0, -1}};
	size_t i, page = live_page(), left = count;
	unsigned segment;
	int step, more = 1;

	for (segment = 0; segment < 8; segment++)
		w.start[segment] = UINTPTR_MAX;
	for (i = 0; i < count; i++) {
		live_point *point = points[i];
		uintptr_t low = point->shown.address - point->padding - point->landing_pad, high = point->shown.address + 16;

		segment = point->segment;
		point->failed = 0;
		if (low < w.start[segment])
			w.start[segment] = low & ~(uintptr_t)(page - 1);
		if (high > w.end[segment])
			w.end[segment] = high;
		if (w.end[segment] > module->code[segment].end)
			w.end[segment] = module->code[segment].end;
	}
	for (segment = 0; segment < module->code_count; segment++)
		w.end[segment] = (w.end[segment] + page - 1) & ~(uintptr_t)(page - 1);
	for (step = 0; more; step++) {
		more = 0;
		for (i = 0; i < count; i++) {
			live_store store;
			int done;

			memset(&store, 0, sizeof store);
			if (points[i]->failed || !live_machine_step(points[i], on, step, &store))
				continue;
			more = 1;
			if (!store.size)
				continue;
			if (store.by_page) {
				left -= wait_for_others(&w, points[i], &store);
				continue;
			}
			left -= exchange(&w); /* a copy of the page must have this store, too */
			done = one_store(&w, points[i], &store);
			if (done != 1) {
				points[i]->failed = done ? 2 : 1;
				left--;
			} else {
				flush(store.at, store.size);
			}
		}
		left -= exchange(&w);
		if (more)
			live_barrier();
	}
	for (segment = 0; segment < module->code_count; segment++)
		if (w.open[segment] == 1)
			mprotect((void *)w.start[segment], w.end[segment] - w.start[segment], module->code[segment].protection);
	live_forget_mapped(&w.file);
	if (w.memory >= 0)
		close(w.memory);
	return (int)left;
}

/* Write code that no thread runs, in somebody else's module (the dynamic linker's hook). */
int live_write_code(uintptr_t at, const void *bytes, size_t size)
{
	uintptr_t page = live_page(), start = at & ~(page - 1), length = ((at + size + page - 1) & ~(page - 1)) - start;
	writer w = {.memory = -1};
	int done = 1;

	if (mprotect((void *)start, length, PROT_READ | PROT_WRITE | PROT_EXEC) == 0) {
		store_bytes(at, bytes, (unsigned)size);
		mprotect((void *)start, length, PROT_READ | PROT_EXEC);
	} else {
		done = through_memory(&w, at, bytes, size);
		if (w.memory >= 0)
			close(w.memory);
	}
	flush(at, size);
	return done;
}
