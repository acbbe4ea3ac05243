/*
 * What the files of this folder share. Nothing here is for programs; those include usdt_live.h.
 *
 *     live.c      the functions of usdt_live.h, and applying rules
 *     rules.c     what is to be on, and with which handlers
 *     written.c   functions as C++ programs' authors wrote them
 *     modules.c   which files are loaded, and when that changes
 *     notes.c     a module's probes, from its file's notes
 *     table.c     the same from its memory, where the file can't be read
 *     entries.c   a module's functions, and what must be true of an entry that is to be patched
 *     symbols.c   a module's functions by address
 *     text.c      memory in reach of code, writing code, making every thread see it
 *     pages.c     pages of code that are exchanged as a whole
 *     cells.c     counts of hits, by thread
 *     mirrors.c   memory where a site's own bytes can jump to
 *     frames.c    what trampolines call: handlers, and the frames whose return is waited for
 *     x86_64.c …  one file a machine: its protocol, its trampolines
 *     machines.c  what they have in common
 *
 * Memory comes from mmap, in arenas, and never from malloc: everything here may run in constructors, in
 * signal handlers and between fork and exec. One lock (live.c) protects all but the hits themselves.
 */

#ifndef USDT_LIVE_INTERNAL_H
#define USDT_LIVE_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#if defined(__SANITIZE_THREAD__)
#define LIVE_SANITIZES_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LIVE_SANITIZES_THREADS 1
#endif
#endif
#ifdef LIVE_SANITIZES_THREADS
/* clang-format off */
#error "the files of usdt_live.h run in the middle of other code and write where ThreadSanitizer has no shadow: compile these files with -fno-sanitize=thread (the program itself may have it)"
/* clang-format on */
#endif

#include "usdt_live.h" /* first: it may say that this can't be compiled */

#include <link.h>
#include <stddef.h>
#include <stdint.h>

#define LIVE_HIDDEN __attribute__((visibility("hidden")))
/* Code that hits run: it must hit nothing itself, and the compiler must not add calls to it. */
#if defined(__clang__) && !__has_attribute(patchable_function_entry)
#define LIVE_PLAIN __attribute__((no_instrument_function))
#elif defined(__clang__)
#define LIVE_PLAIN __attribute__((no_instrument_function, patchable_function_entry(0, 0)))
#else
#define LIVE_PLAIN __attribute__((no_instrument_function, no_sanitize_address, patchable_function_entry(0, 0)))
#endif

#if defined(__powerpc64__) && defined(_CALL_ELF) && _CALL_ELF == 2 && defined(__LITTLE_ENDIAN__)
#define LIVE_PPC64 1
#else
#define LIVE_PPC64 0
#endif

/* Version 7 has what is needed in both instruction sets: B.W, and counting of eight bytes. */
#if defined(__arm__) && defined(__ARM_ARCH) && __ARM_ARCH >= 7 && !defined(__ARMEB__)
#define LIVE_ARM 1
#else
#define LIVE_ARM 0
#endif

/* Whether a file of this folder is for this machine. */
#if LIVE_ARM
#define LIVE_MACHINE 1
#elif defined(__ILP32__)
#define LIVE_MACHINE 0
#elif defined(__x86_64__) || defined(__aarch64__) || (defined(__riscv) && defined(__LP64__)) || defined(__s390x__) || LIVE_PPC64
#define LIVE_MACHINE 1
#else
#define LIVE_MACHINE 0
#endif

/* Counts have eight bytes. Machines without a protocol here needn't have instructions for that, since nothing is hit there. */
#if LIVE_MACHINE
#define LIVE_ADD_ONE(at) __atomic_fetch_add(at, 1, __ATOMIC_RELAXED)
#define LIVE_COUNT_OF(at) __atomic_load_n(at, __ATOMIC_RELAXED)
#else
#define LIVE_ADD_ONE(at) ((void)++*(at))
#define LIVE_COUNT_OF(at) (*(at))
#endif

/* Whether functions that can be patched may stand in no table. */
#if defined(__s390x__)
#define LIVE_HOTPATCH 1
#else
#define LIVE_HOTPATCH 0
#endif

/* Whether threads have cells of their own to count in (cells.c): adding to memory must be one instruction, without a free register. */
#if defined(__x86_64__) && !defined(__ILP32__)
#define LIVE_CELLS 1
#else
#define LIVE_CELLS 0
#endif

/* -- arenas ---------------------------------------------------------------------------------------------------- */

typedef struct live_arena {
	struct live_chunk *chunks;
	size_t left;
	char *next;
} live_arena;

LIVE_HIDDEN void *live_allocate(live_arena *arena, size_t size); /* zeroed, aligned to 16; NULL */
LIVE_HIDDEN char *live_copy(live_arena *arena, const char *text, size_t length);
LIVE_HIDDEN void live_free(live_arena *arena);

/* -- points ---------------------------------------------------------------------------------------------------- */

/* Handlers of a point: made once, never changed, shared by all points that have the same. */
typedef struct live_action {
	usdt_live_handler *handler;
	usdt_live_leaver *leaver;
	void *data;
} live_action;

typedef struct live_actions {
	const struct live_actions *next; /* of all that were ever made */
	uint32_t count;
	uint32_t vectors; /* a handler may use vector registers */
	uint32_t leaves;  /* one of them waits for the return */
	uint32_t nests;   /* they may be called where a signal has interrupted one of the same thread */
	uint32_t counted; /* they count hits themselves */
	live_action action[8];
} live_actions;

/* The first three fields are known to the machines' assembly. */
typedef struct live_point {
	uint32_t armed;                /* 0 count only, 1 call handlers, that keep vector registers, 3 call any handler */
	uint32_t cell;                 /* of each thread's cells, in bytes; 0: hits are added to `count`, with a lock */
	uintptr_t resume;              /* where the hit thread goes on */
	const live_actions *actions;
	const live_actions *own;       /* the preloaded library's, instead of what rules say */
	const struct live_program *program; /* of the preloaded library */
	uint64_t *count;               /* live_count() is what was hit */
	usdt_live_point shown;         /* what the user sees */
	uint16_t *semaphore;
	struct live_module *module;
	uintptr_t trampoline;          /* 0 until there is one */
	uintptr_t landing;             /* x86-64, Thumb: where the site's own bytes can jump to */
	uintptr_t called;              /* x86: what the trampoline calls */
	uint8_t form;                  /* of the machine's own */
	uint8_t state;                 /* LIVE_OFF … */
	uint8_t wanted;                /* by the rules, as the preloaded library tells it */
	uint8_t segment;
	uint8_t original[8];           /* bytes of the point, as they were found */
	uint8_t padding, landing_pad, nops, first_nop; /* of entries: bytes */
	uint8_t failed;                /* in the run that is going on */
	uint32_t key;                  /* live_key() of its name */
	uint32_t same;                 /* 1 + the next point of the module's in the same chain of `chains`, or 0 */
	uint32_t number;               /* the preloaded library's: 1 + its place in the file of counts; 0 before that is asked for */
	uint8_t role;                  /* likewise: what it means for calls within */
} live_point;

enum { LIVE_OFF, LIVE_ON };

/* What is not as it should be. */
LIVE_HIDDEN void live_refuse(live_point *point, const char *reason, const char *detail);

typedef struct live_segment {
	uintptr_t start, end;
	int protection;
} live_segment;

/* A loaded file. */
typedef struct live_module {
	struct live_module *next;
	live_arena arena;
	const char *path;
	uintptr_t bias;                /* what is added to the file's addresses */
	const ElfW(Phdr) *headers;
	unsigned header_count;
	live_segment code[8];
	unsigned code_count;
	live_point *points;            /* an array; probes first */
	uint32_t point_count, probe_count;
	uint32_t *chains, chain_mask;  /* 1 + the first point with such a key, or 0; NULL until it is asked for */
	uint32_t identity;             /* of its memory, to know it again */
	uint8_t seen, prepared, from_memory;
	char *region;                  /* trampolines, then counts */
	size_t region_size, room;      /* of which the machine's own */
	char *counts;                  /* of its points, 64 bytes each, and where that is in the shared file */
	uint64_t counts_offset;
	uint32_t cells;                /* the first of its points', or 0 */
	struct live_mapping {
		void *at;
		size_t size;
	} *mirrors;
	unsigned mirror_count;
	const char *trouble;           /* why it could not be read */
} live_module;

LIVE_HIDDEN extern live_module *live_modules;
LIVE_HIDDEN extern const char *const live_no_reach;

/* -- notes.c, entries.c: reading a file ------------------------------------------------------------------------- */

typedef struct live_file {
	const unsigned char *data;
	size_t size;
	const ElfW(Shdr) *sections;
	unsigned section_count;
	const char *names;
	size_t names_size;
} live_file;

LIVE_HIDDEN const ElfW(Shdr) *live_section(const live_file *file, const char *name, const ElfW(Shdr) *after);
LIVE_HIDDEN const unsigned char *live_content(const live_file *file, const ElfW(Shdr) *section);
/* The segment that [at, at + size) lies in, of at least these rights, or NULL. */
LIVE_HIDDEN const ElfW(Phdr) *live_segment_of(const live_module *module, uintptr_t at, size_t size, unsigned flags);
/* Whether a semaphore may be counted there: two bytes of the module's own data that can be written. */
LIVE_HIDDEN int live_may_count(const live_module *module, uintptr_t at);
/* Append points to a list in `arena`-less scratch memory; return 0 or an error. */
typedef struct live_list {
	live_point *points;
	size_t count, room;
} live_list;
LIVE_HIDDEN live_point *live_append(live_list *list);
LIVE_HIDDEN int live_read_probes(live_module *module, const live_file *file, live_list *list);
LIVE_HIDDEN int live_read_functions(live_module *module, const live_file *file, live_list *list);
/* Where no branch may go; whether an address is such a place; where decoding may begin for one, or 0; and a branch that leads so far. */
typedef struct live_guard live_guard;
LIVE_HIDDEN int live_is_guarded(const live_guard *guard, uintptr_t address);
LIVE_HIDDEN uintptr_t live_function_of(const live_guard *guard, uintptr_t address);
LIVE_HIDDEN void live_branch(const live_guard *guard, uintptr_t at, intptr_t distance);
LIVE_HIDDEN int live_is_code(const live_module *module, uintptr_t address); /* 1 + the segment's number, or 0 */
LIVE_HIDDEN size_t live_code_left(const live_module *module, unsigned segment, uintptr_t address); /* bytes that may be read there */

/* -- modules.c -------------------------------------------------------------------------------------------------- */

LIVE_HIDDEN int live_scan(int (*try_lock)(void)); /* 1 if something changed; -1, and nothing done, without the lock */
LIVE_HIDDEN void live_watch_linker(void);
LIVE_HIDDEN void live_on_change(void (*heard)(void)); /* live.c: called after a library came or went */
LIVE_HIDDEN void live_linker_changed(void); /* live.c: called by the dynamic linker's hook */

/* -- live.c ----------------------------------------------------------------------------------------------------- */

LIVE_HIDDEN int live_has_glibc(void); /* the C library that the process has */
LIVE_HIDDEN uint32_t live_key(const char *name); /* rules.c: a number that names share seldom; not 0 */
LIVE_HIDDEN int live_at_fork(void (*before)(void), void (*after)(void), void (*child)(void));

/* -- frames.c: for the preloaded library, which adds up calls ------------------------------------------------------------ */

/* Whether a call is passed over, without a frame; NULL: none is. */
typedef int live_decliner(live_point *point, const uintptr_t *registers, const uintptr_t *slot);
LIVE_HIDDEN extern live_decliner *live_declines;
/* A flag of rules: their handlers count hits themselves, where trampolines leave that to what they call. */
enum { LIVE_COUNTED = 1 << 8 };

/* -- text.c ----------------------------------------------------------------------------------------------------- */

/* One store into code: `size` bytes at `at`, if the first `expected` of them are what `old` says. */
typedef struct live_store {
	uintptr_t at;
	uint8_t size;
	uint8_t expected; /* bytes to compare */
	uint8_t by_page;  /* not a store at all: the page is exchanged for a copy that has these bytes, and those of others in it */
	uint8_t old[8];
	uint8_t bytes[8];
} live_store;

LIVE_HIDDEN void *live_map_near(uintptr_t low, uintptr_t high, size_t size, intptr_t reach);
LIVE_HIDDEN int live_make_executable(void *at, size_t size);
LIVE_HIDDEN void live_share(int fd);
LIVE_HIDDEN int live_is_shared(void);
LIVE_HIDDEN void *live_map_counts(void *at, size_t size, uint64_t *offset);
LIVE_HIDDEN int live_run(live_module *module, live_point **points, size_t count, int on); /* how many took it */
LIVE_HIDDEN int live_stands(const live_point *point); /* 1, 0 somebody else, -1 nobody */
LIVE_HIDDEN void live_barrier(void);
LIVE_HIDDEN size_t live_page(void);
LIVE_HIDDEN int live_write_code(uintptr_t at, const void *bytes, size_t size);

/* -- pages.c ---------------------------------------------------------------------------------------------------- */

/* A mapping of a file. While code is switched, pages of one and the same are exchanged, so the list of mappings is read once. */
typedef struct live_mapped {
	uintptr_t start, end; /* 0: not looked for yet, or no file */
	int64_t offset;       /* of `start` in the file */
	int fd;               /* -1: nobody's, or of a file that is another one by now */
} live_mapped;

LIVE_HIDDEN int live_exchange_page(uintptr_t at, const void *bytes, size_t size, int protection);
LIVE_HIDDEN int live_exchange_page_of(live_mapped *file, live_store *stores, size_t count, int protection);
LIVE_HIDDEN void live_forget_mapped(live_mapped *file);

/* -- cells.c ---------------------------------------------------------------------------------------------------- */

#if LIVE_CELLS
LIVE_HIDDEN extern __thread char *live_cells __attribute__((tls_model("initial-exec")));
LIVE_HIDDEN LIVE_PLAIN char *live_new_cells(void);
LIVE_HIDDEN void live_give_cells(void); /* to this thread, before it hits anything */
LIVE_HIDDEN uint32_t live_take_cells(uint32_t count); /* the first of `count`; 0 */
LIVE_HIDDEN void live_return_cells(uint32_t start, uint32_t count);
LIVE_HIDDEN uint64_t live_sum_cells(uint32_t cell);
LIVE_HIDDEN void live_cells_forked(void);
LIVE_HIDDEN const char *live_why_locked(void);
#else
/* clang-format off */
static inline void live_give_cells(void) { }
static inline uint32_t live_take_cells(uint32_t count) { return count ? 0 : 0; }
static inline void live_return_cells(uint32_t start, uint32_t count) { (void)start; (void)count; }
static inline uint64_t live_sum_cells(uint32_t cell) { return cell ? 0 : 0; }
static inline void live_cells_forked(void) { }
static inline const char *live_why_locked(void) { return "this machine's memory isn't added to in one instruction"; }
/* clang-format on */
#endif

/* What a point has been hit. */
static inline uint64_t live_count(const live_point *point)
{
	return LIVE_COUNT_OF(point->count) + live_sum_cells(point->cell);
}

/* -- mirrors.c -------------------------------------------------------------------------------------------------- */

LIVE_HIDDEN void live_sort_points(live_point **list, live_point **spare, size_t count);
LIVE_HIDDEN int live_map_landings(live_module *module, live_point **list, size_t count, unsigned size);
LIVE_HIDDEN void live_seal_landings(live_module *module, live_point **list, size_t count, unsigned first);

/* -- one file a machine ----------------------------------------------------------------------------------------- */

/* machines.c has what is common to them, and of the functions here those that a machine needn't have. */

/* Read a decimal number, perhaps negative; 0 if there are no digits, or too many: a constant, behind which nothing stands, may have 64 bits,
 * a distance nine digits. */
LIVE_HIDDEN int live_number(const char **at, const char *end, int64_t *value);
/* Read the rest of a place in memory, behind its register: `]`, or `, 8]`, or `, #8]`; 0 if it isn't one. */
LIVE_HIDDEN int live_index(const char **at, const char *end, int64_t *offset);
/* For live_machine_step(), which they are as good as: a store, if `old` (unless NULL) stands there; one into padding, which nothing
 * runs. */
LIVE_HIDDEN int live_store_at(live_store *store, uintptr_t at, const void *old, const void *bytes, unsigned size);
LIVE_HIDDEN int live_store_padding(live_store *store, uintptr_t at, const void *bytes, unsigned size);
/* live_machine_step() where one store of an aligned word does it: `off` and `jump` are the words. */
LIVE_HIDDEN int live_word_step(const live_point *point, uint32_t off, uint32_t jump, int by_page, int on, int step, live_store *store);

/* live_machine_entry() where the NOPs are what is replaced, and hits go on behind them; which nearly every machine has. */
enum { LIVE_ENTRY = 255 }; /* the form */
LIVE_HIDDEN void live_plain_entry(live_point *point);
/* For live_machine_hook(): memory in reach of `at` that jumps to `hook`, whose address is behind `code`. NULL. */
LIVE_HIDDEN unsigned char *live_hook_mirror(uintptr_t at, const void *code, size_t size, void (*hook)(void));

/* A number of so many bits, whose highest is its sign. */
static inline intptr_t live_extend(uint32_t value, unsigned bits)
{
	return (int32_t)(value << (32 - bits)) >> (32 - bits);
}

static inline uint32_t live_word(uintptr_t at)
{
	uint32_t word;

	__builtin_memcpy(&word, (const void *)at, 4);
	return word;
}

/* Say what stands at a probe's site: set form, resume, original, or refuse. */
LIVE_HIDDEN void live_machine_site(live_point *point);
/* Likewise for an entry that entries.c has measured. */
LIVE_HIDDEN void live_machine_entry(live_point *point);
/* Parse one operand of a note; 0 if it isn't known. */
LIVE_HIDDEN int live_machine_operand(const char *text, size_t length, usdt_live_argument_place *place);
/* How many integer arguments of functions travel in registers, at most eight, and then where each is among those that trampolines save. */
LIVE_HIDDEN extern const uint8_t live_parameters[];
LIVE_HIDDEN extern const unsigned live_trampoline_size;
/* How far trampolines may be from code; and where there is no memory, and some points bear more than others, how far then (or 0). */
LIVE_HIDDEN extern const intptr_t live_reach, live_far_reach;
/* Bytes more that a module needs beside its trampolines, and a chance to set `landing` of its points. */
LIVE_HIDDEN size_t live_machine_room(live_module *module);
LIVE_HIDDEN int live_machine_prepare(live_module *module, char *room, size_t size);
LIVE_HIDDEN void live_machine_trampoline(live_point *point, unsigned char *trampoline);
/* Step `step` of switching a point on or off; 0 when there are no more. */
LIVE_HIDDEN int live_machine_step(const live_point *point, int on, int step, live_store *store);
/* A form of NOP or landing pad: at most `most` of the prefixes, `size` bytes of code, and `more` of any value. */
typedef struct live_nop {
	uint8_t prefixes[2], most, code[6], size, more;
} live_nop;
/* Length of the NOP at `at`, of at most `left` bytes; 0 if there is none. The length of a landing pad. */
LIVE_HIDDEN unsigned live_machine_nop(const unsigned char *at, size_t left);
LIVE_HIDDEN unsigned live_machine_pad(const unsigned char *at, size_t left);
/* The padding, in bytes, of a function at `at` that can be patched and stands in no table; 0 if it isn't one. */
LIVE_HIDDEN unsigned live_machine_hotpatch(const unsigned char *at);
/* Tell of the branches in the segment that go where none may. */
LIVE_HIDDEN void live_machine_jumps(const live_segment *code, live_guard *guard);
/* A jump from the dynamic linker's empty hook to `hook`. 0 if it can't be done. */
LIVE_HIDDEN int live_machine_hook(uintptr_t at, void (*hook)(void));
/* Rights of a module's code pages beside those of its program headers, which a change of rights must not take away. */
LIVE_HIDDEN int live_machine_rights(const live_module *module);
/* What the compiler's N,M must have room for, a NOP of a word if a machine's file says nothing else; a reason or NULL. */
LIVE_HIDDEN const char *live_machine_entry_room(const live_point *point, const char **detail);

/* -- frames.c --------------------------------------------------------------------------------------------------- */

LIVE_HIDDEN extern uint64_t live_skipped, live_too_deep, live_abandoned, live_handlers_left;
LIVE_HIDDEN __attribute__((used)) uintptr_t live_enter(live_point *point, uintptr_t *registers, uintptr_t *slot, int vectors);
LIVE_HIDDEN __attribute__((used)) uintptr_t live_leave(uintptr_t thunk, uintptr_t *values, uintptr_t *slot);
LIVE_HIDDEN __attribute__((used)) uintptr_t live_leave_fast(uintptr_t thunk, uintptr_t *values, uintptr_t *slot);
LIVE_HIDDEN __attribute__((used)) void live_hit(live_point *point, uintptr_t *registers, int vectors);

#endif
