/*
 * The functions of usdt_live.h, and applying rules, which is the one way in which anything is switched. One lock
 * protects everything here. It knows its owner: a signal handler that interrupts the owner gets an error instead of waiting for ever.
 */

#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rules.h"

static usdt_live_statistics last;
static const char live_taken[] = "taken"; /* told by its address */
static const char live_taken_detail[] = "a breakpoint of a debugger or of the kernel stands there, or another patcher's code";

/* -- the lock ---------------------------------------------------------------------------------------------------- */

static long owner;

static long self(void)
{
	return syscall(SYS_gettid);
}

static int try_lock(void)
{
	long nobody = 0;

	return __atomic_compare_exchange_n(&owner, &nobody, self(), 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static void unlock(void)
{
	__atomic_store_n(&owner, 0, __ATOMIC_RELEASE);
}

/* Wait a moment for who has the lock; USDT_LIVE_BUSY if that is this thread. */
static int wait_for_lock(void)
{
	const struct timespec moment = {0, 20000};

	if (__atomic_load_n(&owner, __ATOMIC_RELAXED) == self())
		return USDT_LIVE_BUSY;
	nanosleep(&moment, NULL);
	return 0;
}

static int lock(void)
{
	while (!try_lock())
		if (wait_for_lock())
			return USDT_LIVE_BUSY;
	return 0;
}

/*
 * How many threads look through the dynamic linker's list, and how often this one does: a child must not inherit the dynamic linker's lock,
 * which nobody would give back. Each looks at the lock after it has said so, and who forks counts them after it has taken the lock.
 */
static int looking;
static __thread int own_looks __attribute__((tls_model("initial-exec")));

static int look_for_modules(void)
{
	long who;
	int changed;

	own_looks++; /* before and after the other: a handler that forks in between waits for nobody */
	__atomic_add_fetch(&looking, 1, __ATOMIC_SEQ_CST);
	who = __atomic_load_n(&owner, __ATOMIC_SEQ_CST);
	changed = who && who != self() ? -1 : live_scan(try_lock);
	__atomic_sub_fetch(&looking, 1, __ATOMIC_SEQ_CST);
	own_looks--;
	return changed;
}

/*
 * Take the lock, and look for modules that came or went. The dynamic linker's lock comes first, and nobody waits for ours with it, or for
 * it with ours: a handler may run in a callback of dl_iterate_phdr.
 */
static int lock_and_scan(int *changed)
{
	while ((*changed = look_for_modules()) < 0)
		if (wait_for_lock())
			return USDT_LIVE_BUSY;
	return 0;
}

/* A child must not inherit a lock whose owner it hasn't. The thread that forks may own it itself, in a handler of the dynamic linker's. */
static __thread int fork_took __attribute__((tls_model("initial-exec")));

static int others_look(void)
{
	return __atomic_load_n(&looking, __ATOMIC_SEQ_CST) > own_looks;
}

/* Who looks may wait for a thread with the dynamic linker's lock that waits for ours, so it is given back now and then. */
static void before_fork(void)
{
	const struct timespec moment = {0, 20000};
	int tries;

	while ((fork_took = lock() == 0) != 0) {
		for (tries = 0; tries < 50 && others_look(); tries++)
			nanosleep(&moment, NULL);
		if (!others_look())
			return;
		unlock();
		nanosleep(&moment, NULL);
	}
}

static void after_fork(void)
{
	if (fork_took)
		unlock();
	else
		__atomic_store_n(&owner, self(), __ATOMIC_RELEASE);
}

static void in_child(void)
{
	looking = own_looks;
	live_cells_forked();
	after_fork();
}

#if defined(USDT_LIVE_ANY_LIBC) && defined(__GLIBC__)

/*
 * The library to preload is compiled with glibc and loaded by what the program has: musl ignores versions of symbols, and takes glibc's
 * names of libraries for its own, but has pthread_atfork, which is no symbol of glibc's, and not what that calls.
 */
extern int pthread_atfork(void (*)(void), void (*)(void), void (*)(void)) __attribute__((weak));
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *) __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

int live_has_glibc(void)
{
	return __register_atfork != NULL;
}

int live_at_fork(void (*before)(void), void (*after)(void), void (*child)(void))
{
	if (__register_atfork)
		return __register_atfork(before, after, child, &__dso_handle);
	return pthread_atfork ? pthread_atfork(before, after, child) : ENOSYS;
}

#else

int live_has_glibc(void)
{
#if defined(__GLIBC__)
	return 1;
#else
	return 0;
#endif
}

int live_at_fork(void (*before)(void), void (*after)(void), void (*child)(void))
{
	return pthread_atfork(before, after, child);
}

#endif

static __attribute__((constructor)) void watch_forks(void)
{
	live_at_fork(before_fork, after_fork, in_child);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* -- applying rules ----------------------------------------------------------------------------------------------- */

/* Trampolines and what leads to them, for all points of a module, the first time that any is wanted. */
static void prepare(live_module *module)
{
	size_t trampolines = module->point_count * (size_t)live_trampoline_size, i;

	if (module->prepared)
		return;
	module->prepared = 1;
	if (!module->region)
		return;
#ifdef MADV_POPULATE_WRITE
	madvise(module->region, (trampolines + live_page() - 1) & ~(live_page() - 1), MADV_POPULATE_WRITE);
#endif
	for (i = 0; i < module->point_count; i++)
		if (!module->points[i].shown.reason)
			live_machine_trampoline(&module->points[i], (unsigned char *)module->points[i].trampoline);
	live_machine_prepare(module, module->region + ((trampolines + 255) & ~(size_t)255), module->room);
#if !defined(__x86_64__)
	__builtin___clear_cache(module->region, module->region + trampolines + module->room);
#endif
	if (!live_make_executable(module->region, (size_t)((char *)module->points - module->region)))
		for (i = 0; i < module->point_count; i++)
			live_refuse(&module->points[i], "no-execute", "the system allows no new code (SELinux, MDWE)");
}

/* The kernel's tracers add to a semaphore, too. Not every machine has an atomic addition of two bytes. */
static void add_to(uint16_t *semaphore, int value)
{
#if defined(__x86_64__) || defined(__aarch64__)
	__atomic_fetch_add(semaphore, (uint16_t)value, __ATOMIC_RELAXED);
#else
	*(volatile uint16_t *)semaphore = (uint16_t)(*semaphore + value);
#endif
}

static uint32_t switch_list(live_module *module, live_point **list, size_t count, int on)
{
	uint32_t done = 0;
	size_t i;

	if (!count)
		return 0;
	live_run(module, list, count, on);
	for (i = 0; i < count; i++) {
		live_point *point = list[i];

		if (point->failed == 2)
			live_refuse(point, "read-only", "the code can't be made writable (SELinux, MDWE), nor written through /proc/self/mem");
		if (point->failed && on) {
			last.taken += point->failed == 1;
			live_refuse(point, live_taken, live_taken_detail);
			live_set_actions(point, NULL);
			continue;
		}
		/* What couldn't be switched off was taken over by another tracer, which will put back the file's bytes. */
		last.taken += point->failed == 1;
		point->state = on ? LIVE_ON : LIVE_OFF;
		point->shown.is_on = (uint8_t)on;
		if (point->semaphore)
			add_to(point->semaphore, on ? 1 : -1);
		if (!on && point->actions)
			live_set_actions(point, NULL);
		if (point->shown.reason == live_taken)
			point->shown.reason = point->shown.detail = NULL;
		done++;
	}
	return done;
}

/* Chains of points whose names have the same key, so that switching one of many needn't look at all. 0 without memory. */
static int make_chains(live_module *module)
{
	uint32_t size = 1, i;

	while (size < module->point_count)
		size *= 2;
	if (!module->chains && (module->chains = live_allocate(&module->arena, size * sizeof *module->chains))) {
		module->chain_mask = size - 1;
		for (i = module->point_count; i-- > 0;) {
			uint32_t *chain = &module->chains[module->points[i].key & module->chain_mask];

			module->points[i].same = *chain;
			*chain = i + 1;
		}
	}
	return module->chains != NULL;
}

enum { FIRST = UINT32_MAX };

/* The next point whose name may have this key, or any with 0; `at` begins as FIRST. */
static live_point *next_point(live_module *module, uint32_t key, uint32_t *at)
{
	uint32_t index;

	if (!key || !make_chains(module))
		return ++*at < module->point_count ? &module->points[*at] : NULL;
	index = *at == FIRST ? module->chains[key & module->chain_mask] : module->points[*at].same;
	while (index && module->points[index - 1].key != key)
		index = module->points[index - 1].same;
	*at = index - 1;
	return index ? &module->points[*at] : NULL;
}

static size_t count_of(live_module *module, uint32_t key)
{
	uint32_t at = FIRST;
	size_t count = 0;

	if (!key)
		return module->point_count;
	while (next_point(module, key, &at))
		count++;
	return count;
}

static int apply_to(live_module *module, unsigned kinds, uint32_t key)
{
	live_arena scratch = {0};
	size_t most = count_of(module, key), on_count = 0, off_count = 0;
	live_point **on = most ? live_allocate(&scratch, 2 * most * sizeof *on + 32) : NULL, **off, *point;
	uint32_t at = FIRST;
	live_actions wanted;
	live_decided decided[DECIDED];
	int error = 0;

	if (!on)
		return most ? USDT_LIVE_NO_MEMORY : 0;
	off = on + most + 1;
	memset(&wanted, 0, sizeof wanted);
	memset(decided, 0, sizeof decided);
	while ((point = next_point(module, key, &at))) {
		const live_actions *actions;
		live_decided *now;

		if (!(point->shown.kind & kinds))
			continue;
		now = live_decided_of(decided, point);
		if (point->shown.kind != USDT_LIVE_PROBES || now->name != point->shown.name) {
			now->name = point->shown.name;
			now->on = live_decide(point, &wanted, &error);
			now->actions = now->on ? live_shared_actions(&wanted) : NULL;
		}
		point->wanted = (uint8_t)now->on;
		if (!now->on) {
			if (point->state == LIVE_ON)
				off[off_count++] = point;
			continue;
		}
		if (!module->prepared)
			prepare(module);
		if (point->shown.reason == live_taken && point->state == LIVE_OFF) /* it may be free again */
			point->shown.reason = point->shown.detail = NULL;
		if (point->shown.reason)
			continue;
		actions = point->own ? point->own : now->actions;
		if (actions != point->actions || !point->armed != !actions)
			live_set_actions(point, actions);
		if (point->state == LIVE_OFF)
			on[on_count++] = point;
	}
	last.switched += switch_list(module, off, off_count, 0);
	last.switched += switch_list(module, on, on_count, 1);
	live_free(&scratch);
	return error;
}

static int apply(unsigned kinds, uint32_t key)
{
	live_module *module;
	int error = 0;

	for (module = live_modules; module; module = module->next) {
		int one = module->point_count ? apply_to(module, kinds, key) : 0;

		error = one && error != USDT_LIVE_NO_MEMORY ? one : error;
	}
	return error;
}

/*
 * Points that are on, and that others have changed since. While their breakpoint stands there, nothing is counted, and the point says so.
 * When they take it out they put back what the file has, which is the state of a point that is off: it is switched on again, as any that is
 * off.
 */
static void mend(live_module *module, uint32_t key)
{
	live_arena scratch = {0};
	live_point **list = NULL, *point;
	size_t count = 0, i;
	uint32_t at = FIRST;

	while (module->point_count && (point = next_point(module, key, &at))) {
		int stands = point->state == LIVE_ON ? live_stands(point) : 1;

		if (point->state != LIVE_ON || (stands == 1 && point->shown.is_on))
			continue;
		last.taken += point->shown.is_on;
		point->shown.is_on = stands == 1;
		point->shown.reason = stands == 1 ? NULL : live_taken;
		point->shown.detail = stands == 1 ? NULL : live_taken_detail;
		if (stands < 0 && (list || (list = live_allocate(&scratch, module->point_count * sizeof *list))))
			list[count++] = point;
	}
	if (count)
		live_run(module, list, count, 1);
	for (i = 0; i < count; i++)
		if (!list[i]->failed) {
			list[i]->shown.is_on = 1;
			list[i]->shown.reason = list[i]->shown.detail = NULL;
		}
	live_free(&scratch);
}

static int look_error; /* of rules that came before; usdt_live_refresh() tells of it, once */

/* Look at points, and give new ones what the rules say. */
static void look(int changed, uint32_t key)
{
	live_module *module;
	int error;

	for (module = live_modules; module; module = module->next)
		mend(module, key);
	live_watch_linker();
	error = changed && live_rule_count ? apply(USDT_LIVE_PROBES | USDT_LIVE_FUNCTIONS, 0) : 0;
	look_error = error ? error : look_error;
}

static void (*on_change)(void);

void live_on_change(void (*heard)(void))
{
	on_change = heard;
}

/* Called in dlopen and dlclose, with the dynamic linker's lock. */
void live_linker_changed(void)
{
	int changed;

	if (lock_and_scan(&changed))
		return; /* a dlopen of this library's own making, by way of a handler */
	look(changed, 0);
	unlock();
	if (on_change)
		on_change();
}

/* With `decided` all points were held against the rules just now; if this is the only one, `wanted` says which of them it matches. */
static void count_matched(const rule *r, int decided, int *on)
{
	const int only = decided && r->on && live_rule_count == 1;
	live_decided probes[DECIDED];
	const live_point *point;
	live_module *module;

	for (module = live_modules; module; module = module->next) {
		uint32_t at = FIRST;

		memset(probes, 0, sizeof probes);
		while (module->point_count && (point = next_point(module, r->key, &at))) {
			live_decided *now;

			if (r->kind != point->shown.kind)
				continue;
			now = live_decided_of(probes, point);
			if (!only && (point->shown.kind != USDT_LIVE_PROBES || now->name != point->shown.name)) {
				now->name = point->shown.name;
				now->on = live_rule_applies(r, point);
			}
			if (only ? !point->wanted : !now->on)
				continue;
			last.matched++;
			last.refused += point->shown.reason != NULL;
			*on += point->shown.is_on;
		}
	}
}

static void count_all(void)
{
	live_module *module;
	uint32_t i;

	last.modules = last.points = last.on = last.locked = 0;
	for (module = live_modules; module; module = module->next) {
		last.modules++;
		last.points += module->point_count;
		for (i = 0; i < module->point_count; i++) {
			last.on += module->points[i].shown.is_on;
			last.locked += !module->points[i].cell;
		}
	}
}

/* Whether one more rule gives any point a handler too many. */
static int is_one_too_many(const rule *r)
{
	const live_point *point;
	live_module *module;

	if (!r->on || (!r->handler && !r->leaver) || live_rule_count < HANDLERS)
		return 0;
	for (module = live_modules; module; module = module->next) {
		uint32_t at = FIRST;

		while (module->point_count && (point = next_point(module, r->key, &at)))
			if (live_is_one_too_many(r, point))
				return 1;
	}
	return 0;
}

static int change(const rule *r)
{
	uint64_t start = now();
	int changed, error = lock_and_scan(&changed), applied = 0, on = 0;

	if (error)
		return error;
	memset(&last, 0, sizeof last);
	last.reading_nanoseconds = now() - start;
	look(changed, r->key);
	error = is_one_too_many(r) ? USDT_LIVE_TOO_MANY : live_add_rule(r);
	if (!error && r->on)
		live_give_cells();
	if (!error)
		applied = apply(r->kind, r->key);
	if (applied == USDT_LIVE_NO_MEMORY) /* too many are an earlier rule's, in a module that came later */
		error = applied;
	count_matched(r, !error, &on);
	last.nanoseconds = now() - start;
	unlock();
	return error ? error : r->on ? on : (int)last.switched;
}

static int new_rule(unsigned kind, const char *pattern, int on, usdt_live_handler *handler, usdt_live_leaver *leaver, void *data,
	unsigned flags, uint32_t minimum)
{
	rule r;

	if (!live_trampoline_size)
		return USDT_LIVE_BAD_MACHINE;
	memset(&r, 0, sizeof r);
	if (live_read_pattern(&r.pattern, pattern))
		return USDT_LIVE_BAD_PATTERN;
	r.kind = kind;
	r.on = on;
	r.handler = handler;
	r.leaver = leaver;
	r.data = data;
	r.flags = flags;
	r.minimum = minimum;
	r.key = live_key_of(&r);
	return change(&r);
}

/* -- usdt_live.h -------------------------------------------------------------------------------------------------- */

int usdt_live_probe_on_with(const char *pattern, usdt_live_handler *handler, void *data, unsigned flags)
{
	return new_rule(USDT_LIVE_PROBES, pattern, 1, handler, NULL, data, flags, 0);
}

int usdt_live_probe_on(const char *pattern, usdt_live_handler *handler, void *data)
{
	return usdt_live_probe_on_with(pattern, handler, data, 0);
}

int usdt_live_probe_off(const char *pattern)
{
	return new_rule(USDT_LIVE_PROBES, pattern, 0, NULL, NULL, NULL, 0, 0);
}

int usdt_live_function_on_with(
	const char *pattern, usdt_live_handler *enter, usdt_live_leaver *leave, void *data, unsigned flags, uint32_t minimum)
{
	return new_rule(USDT_LIVE_FUNCTIONS, pattern, 1, enter, leave, data, flags, minimum);
}

int usdt_live_function_on(const char *pattern, usdt_live_handler *enter, usdt_live_leaver *leave, void *data)
{
	return usdt_live_function_on_with(pattern, enter, leave, data, 0, 0);
}

int usdt_live_function_off(const char *pattern)
{
	return new_rule(USDT_LIVE_FUNCTIONS, pattern, 0, NULL, NULL, NULL, 0, 0);
}

int usdt_live_refresh(void)
{
	int changed, error = lock_and_scan(&changed);

	if (error)
		return error;
	look(changed, 0);
	error = look_error;
	look_error = 0;
	count_all();
	unlock();
	return error ? error : (int)last.points;
}

int usdt_live_each(unsigned kinds, const char *pattern, usdt_live_visitor *each, void *data)
{
	live_pattern read;
	int changed, error = live_read_pattern(&read, pattern), count = 0, stop = 0;
	live_module *module;
	uint32_t i;

	if (error || (error = lock_and_scan(&changed)))
		return error;
	look(changed, 0);
	for (module = live_modules; module && !stop; module = module->next)
		for (i = 0; i < module->point_count && !stop; i++) {
			const live_point *point = &module->points[i];

			if (!live_point_matches(kinds, &read, point))
				continue;
			count++;
			stop = each && each(&point->shown, live_count(point), data);
		}
	unlock();
	return count;
}

static int add_up(const usdt_live_point *point, unsigned long long count, void *data)
{
	(void)point;
	*(unsigned long long *)data += count;
	return 0;
}

unsigned long long usdt_live_count(unsigned kinds, const char *pattern)
{
	unsigned long long sum = 0;
	int error = usdt_live_each(kinds, pattern, add_up, &sum);

	return error < 0 ? (unsigned long long)error : sum;
}

void usdt_live_get_statistics(usdt_live_statistics *statistics)
{
	if (!statistics)
		return;
	if (lock() == 0) {
		count_all();
		unlock();
	}
	*statistics = last;
	statistics->skipped = live_skipped;
	statistics->too_deep = live_too_deep;
	statistics->abandoned = live_abandoned;
	statistics->handlers_left = live_handlers_left;
}

const char *usdt_live_error(int error)
{
	switch (error) {
	case USDT_LIVE_BUSY: return "called from a signal handler, or a visitor, while this thread was switching probes";
	case USDT_LIVE_NO_MEMORY: return "the system gives no more memory";
	case USDT_LIVE_BAD_PATTERN: return "the pattern is empty, or longer than 255 characters";
	case USDT_LIVE_BAD_MACHINE: return "nothing can be switched on this machine";
	case USDT_LIVE_NO_LEAVE: return "returns can't be watched on this machine; entries can, with no leave";
	case USDT_LIVE_TOO_MANY: return "more than 8 handlers at one point";
	default: return error >= 0 ? "no error" : "no such error";
	}
}

typedef struct refusals {
	const char *reason[40], *detail[40];
	unsigned count[40], kinds;
} refusals;

static int count_refusal(const usdt_live_point *point, unsigned long long count, void *data)
{
	refusals *r = data;
	unsigned i;

	(void)count;
	for (i = 0; point->reason && i < r->kinds && strcmp(r->reason[i], point->reason) != 0; i++)
		;
	if (!point->reason || i == 40)
		return 0;
	r->reason[i] = point->reason;
	r->detail[i] = point->detail;
	r->count[i]++;
	r->kinds = i == r->kinds ? i + 1 : r->kinds;
	return 0;
}

typedef struct told {
	char *text;
	size_t size;
	int length; /* of all, whether there was room for it or not */
} told;

static void __attribute__((format(printf, 2, 3))) tell(told *all, const char *format, ...)
{
	size_t at = (size_t)all->length, room = all->text && at < all->size ? all->size - at : 0;
	va_list values;
	int more;

	va_start(values, format);
	more = vsnprintf(room ? all->text + at : NULL, room, format, values);
	va_end(values);
	all->length += more > 0 ? more : 0;
}

int usdt_live_report(char *text, size_t size)
{
	told all = {text, size, 0};
	usdt_live_statistics s;
	refusals r = {0};
	int error = usdt_live_refresh();
	unsigned i;

	usdt_live_each(USDT_LIVE_PROBES | USDT_LIVE_FUNCTIONS, "*", count_refusal, &r);
	usdt_live_get_statistics(&s);
	/* clang-format off */
	tell(&all,
		"%u points in %u modules, %u on\nlast call: %u matched, %u switched, %u refused, %u changed by others, %.3f ms, %.3f of them reading\n"
		"handlers: %llu skipped, %llu returns too deep, %llu abandoned\n",
		s.points, s.modules, s.on, s.matched, s.switched, s.refused, s.taken, (double)s.nanoseconds / 1e6,
		(double)s.reading_nanoseconds / 1e6, (unsigned long long)s.skipped, (unsigned long long)s.too_deep,
		(unsigned long long)s.abandoned);
	/* clang-format on */
	if (s.locked)
		tell(&all, "%u counted with locked additions: %s\n", s.locked,
			live_is_shared() ? "another process reads the counts" : live_why_locked());
	if (error < 0)
		tell(&all, "rules: %s\n", usdt_live_error(error));
	for (i = 0; i < r.kinds; i++)
		tell(&all, "%6u %s: %s\n", r.count[i], r.reason[i], r.detail[i]);
	if (lock() == 0) {
		const live_module *module;

		/* What has no path is the kernel's own. */
		for (module = live_modules; module; module = module->next)
			if (module->trouble && strchr(module->path, '/'))
				tell(&all, "%s: %s%s\n", module->path, module->trouble,
					module->from_memory ? "; its probes are known from memory, its functions aren't" : "");
		unlock();
	}
	return all.length;
}
