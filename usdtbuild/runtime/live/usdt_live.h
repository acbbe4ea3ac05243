/*
 * usdt_live.h: a program switches its own probes and functions on and off while it runs.
 *
 * No tracer, no root, no ptrace, no other process. A probe (USDT) that is on counts its hits, and calls a function of
 * yours with its arguments if you give one. A function that was compiled with -fpatchable-function-entry likewise, when it
 * is entered and when it returns. What is off costs what it costs without this library: a NOP.
 *
 *     #include "usdt_live.h"
 *
 *     static void seen(const usdt_live_hit *hit, void *data)
 *     {
 *         printf("%s took %d\n", hit->point->name, (int)usdt_live_argument(hit, 0));
 *     }
 *
 *     usdt_live_probe_on("app:request__*", NULL, NULL);        count these
 *     usdt_live_probe_on("app:request__done", seen, NULL);     and call seen() at this one
 *     printf("%llu\n", usdt_live_count(USDT_LIVE_PROBES, "app:*"));
 *     usdt_live_probe_off("*");
 *
 * BUILD. Compile the .c files beside this header with the program's own compiler and link them: they need nothing but
 * libc (C99 with GNU extensions; files for other machines are empty after preprocessing). CMake: USDTBuild::live. Meson:
 * dependency('usdtbuild-live'). By hand: `cc -O2 -c` each .c file of the folder live in what `usdtbuild --include-dir` prints.
 *
 * PATTERNS. A probe is "provider:name", a function its symbol's name, or in a program with a C++ library what was written:
 * "shop::price", "shop::*". `*`, `?` and `[a-z]` match as in a shell; a pattern of probes without a colon is one of names. "MODULE!PATTERN"
 * keeps to one file: "libx.so*!app:*", and "!*" to the program itself. A dash in a probe's name is what its source writes as two
 * underscores; patterns may have either.
 *
 * RULES. Each _on() adds a rule and each _off() takes the points it matches out of all earlier rules, so their order is what
 * counts, as with uftrace's -P and -U. Rules also apply to libraries that are loaded later. The same handler with the same
 * data counts once. The number of rules isn't limited, and one whose points later rules all take out needs no room. Switching one name costs
 * the same, however many points and rules there are. Handlers and their data must stay valid for as long as the program runs, because a
 * thread may still be on its way into them when _off() returns.
 *
 * RESULTS. An _on() returns how many of the points that it matches are on: 0 or more. An error is negative, one of those below;
 * usdt_live_error() puts it in words. A rule that failed has no effect, but with USDT_LIVE_NO_MEMORY it may have a part of it. A point that
 * can't be switched on is no error: usdt_live_each() says for each point why. In a module that is loaded later, handlers beyond the eighth of
 * a point aren't called: usdt_live_refresh() tells. Nothing here aborts or prints.
 *
 * HANDLERS run in the thread that hit the point, between two instructions of it, like signal handlers: they must not take locks that the
 * interrupted code may hold. errno and all registers are restored. A point that is hit while a handler of the same thread
 * runs is counted, and its handler isn't called (`skipped` of the statistics). With USDT_LIVE_FAST a handler promises not to touch vector
 * and floating-point registers or errno; it is declared USDT_LIVE_FAST_HANDLER, which makes the compiler keep the promise. Saving these
 * registers is most of what a call costs. A handler may be left by longjmp. This is noticed at the thread's next hit that is not
 * deeper on its stack, and counted (`handlers_left`). Until then the thread's handlers aren't called. No exception may leave a handler:
 * std::terminate() ends the program.
 *
 * FUNCTIONS. `enter` gets the arguments that were passed in integer registers, `leave` the return value. A frame that is left by longjmp or
 * by a C++ exception has no `leave` (`abandoned` of the statistics); exceptions, longjmp, setcontext, coroutines that move to other
 * threads, tail calls, recursion and signals work as without. More than 4,080 calls at a time (of all threads), and calls in more than 500
 * threads at a time, are entered without `leave` (`too_deep`).
 *
 * THREADS AND SIGNALS. Every function here may be called from any thread, from constructors, after fork() in the child, and from handlers.
 * From a signal handler or a visitor that interrupted one of these functions they return USDT_LIVE_BUSY.
 *
 * COUNTS are exact: on x86-64 each thread counts in memory of its own, which it asks the system for (mmap, gettid) at its first hit and
 * which the next thread takes over with what it holds; elsewhere, or where a seccomp filter is, with an atomic addition for all (`locked`
 * of the statistics). Threads that share one thread-local storage (clone() without CLONE_SETTLS), or exchange theirs, may lose counts, as
 * they lose errno. A library's counts go with it: after dlclose() they are neither in usdt_live_count() nor in usdt_live_each().
 *
 * MODULES are found by dl_iterate_phdr. Their probes are read from their files, whose build ids are compared with memory. Where the file is
 * gone, is another one, or can't be reached (chroot), they are read from a table in memory, if the code was compiled with `usdtbuild cc
 * --site-table`; its functions aren't known then. usdt_live_report() names such files. Libraries that are opened later are found before
 * their constructors run, where the dynamic linker's debugger hook can be used (glibc's on x86-64, aarch64 and Arm), and by the next call of
 * a function here elsewhere.
 *
 * Licence: Apache-2.0, as the whole of usdtbuild.
 */

#ifndef USDT_LIVE_H
#define USDT_LIVE_H

#if defined(__i386__)
#error "usdt_live.h: there is no protocol for 32-bit x86; compile without it, or for x86-64 (-m64)"
#elif defined(__x86_64__) && defined(__ILP32__)
#error "usdt_live.h: there is no protocol for x32 (-mx32); compile without it, or with -m64"
#endif

#ifdef __GNUC__ /* what a program is warned of is for its own code */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wlong-long"
#ifdef __cplusplus
#pragma GCC diagnostic ignored "-Wold-style-cast"
#endif
#endif

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What can be switched: bits, so that both can be asked for. */
#define USDT_LIVE_PROBES 1u
#define USDT_LIVE_FUNCTIONS 2u

/* Flags of rules. */
#define USDT_LIVE_FAST 1u /* the handlers touch neither vector and floating-point registers nor errno */

#if defined(__x86_64__) && ((defined(__clang__) && __clang_major__ >= 12) || (!defined(__clang__) && __GNUC__ >= 11))
#define USDT_LIVE_FAST_HANDLER __attribute__((target("general-regs-only")))
#else
#define USDT_LIVE_FAST_HANDLER
#endif

/* Errors. */
#define USDT_LIVE_BUSY (-1)        /* called from a signal handler that interrupted a function of this library */
#define USDT_LIVE_NO_MEMORY (-2)   /* the system gives no memory */
#define USDT_LIVE_BAD_PATTERN (-3) /* the pattern is empty, or too long */
#define USDT_LIVE_BAD_MACHINE (-4) /* this library has no protocol for this machine */
#define USDT_LIVE_NO_LEAVE (-6)    /* returns can't be watched on this machine, entries can: pass NULL for `leave` */
#define USDT_LIVE_TOO_MANY (-5)    /* more than 8 handlers at one point */

/* One argument of a probe, or an integer argument of a function. */
typedef struct usdt_live_argument_place {
	const char *type;    /* as the provider file spells it; "" where it is not known */
	const char *name;    /* likewise */
	uint8_t size;        /* bytes: 1, 2, 4, 8 */
	uint8_t is_signed;
	uint8_t kind;        /* 0 register, 1 memory at a register, 2 constant, 3 memory at a distance from the saved registers */
	uint8_t reg;         /* which of the saved registers */
	int64_t offset;      /* of the memory, or the constant */
} usdt_live_argument_place;

/* A probe's site, or a function's entry. */
typedef struct usdt_live_point {
	const char *provider; /* "" for functions */
	const char *name;
	const char *module;   /* the file's path; the program's own is as the kernel says */
	uintptr_t address;
	uint32_t size;        /* of the function, in bytes; 0 where it is not known */
	uint8_t kind;         /* USDT_LIVE_PROBES or USDT_LIVE_FUNCTIONS */
	uint8_t argument_count;
	/* And counts: 0 while a breakpoint of others stands there (`reason` is "taken"), until the next call after it has gone. */
	uint8_t is_on;
	const char *reason;   /* why it can't be switched on: a word; NULL if it can */
	const char *detail;   /* the same as a sentence */
	const usdt_live_argument_place *arguments;
} usdt_live_point;

/* One hit. For functions `registers` are those of the entry. */
typedef struct usdt_live_hit {
	const usdt_live_point *point;
	const uintptr_t *registers;
	const void *stack; /* functions: where the return address is; tells apart the calls of a recursion */
} usdt_live_hit;

/* One return of a function. */
typedef struct usdt_live_return {
	const usdt_live_point *point;
	uintptr_t value;        /* the integer return value, and its second half where there is one */
	uintptr_t second;
	const void *stack;      /* where the return address was: the same for enter (hit->stack) and leave of one call */
} usdt_live_return;

typedef void usdt_live_handler(const usdt_live_hit *hit, void *data);
typedef void usdt_live_leaver(const usdt_live_return *ret, void *data);

/* Counts since the program started, and what the last _on() or _off() did. */
typedef struct usdt_live_statistics {
	uint32_t modules, points;    /* known now */
	uint32_t on;                 /* points that are on now */
	uint32_t matched;            /* by the last call's pattern */
	uint32_t switched;           /* points that the last call switched on or off */
	uint32_t refused;            /* points of the last call's that can't be switched on */
	uint32_t taken;              /* points found changed by somebody else, while they were on or were to be switched */
	uint64_t nanoseconds;        /* that the last call took, of them: */
	uint64_t reading_nanoseconds; /* for modules that were new */
	uint64_t skipped, too_deep, abandoned, handlers_left;
	uint32_t locked;             /* points known now, counted with a locked addition: exact, but several times as dear */
} usdt_live_statistics;

/* Switch on what matches `pattern`; `handler` may be NULL: then hits are only counted. */
int usdt_live_probe_on(const char *pattern, usdt_live_handler *handler, void *data);
int usdt_live_probe_on_with(const char *pattern, usdt_live_handler *handler, void *data, unsigned flags);

/* Switch off what matches. Returns the number of points that went off. */
int usdt_live_probe_off(const char *pattern);

/* The same for functions. `minimum` leaves out functions of fewer bytes. */
int usdt_live_function_on(const char *pattern, usdt_live_handler *enter, usdt_live_leaver *leave, void *data);
int usdt_live_function_on_with(
	const char *pattern, usdt_live_handler *enter, usdt_live_leaver *leave, void *data, unsigned flags, uint32_t minimum);
int usdt_live_function_off(const char *pattern);

/* The sum of the counts of what matches, of `kinds`, or an error, which USDT_LIVE_NO_COUNT tells, and usdt_live_error((int)count) puts in
 * words. A point keeps its count when it goes off. */
#define USDT_LIVE_NO_COUNT(count) ((count) + 4095u < 4095u)
unsigned long long usdt_live_count(unsigned kinds, const char *pattern);

/* Call `each` for every point that matches; it returns non-zero to stop. It must not switch anything. Returns the number of points. */
typedef int usdt_live_visitor(const usdt_live_point *point, unsigned long long count, void *data);
int usdt_live_each(unsigned kinds, const char *pattern, usdt_live_visitor *each, void *data);

/* Look for modules that came and went, where the dynamic linker doesn't tell. Returns the number of points, or once what went wrong with rules
 * in modules that came since the last call. */
int usdt_live_refresh(void);

void usdt_live_get_statistics(usdt_live_statistics *statistics);
const char *usdt_live_error(int error);

/* Write what usdt_live_get_statistics() gives, and the refusals by reason, as lines of text. Returns the length, as snprintf does. */
int usdt_live_report(char *text, size_t size);

/* Argument `index` of a hit, widened to 64 bits by its sign. A wild pointer's memory isn't read: only values are. 0 for an argument that is
 * not there. */
static __inline__ USDT_LIVE_FAST_HANDLER uint64_t usdt_live_argument(const usdt_live_hit *hit, unsigned index)
{
	const usdt_live_argument_place *place;
	const unsigned char *at;
	uint64_t value;

	if (index >= hit->point->argument_count)
		return 0;
	place = &hit->point->arguments[index];
	if (place->kind == 2) {
		value = (uint64_t)place->offset;
	} else if (place->kind == 0) {
		value = hit->registers[place->reg];
	} else {
		at = place->kind == 3 ? (const unsigned char *)hit->registers : (const unsigned char *)hit->registers[place->reg];
		at += place->offset;
		if (place->size == 8)
			value = *(const uint64_t *)(const void *)at;
		else if (place->size == 4)
			value = *(const uint32_t *)(const void *)at;
		else if (place->size == 2)
			value = *(const uint16_t *)(const void *)at;
		else
			value = *at;
	}
	if (place->size == 4)
		return place->is_signed ? (uint64_t)(int64_t)(int32_t)value : (uint32_t)value;
	if (place->size == 2)
		return place->is_signed ? (uint64_t)(int64_t)(int16_t)value : (uint16_t)value;
	if (place->size == 1)
		return place->is_signed ? (uint64_t)(int64_t)(int8_t)value : (uint8_t)value;
	return value;
}

#ifdef __cplusplus
}
#endif

#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
#endif
