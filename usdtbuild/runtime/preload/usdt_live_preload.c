/*
 * A library to preload into a program whose probes somebody else wants to see: `usdtbuild trace --engine inside`.
 *
 * It is driven by files in a private folder that USDT_LIVE_INSIDE names, and does nothing without it:
 *
 *     rules    lines `P pattern`, `F pattern` (functions), `X pattern` (leave out), `R` (record hits, don't only count), `C` (only those
 *     that aren't evaluated), `Z bytes`
 *              (the functions that follow: only those of so many), `T ticks` (add up who calls whom, in `tree`, by the processor's clock or
 *              not) and, of that, `M least` (only calls that take so long, in units of that clock), `D depth` (only so many that are open),
 *              `B pattern` and `N pattern` (only what is called in these functions, or nothing of it), `A probe` and `O probe` (from here
 *              on, up to here), `E bytes` (evaluate hits by what `programs` says, as far as it does; texts have so many bytes)
 *     points   what this library writes: one line a point, fields separated by tabs, `failed` and why, and `ready` when the program may
 *     start;
 *              `asks`, which waits until `answered` in the ring's numbers is as great as `asked`
 *     programs what answers: see `sent`
 *     tables   what programs add up in
 *     counts   64 bytes a point, the first 8 its hits; `points` says where
 *     ring     a page of numbers, then slots; see below
 *     tree     see call_tree.c; there if it is wanted
 *
 * Programs that it starts have the environment too, and would write into the same files: only the process that finds `points`
 * empty does, and children that it forks.
 */

#include "call_tree.h"
#include "evaluate.h"
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rules.h"

enum { ARGUMENTS = 12, TEXT = 128, SLOT = 256, CUT = 128 };

/* The first page of `ring`. `head` is what was begun, `tail` what the reader has taken; a slot is whole when its `sequence` is its number
 * plus one. */
typedef struct ring_header {
	uint64_t head, tail, lost, slots, quiet, asked, answered;
} ring_header;

typedef struct slot {
	uint64_t sequence, time;
	uint32_t pid, tid, point, text_used;
	uint64_t values[ARGUMENTS];
	/* Strings, each with its length before it: one byte; 255: not readable; with CUT: it goes on where nothing can be read. */
	unsigned char text[TEXT];
} slot;

static ring_header *ring;
static char *slots;
static int ring_fd = -1, points_fd = -1, programs_fd = -1, record, counts, tree;
static uint32_t smallest, longest;
static unsigned flags; /* of handlers that add up calls */
static struct {
	live_pattern pattern;
	uint8_t role;
} roles[64];
static unsigned role_count;
static char folder[3072];

static int open_in(const char *name, int flags)
{
	char path[4096];

	snprintf(path, sizeof path, "%s/%s", folder, name);
	return open(path, flags | O_CLOEXEC);
}

static inline LIVE_PLAIN USDT_LIVE_FAST_HANDLER const live_point *point_of(const usdt_live_point *shown)
{
	return (const live_point *)(const void *)((const char *)shown - offsetof(live_point, shown));
}

USDT_LIVE_FAST_HANDLER uint32_t live_point_number(const usdt_live_point *shown)
{
	const live_point *point = point_of(shown);

	return (uint32_t)(((uintptr_t)point->count - (uintptr_t)point->module->counts + point->module->counts_offset) / 64);
}

static int is_text(const usdt_live_argument_place *place)
{
	const char *type = place->type;

	return !strcmp(type, "string") || (strstr(type, "char") && strchr(type, '*') && !strstr(type, "**"));
}

static void copy_text(slot *s, const live_program *program, uintptr_t from)
{
	uint32_t left = TEXT - s->text_used - 1, size;
	unsigned char *length = s->text + s->text_used;
	int cut;

	if (s->text_used + 1 >= TEXT)
		return;
	size = live_copy_text(program, length + 1, from, left < 64 ? left : 64, &cut);
	*length = (unsigned char)(cut ? size | CUT : size); /* 255 is LIVE_UNREADABLE */
	s->text_used += size == LIVE_UNREADABLE ? 1 : 1 + size;
}

static void record_hit(const usdt_live_hit *h, const live_program *program)
{
	uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_RELAXED), number;
	struct timespec now;
	slot *s;
	unsigned i;

	do {
		if (head - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) >= ring->slots) {
			__atomic_fetch_add(&ring->lost, 1, __ATOMIC_RELAXED);
			return;
		}
	} while (!__atomic_compare_exchange_n(&ring->head, &head, head + 1, 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
	number = head % ring->slots;
	s = (slot *)(void *)(slots + number * SLOT);
	clock_gettime(CLOCK_MONOTONIC, &now);
	s->time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	s->pid = (uint32_t)getpid();
	s->tid = (uint32_t)syscall(SYS_gettid);
	s->point = live_point_number(h->point);
	s->text_used = 0;
	for (i = 0; i < h->point->argument_count && i < ARGUMENTS; i++) {
		s->values[i] = usdt_live_argument(h, i);
		if (is_text(&h->point->arguments[i]))
			copy_text(s, program, s->values[i]);
	}
	__atomic_store_n(&s->sequence, head + 1, __ATOMIC_RELEASE);
}

/* What is not evaluated, or not yet, is recorded for the tracer to evaluate. */
static void hit(const usdt_live_hit *h, void *data)
{
	const live_program *program = __atomic_load_n(&point_of(h->point)->program, __ATOMIC_ACQUIRE);

	(void)data;
	if (ring->quiet || (program && !live_evaluate(program, h)))
		return;
	record_hit(h, program);
}

/* The same where nothing is recorded. */
static LIVE_PLAIN USDT_LIVE_FAST_HANDLER void evaluate(const usdt_live_hit *h, void *data)
{
	(void)data;
	if (!ring->quiet)
		live_evaluate(point_of(h->point)->program, h);
}

static uint32_t told; /* points of modules that are known to the reader */

static void clean(char *to, size_t size, const char *from)
{
	size_t i;

	for (i = 0; from[i] && i + 1 < size; i++)
		to[i] = (char)(from[i] == '\t' || from[i] == '\n' ? '?' : from[i]);
	to[i] = '\0';
}

static int tell(const usdt_live_point *shown, unsigned long long count, void *data)
{
	live_point *point = (live_point *)(void *)((char *)(uintptr_t)shown - offsetof(live_point, shown));
	char line[8192], module[2048], name[2048], type[256];
	uint64_t index;
	int length;
	unsigned i;

	(void)count;
	(void)data;
	if (!point->wanted || !point->module->counts)
		return 0;
	index = live_point_number(shown);
	if (index < told)
		return 0;
	point->number = (uint32_t)index + 1;
	for (i = 0; i < role_count; i++)
		if (live_point_matches(USDT_LIVE_FUNCTIONS, &roles[i].pattern, point))
			point->role |= roles[i].role;
	clean(module, sizeof module, shown->module);
	clean(name, sizeof name, shown->name);
	length = snprintf(line, sizeof line, "%llu\t%u\t%s\t%s\t%s\t%llx\t%llx\t%llx\t%s\t%s", (unsigned long long)index, (unsigned)shown->kind,
		shown->provider, name, module, (unsigned long long)point->module->bias, (unsigned long long)shown->address,
		(unsigned long long)(uintptr_t)point->semaphore, shown->reason ? shown->reason : "", shown->detail ? shown->detail : "");
	for (i = 0; i < shown->argument_count && length < (int)sizeof line - 600; i++) {
		const usdt_live_argument_place *a = &shown->arguments[i];

		clean(type, sizeof type, a->type);
		length += snprintf(line + length, sizeof line - (size_t)length, "\t%u|%u|%u|%s|%.200s", a->size, a->is_signed, (unsigned)is_text(a),
			a->name, type);
	}
	line[length++] = '\n';
	if (write(points_fd, line, (size_t)length) < 0)
		return 1;
	return 0;
}

static void tell_all(void)
{
	live_module *module;
	uint32_t last = told;

	usdt_live_each(USDT_LIVE_PROBES | USDT_LIVE_FUNCTIONS, "*", tell, NULL);
	for (module = live_modules; module; module = module->next)
		if (module->counts && module->counts_offset / 64 + module->point_count > last)
			last = (uint32_t)(module->counts_offset / 64) + module->point_count;
	told = last;
}

/* -- programs ---------------------------------------------------------------------------------------------------- */

/* What `programs` is made of: this, and so many bytes of a program for a point. */
typedef struct sent {
	uint32_t point, size;
} sent;

static live_point *numbered(uint32_t number)
{
	live_module *module;

	for (module = live_modules; module; module = module->next) {
		uint64_t index = number - module->counts_offset / 64;

		if (module->counts && index < module->point_count && live_point_number(&module->points[index].shown) == number)
			return &module->points[index];
	}
	return NULL;
}

/*
 * Let a point run its program from now on. A hit that comes meanwhile is recorded or evaluated, never both: each looks at `program` once.
 * Programs that record nothing need no vector registers, and a signal's handler may come between; a hit that didn't save them has seen
 * `armed` change, so it sees what was stored before.
 */
static void install(live_point *point, const void *code, size_t size)
{
	static live_actions evaluates = {.count = 1, .nests = 1};
	const live_program *program = live_program_of(point, code, size, longest);

	if (!program)
		return;
	__atomic_store_n(&point->program, program, __ATOMIC_SEQ_CST);
	evaluates.counted = (uint32_t)counts;
	evaluates.vectors = !counts || !LIVE_CELLS;
	evaluates.action[0].handler = counts ? evaluate : hit;
	point->own = &evaluates;
	live_set_actions(point, &evaluates);
	__atomic_store_n(&point->armed, evaluates.vectors ? 3 : 1, __ATOMIC_SEQ_CST);
}

static void take_programs(void)
{
	static off_t taken;
	struct stat status;
	sent next;

	if (fstat(programs_fd, &status))
		return;
	while (status.st_size - taken >= (off_t)sizeof next && pread(programs_fd, &next, sizeof next, taken) == sizeof next) {
		live_arena scratch = {0};
		live_point *point = numbered(next.point);
		off_t code = taken + (off_t)sizeof next;
		void *copy;

		if (status.st_size - code < (off_t)next.size)
			return;
		copy = point ? live_allocate(&scratch, next.size + 8) : NULL;
		if (copy && pread(programs_fd, copy, next.size, code) == (ssize_t)next.size)
			install(point, copy, next.size);
		live_free(&scratch);
		taken = code + (off_t)next.size;
	}
}

/* Wait for programs for the points that were told, as long as there is a tracer: it has the ring's file locked. */
static void ask(void)
{
	const struct timespec moment = {0, 100000};
	uint64_t number;

	if (!longest || ring->quiet)
		return;
	number = __atomic_add_fetch(&ring->asked, 1, __ATOMIC_SEQ_CST);
	if (write(points_fd, "asks\n", 5) != 5)
		return;
	while (__atomic_load_n(&ring->answered, __ATOMIC_ACQUIRE) < number) {
		if (ring->quiet)
			return;
		if (flock(ring_fd, LOCK_SH | LOCK_NB) == 0) {
			flock(ring_fd, LOCK_UN);
			return;
		}
		nanosleep(&moment, NULL);
	}
	take_programs();
}

static void changed(void)
{
	if (points_fd >= 0) {
		tell_all();
		ask();
	}
}

/* Say what can't be done at all. */
static void check(int error)
{
	char line[256];
	int length = error < 0 ? snprintf(line, sizeof line, "failed %s\n", usdt_live_error(error)) : 0;

	if (length && write(points_fd, line, (size_t)length) < 0)
		points_fd = -1;
}

/* Only C++ writes such patterns of functions, but not each C++ program has the library that can read its names. */
static void know_written_names(const char *text)
{
	void *library;

	for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
		if ((*text == 'F' || *text == 'X' || *text == 'B' || *text == 'N') && strcspn(text + 2, ":(<~ ") < strcspn(text + 2, "\n"))
			break;
	library = live_demangle || !*text ? NULL : dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
	if (library)
		live_demangle = (live_demangler *)dlsym(library, "__cxa_demangle");
}

/* Read digits. What strtoul is called for glibc's newer headers (__isoc23_strtoul), no other C library has. */
static uint64_t number(const char *text)
{
	uint64_t value = 0;

	while (*text >= '0' && *text <= '9')
		value = value * 10 + (uint64_t)(*text++ - '0');
	return value;
}

static void add_role(const char *pattern, unsigned role)
{
	if (role_count == sizeof roles / sizeof *roles || live_read_pattern(&roles[role_count].pattern, pattern)) {
		check(USDT_LIVE_BAD_PATTERN);
		return;
	}
	roles[role_count++].role = (uint8_t)role;
	live_tree_role(role);
}

static void follow(char *text)
{
	char *line, *rest = NULL;

	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (*line == 'R' || *line == 'C') {
			record = 1;
			counts = *line == 'C';
		} else if (*line == 'P')
			check(usdt_live_probe_on(line + 2, record ? hit : NULL, NULL));
		else if (*line == 'F')
			check(usdt_live_function_on_with(
				line + 2, tree ? live_tree_enter : (record ? hit : NULL), tree ? live_tree_leave : NULL, NULL, flags, smallest));
		else if (*line == 'Z')
			smallest = (uint32_t)number(line + 2);
		else if (*line == 'E')
			longest = live_tables_begin(open_in("tables", O_RDWR)) ? (uint32_t)number(line + 2) : 0;
		else if (*line == 'T')
			tree = live_tree_begin(open_in("tree", O_RDWR), line[2] == '1', &flags);
		else if (*line == 'M')
			live_tree_cut(number(line + 2), 0);
		else if (*line == 'D')
			live_tree_cut(0, (uint32_t)number(line + 2));
		else if (*line == 'B' || *line == 'N')
			add_role(line + 2, *line == 'B' ? LIVE_TREE_BELOW : LIVE_TREE_WITHOUT);
		else if (*line == 'A' || *line == 'O') {
			if (*line == 'A')
				live_tree_waits();
			check(usdt_live_probe_on_with(line + 2, live_tree_switch, *line == 'A' ? &tree : NULL, USDT_LIVE_FAST));
		} else if (*line == 'X') {
			usdt_live_probe_off(line + 2);
			usdt_live_function_off(line + 2);
		}
	}
}

static __attribute__((constructor(65535))) void begin(void)
{
	const char *where = getenv("USDT_LIVE_INSIDE");
	static char rules[65536];
	struct stat status;
	int fd, counts;
	ssize_t got;

	if (!where || strlen(where) >= sizeof folder)
		return;
	strcpy(folder, where);
	points_fd = open_in("points", O_WRONLY | O_APPEND);
	fd = open_in("rules", O_RDONLY);
	counts = open_in("counts", O_RDWR);
	ring_fd = open_in("ring", O_RDWR);
	programs_fd = open_in("programs", O_RDONLY);
	if (points_fd < 0 || fd < 0 || counts < 0 || ring_fd < 0 || fstat(points_fd, &status) || status.st_size
		|| write(points_fd, "begun\n", 6) != 6) {
		points_fd = -1;
		return; /* another program has it, or nobody */
	}
	got = read(fd, rules, sizeof rules - 1);
	close(fd);
	if (fstat(ring_fd, &status))
		return;
	ring = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, ring_fd, 0);
	if (ring == MAP_FAILED || got < 0)
		return;
	slots = (char *)ring + 4096;
	rules[got] = '\0';
	know_written_names(rules);
	live_share(counts);
	live_on_change(changed);
	follow(rules);
	changed();
	if (write(points_fd, "ready\n", 6) < 0)
		points_fd = -1;
}
