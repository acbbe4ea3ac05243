/*
 * Filters, and what is added up, evaluated where a hit happens: by programs that the tracer has compiled for each site
 * (tracing/programs.py says from what; each instruction does what the template of its name in machines/x86_64/templates.S does).
 *
 * A program is checked once, and what is run is a copy in memory of this process alone: each jump leads forward, and into no other
 * instruction, so it ends; each operand is one of the site's. Places in the shared tables (tracing/patch/tables.py has their layout) are
 * checked when they are used, because they also follow from what others write there. All is added up by atomic additions, whose order
 * doesn't matter: a signal's handler may hit a probe in between, and forked processes share the memory.
 */

#include "evaluate.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The order is that of programs.py. */
/* clang-format off */
enum {
	END, COUNT, LOAD, COMPARE, COMPARE_CONSTANT, KEEP_FIRST, COMPARE_TWO, JUMP, ORDER, TEXT_BEGINS, JOIN_ABOVE, JOIN_BELOW, KEY_BEGIN,
	KEY_WORD, KEY_TEXT, CELL, KEY_CELL, KEYS, WIDE_CELL, CELL_NUMBER, NUMBERED_CELL, STEP_KEY, NUMBER_KEY, COUNT_CELL, TALLY_CELL,
	CLASS_CELL, MARK, KEYLESS, HOLD_MARK, HELD_MARK, BEGIN_OF_PAIR, END_OF_PAIR, HOLD_TIME, HELD_TIME, MOMENT, HOLD_KEY, HASHED_KEY,
	BEGIN_OF_KEYED_PAIR, END_OF_KEYED_PAIR, COUNT_UNKEYED, MASKED, INSTRUCTIONS
};
/* clang-format on */

/* `jump` is where to go on instead, in bytes from this instruction. */
typedef struct instruction {
	uint8_t what, operand, how, size;
	int32_t jump;
	uint64_t number;
} instruction;

struct live_program {
	uint32_t longest, has_key;
	uintptr_t known, known_size; /* memory that can be read for as long as the site is there */
	uint64_t code[];
};

enum { LESS = 1, EQUAL = 2, GREATER = 4, ANY = 7, SIGNED = 8 };
enum { CELL_SIZE = 64, CELL_COUNT = 8, CELL_SUM = 16, CELL_MOST = 32, CELL_LEAST = 40, MOST_STEPS = 256, NEGATIVE = 4096 };
enum { WIDEST = 256 };
enum { IN_REGISTER = 1, IN_REGISTER_SIGNED }; /* `size` of an instruction that has an operand */
#define GOLDEN 0x9e3779b97f4a7c15u /* 2^64 / golden ratio: neighbours get far from each other */
#define FAILED ((uint64_t)1 << 63)
#define WITHOUT_KEY ((uint64_t)1 << 62)
#define TESTED ((uint64_t)1 << 61)
#define CUT ((uint64_t)1 << 62) /* of a text's length */

static char *tables;
static uint64_t tables_size;
static uint64_t nowhere[CELL_SIZE / 8]; /* what has no place in the file is written here */
static uint32_t *own_process;           /* 0 in a child that hasn't asked yet: the kernel wipes the page */
static __thread struct {
	uint32_t process, thread;
} own __attribute__((tls_model("initial-exec")));

#define PLAIN LIVE_PLAIN USDT_LIVE_FAST_HANDLER
#define KEEP_LOOP __asm__ volatile("" ::: "memory") /* memcpy and memset may use vector registers */

static inline PLAIN uint64_t *at(uint64_t place)
{
	return place <= tables_size - CELL_SIZE && !(place & 7) ? (uint64_t *)(void *)(tables + place) : nowhere;
}

static inline PLAIN uint64_t get(uint64_t place)
{
	return __atomic_load_n(at(place), __ATOMIC_RELAXED);
}

static inline PLAIN uint64_t add(uint64_t place, uint64_t value)
{
	return __atomic_fetch_add(at(place), value, __ATOMIC_RELAXED);
}

static inline PLAIN int exchange(uint64_t place, uint64_t from, uint64_t to)
{
	return __atomic_compare_exchange_n(at(place), &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* -- who and when ------------------------------------------------------------------------------------------------ */

static PLAIN uint32_t process_number(void)
{
	uint32_t number = own_process ? __atomic_load_n(own_process, __ATOMIC_RELAXED) : 0;

	if (!number) {
		number = (uint32_t)syscall(SYS_getpid);
		if (own_process)
			__atomic_store_n(own_process, number, __ATOMIC_RELAXED);
	}
	return number;
}

static PLAIN uint32_t thread_number(void)
{
	uint32_t process = process_number();

	if (own.process != process) {
		own.thread = (uint32_t)syscall(SYS_gettid);
		own.process = process;
	}
	return own.thread;
}

/* As tracing/clock.py reads it. */
static inline PLAIN uint64_t ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t now;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
	return now;
#else
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

/* -- texts --------------------------------------------------------------------------------------------------------- */

/* Whether a page can be read: a system call that looks there first, and then does nothing, for its first argument is wrong. */
static PLAIN int is_readable(const live_program *p, uintptr_t text)
{
	int saved, readable;

	if ((p && text - p->known < p->known_size) || !((text ^ (uintptr_t)&saved) >> 12))
		return 1;
	if (text < 8) /* NULL means something else to the system call */
		return 0;
	saved = errno;
	readable = syscall(SYS_rt_sigprocmask, 99, text & ~(uintptr_t)7, (void *)0, (size_t)8) == 0 || errno != EFAULT;
	errno = saved;
	return readable;
}

/* 1 if the text begins with these bytes, of which the last may be the NUL; -1 if it can't be read. Where it goes on in a page that can't be
 * read it ends. */
static PLAIN int begins(const live_program *p, uintptr_t text, const unsigned char *start, unsigned size)
{
	unsigned i;

	if (!text)
		return 0;
	for (i = 0; i < size || i == 0; i++, text++) {
		if ((i == 0 || !(text & 4095)) && !is_readable(p, text))
			return i == 0 ? -1 : start[i] == 0;
		if (i < size && *(const volatile unsigned char *)text != start[i])
			return 0;
	}
	return 1;
}

PLAIN uint32_t live_copy_text(const live_program *p, unsigned char *to, uintptr_t text, uint32_t most, int *cut)
{
	uint32_t size;

	*cut = 0;
	if (!is_readable(p, text))
		return LIVE_UNREADABLE;
	for (size = 0; size < most; size++, text++) {
		if (size && !(text & 4095) && !is_readable(p, text)) {
			*cut = 1;
			break;
		}
		to[size] = *(const volatile unsigned char *)text;
		if (!to[size])
			break;
	}
	return size;
}

typedef struct key {
	uint32_t used; /* bytes */
	uint64_t words[WIDEST / 8 + 1];
} key;

static inline PLAIN void add_word(key *k, uint64_t word)
{
	if (k->used + 8 <= sizeof k->words) {
		k->words[k->used / 8] = word;
		k->used += 8;
	}
}

/* The text's length (+ CUT if it goes on where nothing can be read) and its bytes, the rest of the last word 0; or -1 and the pointer, if
 * it can't be read. */
static PLAIN void add_text(const live_program *p, key *k, uintptr_t text)
{
	unsigned char *to = (unsigned char *)k->words + k->used + 8;
	uint32_t room = (uint32_t)sizeof k->words - k->used, size;
	int cut;

	if (room < 16)
		return;
	size = live_copy_text(p, to, text, p->longest < room - 8 ? p->longest : room - 8, &cut);
	if (size == LIVE_UNREADABLE) {
		add_word(k, (uint64_t)-1);
		add_word(k, text);
		return;
	}
	add_word(k, cut ? size | CUT : size);
	k->used += (size + 7) & ~7u;
	for (; size & 7; size++) {
		to[size] = 0;
		KEEP_LOOP;
	}
}

/* -- tables -------------------------------------------------------------------------------------------------------- */

/* The cell of a key: a free one gets it, once for good. Behind all cells is that of the key 0, and then one for all keys that find no
 * place. */
static PLAIN uint64_t find(uint64_t table, unsigned bits, uint64_t key)
{
	uint64_t mask = ((uint64_t)1 << bits) - 1, i = key * GOLDEN >> (64 - bits), there;
	unsigned step;

	if (!key)
		return table + CELL_SIZE * (mask + 1);
	for (step = 0; step < MOST_STEPS; step++, i++) {
		uint64_t cell = table + CELL_SIZE * (i & mask);

		there = get(cell);
		if (!there && exchange(cell, 0, key))
			return cell;
		if (there == key || (!there && get(cell) == key))
			return cell;
	}
	return table + CELL_SIZE * (mask + 2);
}

static PLAIN uint64_t hash_of(const key *k)
{
	uint64_t hash = 0;
	unsigned word;

	for (word = 0; word < k->used / 8; word++) {
		hash = (hash ^ k->words[word]) * GOLDEN;
		hash ^= hash >> 32;
	}
	return hash * GOLDEN;
}

/* The same for a key of words, which stand at `keys`. A cell's own word is a hash of them, odd while they are written, and such a cell is
 * passed by. */
static PLAIN uint64_t find_wide(uint64_t table, unsigned bits, uint64_t keys, uint32_t stride, const key *k)
{
	uint64_t mask = ((uint64_t)1 << bits) - 1, hash = hash_of(k), i = hash >> (64 - bits);
	unsigned step, word, used = k->used / 8;

	hash = (hash & ~(uint64_t)1) | 2;
	for (step = 0; step < MOST_STEPS; step++, i++) {
		uint64_t cell = table + CELL_SIZE * (i & mask), words = keys + stride * (i & mask), there = get(cell);

		if (!there && exchange(cell, 0, hash | 1)) {
			for (word = 0; word < used && 8 * word < stride; word++)
				__atomic_store_n(at(words + 8 * word), k->words[word], __ATOMIC_RELAXED);
			__atomic_store_n(at(cell), hash, __ATOMIC_RELEASE);
			return cell;
		}
		there = there ? there : __atomic_load_n(at(cell), __ATOMIC_ACQUIRE);
		for (word = 0; there == hash && word < used && get(words + 8 * word) == k->words[word]; word++)
			;
		if (there == hash && word == used)
			return cell;
	}
	return table + CELL_SIZE * (mask + 2);
}

static inline PLAIN void keep_most(uint64_t place, uint64_t value)
{
	uint64_t *most = at(place), before = __atomic_load_n(most, __ATOMIC_RELAXED);

	while (before < value && !__atomic_compare_exchange_n(most, &before, value, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/* The value is counted behind that, in the cell or in its class: who sees the count sees the rest, and no sum has what is not
 * between the greatest and the least. */
static inline PLAIN void tally(uint64_t cell, uint64_t value, int is_signed)
{
	uint64_t high = is_signed && value >> 63 ? (uint64_t)-1 : 0, turned = value ^ (uint64_t)is_signed << 63;

	keep_most(cell + CELL_MOST, turned);
	keep_most(cell + CELL_LEAST, ~turned);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	high += add(cell + CELL_SUM, value) + value < value;
	if (high)
		add(cell + CELL_SUM + 8, high);
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

/* Classes are 8 for each power of two. */
static inline PLAIN void count_class(uint64_t classes, uint64_t cell, uint64_t value, int is_signed)
{
	unsigned shift;

	if (is_signed && value >> 63) {
		value = -value;
		classes += NEGATIVE;
	}
	if (value >= 8) {
		shift = 60 - (unsigned)__builtin_clzll(value);
		value = (value >> shift) + 8 * shift;
	}
	add(classes + (cell << 7) + 8 * value, 1);
}

static inline PLAIN uint64_t divide(uint64_t value, uint64_t by, int is_signed)
{
	int64_t whole = (int64_t)value, step = (int64_t)by;

	return is_signed ? (uint64_t)(whole / step - (whole % step < 0)) : value / by;
}

/* The bits of a floating-point number as a signed number of the same order, +0 and -0 the same; 0 if it is none. */
static inline PLAIN int order(uint64_t *bits, unsigned size)
{
	uint64_t value = size == 4 ? *bits << 32 : *bits, infinity = size == 4 ? (uint64_t)0xff000000 << 32 : (uint64_t)0xffe0 << 48;

	if (value << 1 > infinity)
		return 0;
	value = value << 1 ? value : 0;
	*bits = value >> 63 ? value ^ ~(uint64_t)0 >> 1 : value;
	if (size == 4)
		*bits = (uint64_t)((int64_t)*bits >> 32);
	return 1;
}

/* -- pairs of hits ------------------------------------------------------------------------------------------------- */

enum {
	PAIRS_BEGIN = 0,
	PAIRS_DEEP = 8,
	PAIRS_MANY = 16,
	PAIRS_KEY = 24,
	PAIRS_REJECTED = 32,
	PAIRS_LEFT = 40,
	STACKS = 64,
	STACKS_BITS = 10,
	STACK_SIZE = 2048,
	BEGINS = 16,
	ROOM = 64, /* for so many begins, each a time, a key, and its number below where it was on the program's stack */
	BEGIN_SIZE = 24,
	BEGIN_KEY = 8,
	BEGIN_NUMBER = 16,
	SEARCH = 64
};

/* Of a probe's hit: where the frame pointer is among the registers, and how far up from there the interrupted stack pointer is. */
#if defined(__x86_64__)
enum { FRAME_POINTER = -1, SAVED_BYTES = 10 * 8 + 128 };
#elif defined(__aarch64__)
enum { FRAME_POINTER = 18, SAVED_BYTES = 704 + 32 };
#else
enum { FRAME_POINTER = 0, SAVED_BYTES = 0 };
#endif

static inline PLAIN uintptr_t frame_of(const instruction *i, const usdt_live_hit *hit)
{
	return (i->how ? hit->registers[FRAME_POINTER] : (uintptr_t)hit->registers + SAVED_BYTES) + (uint32_t)i->jump;
}

/* The thread's stack, or one that nobody ever had; NO_STACK without either. */
#define NO_STACK ((uint64_t)-1)

static PLAIN uint64_t find_stack(uint64_t pairs, uint64_t thread, int idle)
{
	uint64_t first = thread * GOLDEN >> (64 - STACKS_BITS), step;

	for (step = 0; step < SEARCH; step++) {
		uint64_t stack = pairs + STACKS + (uint64_t)STACK_SIZE * ((first + step) & ((1u << STACKS_BITS) - 1)), word = get(stack);

		if (idle ? !(uint32_t)word : !word || word >> 32 == thread >> 32)
			return stack;
	}
	return NO_STACK;
}

/* The youngest of those that wait take the room of older ones. */
static inline PLAIN uint64_t begin_at(uint64_t stack, uint32_t number)
{
	return stack + BEGINS + (uint64_t)BEGIN_SIZE * (number % ROOM);
}

/* A begin is written behind the exchange: a handler of a signal in between that takes its own begins away again leaves it room. Its number
 * is written first: if so many others come in between that they need this room, the number is theirs, and stays. */
static PLAIN void begin_pair(uint64_t pairs, uint64_t key, uint64_t mark, uintptr_t where)
{
	uint64_t thread = (uint64_t)thread_number() << 32, stack, word, begin;
	uint32_t depth;

	do {
		stack = find_stack(pairs, thread, 0);
		if (stack == NO_STACK) /* take one of a thread that has no begin waiting */
			stack = find_stack(pairs, thread, 1);
		if (stack == NO_STACK) {
			add(pairs + PAIRS_MANY, 1);
			return;
		}
		word = get(stack);
		depth = word >> 32 == thread >> 32 ? (uint32_t)word : 0;
		if (word >> 32 != thread >> 32 && (uint32_t)word)
			continue; /* another thread was quicker */
		if (exchange(stack, word, thread + depth + 1))
			break;
	} while (1);
	begin = begin_at(stack, depth);
	__atomic_store_n(at(begin + BEGIN_NUMBER), (uint64_t)where << 32 | depth, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(at(begin + BEGIN_KEY), key, __ATOMIC_RELAXED);
	__atomic_store_n(at(begin), ticks() | mark, __ATOMIC_RELAXED);
}

/* 0 if a begin and an end are no pair. A begin that was tested says itself whether it passes, else the end does; likewise for the key. */
static PLAIN int judge(uint64_t pairs, uint64_t begun, uint64_t begun_key, uint64_t now, uint64_t mark, uint64_t *key, uint64_t *took)
{
	if ((begun & TESTED ? begun : mark) & FAILED)
		return 0;
	if (begun & WITHOUT_KEY && mark & WITHOUT_KEY) {
		add(pairs + PAIRS_KEY, 1);
		return 0;
	}
	*key = begun & WITHOUT_KEY ? *key : begun_key;
	begun &= TESTED - 1;
	*took = now > begun ? now - begun : 0;
	return 1;
}

typedef struct begun {
	uint64_t time, key;
	int32_t above; /* how much further up the program's stack than the end */
} begun;

/* 0 if the begin isn't there any more. */
static inline PLAIN int load_begin(uint64_t stack, uint32_t number, uintptr_t where, begun *b)
{
	uint64_t begin = begin_at(stack, number), numbered;

	b->time = get(begin);
	b->key = get(begin + BEGIN_KEY);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	numbered = get(begin + BEGIN_NUMBER);
	b->above = (int32_t)((uint32_t)(numbered >> 32) - (uint32_t)where);
	return (uint32_t)numbered == number;
}

/* An end at the same place of the program's stack as a begin, in the same function (where it isn't, `where` is odd), means this one, and not
 * younger ones that were further down: an exception, or longjmp, has left the functions where they were, and `left` is how many of them
 * count. Where there is no such begin, begins and ends are in different functions, and it means the youngest, which `b` is; but where the
 * function's own may have been given up, because all that are kept were further down, it means none. */
static PLAIN uint64_t find_begin(uint64_t stack, uint32_t *number, uintptr_t where, begun *b, int *is_there)
{
	uint32_t youngest = *number;
	begun first = *b;
	uint64_t left = 0;
	int is_oldest, is_lost;

	while (b->above < 0) {
		left += (b->time & (FAILED | TESTED)) != (FAILED | TESTED);
		is_oldest = !*number;
		is_lost = !is_oldest && !load_begin(stack, --*number, where, b);
		if (is_oldest || is_lost || b->above > 0) {
			*is_there = !is_lost || where & 1;
			*number = youngest;
			*b = first;
			return 0;
		}
	}
	return left;
}

/* Take a begin; 0 if there is no pair. */
static PLAIN int end_pair(uint64_t pairs, uint64_t *key, uint64_t mark, uintptr_t where, uint64_t *took)
{
	uint64_t now = ticks(), thread = (uint64_t)thread_number() << 32, stack, word, left;
	uint32_t number;
	begun b;
	int is_there;

	do {
		stack = find_stack(pairs, thread, 0);
		word = stack == NO_STACK ? 0 : get(stack);
		if (word >> 32 != thread >> 32 || !(uint32_t)word) {
			add(pairs + (mark & FAILED && mark & TESTED ? PAIRS_REJECTED : PAIRS_BEGIN), 1);
			return 0;
		}
		number = (uint32_t)word - 1;
		is_there = load_begin(stack, number, where, &b);
		left = is_there ? find_begin(stack, &number, where, &b, &is_there) : 0;
	} while (!exchange(stack, word, thread | number));
	if (left)
		add(pairs + PAIRS_LEFT, left);
	if (!is_there) {
		add(pairs + PAIRS_DEEP, 1);
		return 0;
	}
	return judge(pairs, b.time, b.key, now, mark, key, took);
}

/* -- pairs by a key, of any two threads of a process --------------------------------------------------------------- */

enum { BUCKETS_BITS = 8, RING = 64, SLOTS = 40, SLOT_SIZE = 64, SLOT_OWNER = 8, SLOT_KEY = 16, SLOT_BEGUN = 24, SLOT_BY = 32 };

static inline PLAIN uint64_t bucket_of(uint64_t pair_key, uint64_t process)
{
	return (process << 32 ^ pair_key) * GOLDEN >> (64 - BUCKETS_BITS);
}

/* Of the slots of a key's bucket one. */
static inline PLAIN uint64_t slot_of(uint64_t pairs, uint64_t pair_key, uint64_t process, unsigned i)
{
	uint64_t bucket = bucket_of(pair_key, process);

	return pairs + STACKS + SLOT_SIZE * (bucket * RING + (bucket + i) % RING);
}

/* The mask of those of a key's bucket that hold begins, and above that how many there have been. */
static inline PLAIN uint64_t mask_of(uint64_t pairs, uint64_t pair_key, uint64_t process)
{
	uint64_t bucket = bucket_of(pair_key, process);

	return pairs + STACKS + (uint64_t)SLOT_SIZE * (RING << BUCKETS_BITS) + (bucket << 8 | (bucket & 0x30) << 2);
}

/* A begin takes a slot without an owner, writes, and then sets its bit. */
static PLAIN void begin_keyed(uint64_t pairs, uint64_t pair_key, uint64_t key, uint64_t mark)
{
	uint64_t process = process_number(), mask = mask_of(pairs, pair_key, process);
	unsigned i;

	for (i = 0; i < SLOTS; i++) {
		uint64_t slot = slot_of(pairs, pair_key, process, i);

		if (get(slot + SLOT_OWNER) || !exchange(slot + SLOT_OWNER, 0, process))
			continue;
		__atomic_store_n(at(slot + SLOT_KEY), pair_key, __ATOMIC_RELAXED);
		__atomic_store_n(at(slot + SLOT_BY), key, __ATOMIC_RELAXED);
		__atomic_store_n(at(slot + SLOT_BEGUN), ticks() | mark, __ATOMIC_RELAXED);
		__atomic_fetch_add(at(mask), (uint64_t)1 << SLOTS | (uint64_t)1 << i, __ATOMIC_RELEASE);
		return;
	}
	add(pairs + PAIRS_MANY, 1);
}

/* An end takes the bit of the youngest begin with its key, reads, and lets the slot go. Why that is exact is said in
 * machines/x86_64/templates.S. */
static PLAIN int end_keyed(uint64_t pairs, uint64_t pair_key, uint64_t *key, uint64_t mark, uint64_t *took)
{
	uint64_t now = ticks(), process = process_number(), word = mask_of(pairs, pair_key, process);

	for (;;) {
		uint64_t begins = __atomic_load_n(at(word), __ATOMIC_ACQUIRE), left, youngest = 0, slot = 0, bit = 0, begun, by;

		for (left = begins & (((uint64_t)1 << SLOTS) - 1); left; left &= left - 1) {
			uint64_t one = slot_of(pairs, pair_key, process, (unsigned)__builtin_ctzll(left));

			begun = get(one + SLOT_BEGUN) & (TESTED - 1);
			if (get(one + SLOT_KEY) == pair_key && get(one + SLOT_OWNER) == process && begun > youngest) {
				youngest = begun;
				slot = one;
				bit = left & -left;
			}
		}
		if (!bit) {
			__atomic_thread_fence(__ATOMIC_ACQUIRE);
			if ((get(word) ^ begins) >> SLOTS)
				continue;
			add(pairs + (mark & FAILED && mark & TESTED ? PAIRS_REJECTED : PAIRS_BEGIN), 1);
			return 0;
		}
		if (!exchange(word, begins, begins & ~bit))
			continue;
		begun = get(slot + SLOT_BEGUN);
		by = get(slot + SLOT_BY);
		__atomic_store_n(at(slot + SLOT_OWNER), 0, __ATOMIC_RELEASE);
		return judge(pairs, begun, by, now, mark, key, took);
	}
}

/* -- running ------------------------------------------------------------------------------------------------------- */

/* An operand, shifted left. */
static inline PLAIN uint64_t shifted(const instruction *i, const usdt_live_hit *hit)
{
	return i->size ? (uint64_t)hit->registers[i->operand] << i->how : usdt_live_argument(hit, i->operand) << i->how;
}

static inline PLAIN uint64_t loaded(const instruction *i, const usdt_live_hit *hit)
{
	uint64_t value = shifted(i, hit);

	return i->size == IN_REGISTER_SIGNED ? (uint64_t)((int64_t)value >> i->how) : i->size ? value >> i->how : value;
}

static inline PLAIN const instruction *behind(const instruction *i, int jumps)
{
	return (const instruction *)(const void *)((const char *)i + (jumps ? (size_t)i->jump : sizeof *i));
}

static inline PLAIN int jumps_for(const instruction *i, uint64_t left, uint64_t right)
{
	int answer = EQUAL;

	if (left != right)
		answer = (i->how & SIGNED ? (int64_t)left < (int64_t)right : left < right) ? LESS : GREATER;
	return i->how & answer;
}

/* `k` is where keys of several words are made. */
static inline __attribute__((always_inline)) PLAIN int run(
	const live_program *program, const instruction *i, const usdt_live_hit *hit, key *k)
{
	uint64_t value = 0, kept = 0, left = 0, right = 0, cell = 0, keys = 0, mark = 0, held = 0, took = 0, held_time = 0, held_key = 0;
	int jumps, answer;

	for (;; i = behind(i, jumps)) {
		jumps = 0;
		/* clang-format off */
		switch (i->what) {
		case END: return i->how;
		case COUNT: add(i->number, 1); break;
		case LOAD: value = loaded(i, hit); break;
		case COMPARE: left = shifted(i, hit); right = i->number; break;
		case COMPARE_CONSTANT: left = value; right = i->number; break;
		case KEEP_FIRST: kept = value; break;
		case COMPARE_TWO: left = kept; right = value; break;
		case JUMP: jumps = jumps_for(i, left, right); break;
		case ORDER: jumps = !order(&value, i->size); break;
		case TEXT_BEGINS:
			answer = begins(program, (uintptr_t)value, (const unsigned char *)i + i->number, i->size);
			left = (uint64_t)answer;
			right = 1;
			jumps = answer < 0;
			break;
		case JOIN_ABOVE: value = kept << 32 | (uint32_t)value; break;
		case JOIN_BELOW: value = value << 32 | (uint32_t)kept; break;
		case KEY_BEGIN: k->used = 0; add_word(k, i->number); break;
		case KEY_WORD: add_word(k, value); break;
		case KEY_TEXT: add_text(program, k, (uintptr_t)value); break;
		case CELL: cell = i->number; break;
		case KEY_CELL: cell = find(i->number, i->size, value); break;
		case KEYS: keys = i->number; break;
		case WIDE_CELL: cell = find_wide(i->number, i->size, keys, (uint32_t)i->jump, k); break;
		case CELL_NUMBER: value = cell - i->number; break;
		case NUMBERED_CELL: cell = i->number + (value < (uint32_t)i->jump ? value : (uint32_t)i->jump); break;
		case STEP_KEY: value = divide(value, i->number, i->how); break;
		case NUMBER_KEY: value = i->how ? thread_number() : process_number(); break;
		case COUNT_CELL: add(cell + CELL_COUNT, 1); break;
		case TALLY_CELL: tally(cell, value, i->how); break;
		case CLASS_CELL: count_class(i->number, cell, value, i->how); break;
		case MARK: mark = i->number; break;
		case KEYLESS: mark |= WITHOUT_KEY; break;
		case HOLD_MARK: held = mark; break;
		case HELD_MARK: mark = held; break;
		case BEGIN_OF_PAIR: begin_pair(i->number, value, mark, frame_of(i, hit)); break;
		case END_OF_PAIR: left = (uint64_t)end_pair(i->number, &value, mark, frame_of(i, hit), &took); right = 0; break;
		case HOLD_TIME: held_time = took; break;
		case HELD_TIME: value = held_time; break;
		case MOMENT: value = ticks(); break;
		case HOLD_KEY: held_key = value; break;
		case HASHED_KEY: value = hash_of(k); break;
		case BEGIN_OF_KEYED_PAIR: begin_keyed(i->number, held_key, value, mark); break;
		case END_OF_KEYED_PAIR: left = (uint64_t)end_keyed(i->number, held_key, &value, mark, &took); right = 0; break;
		case COUNT_UNKEYED: add(i->number + PAIRS_KEY, 1); break;
		case MASKED: value &= i->number; break;
		default: __builtin_unreachable();
		}
		/* clang-format on */
	}
}

static __attribute__((noinline)) PLAIN int run_without_key(const live_program *program, const instruction *i, const usdt_live_hit *hit)
{
	return run(program, i, hit, NULL);
}

static __attribute__((noinline)) PLAIN int run_with_key(const live_program *program, const instruction *i, const usdt_live_hit *hit)
{
	key k;

	k.used = 0;
	return run(program, i, hit, &k);
}

PLAIN int live_evaluate(const live_program *program, const usdt_live_hit *hit)
{
	const instruction *i = (const instruction *)(const void *)program->code;

	/* Most filters compare operands with constants, and need little room for that. */
	while (i->what == COMPARE)
		i = behind(i + 1, jumps_for(i + 1, shifted(i, hit), i->number));
	if (i->what == COUNT && i[1].what == END)
		add(i++->number, 1);
	if (i->what == END)
		return i->how;
	return program->has_key ? run_with_key(program, i, hit) : run_without_key(program, i, hit);
}

/* -- checking ------------------------------------------------------------------------------------------------------ */

static int may_jump(unsigned what)
{
	return what == JUMP || what == ORDER || what == TEXT_BEGINS;
}

/* Whether an instruction can be run, `left` bytes from the end of the program. */
static int is_right(const instruction *i, size_t left, unsigned arguments)
{
	if (i->what >= INSTRUCTIONS || ((i->what == LOAD || i->what == COMPARE) && i->operand >= arguments))
		return 0;
	if (may_jump(i->what) && (i->jump < (int32_t)sizeof *i || i->jump % 8 || (size_t)i->jump + sizeof *i > left))
		return 0;
	switch (i->what) {
	case COMPARE: return i->how < 64 && left >= 3 * sizeof *i && i[1].what == JUMP && is_right(i + 1, left - sizeof *i, arguments);
	case ORDER: return i->size == 4 || i->size == 8;
	case TEXT_BEGINS: return i->number >= sizeof *i && i->number <= left && i->size <= left - i->number;
	case KEY_CELL:
	case WIDE_CELL: return i->size >= 1 && i->size <= 20;
	case STEP_KEY: return i->number && i->number >> 63 == 0 && i->how <= 1;
	case TALLY_CELL: return i->how <= 1;
	default: return 1;
	}
}

/* The larger segment of the site's module that nobody may write to: whoever unmaps it unmaps the site with it. */
static void know_memory(live_program *program, const live_module *module)
{
	unsigned i;

	for (i = 0; module && i < module->header_count; i++) {
		const ElfW(Phdr) *one = &module->headers[i];

		if (one->p_type == PT_LOAD && (one->p_flags & (PF_R | PF_W)) == PF_R && one->p_filesz > program->known_size) {
			program->known = module->bias + one->p_vaddr;
			program->known_size = one->p_filesz;
		}
	}
}

/* Say where a comparison finds its operand, and compare its bits as the highest ones; or how what is loaded is widened. */
static void prepare(instruction *i, const usdt_live_argument_place *place)
{
	i->size = 0;
	if (i->what == COMPARE)
		i->number <<= i->how;
	else
		i->how = 0;
	if (place->kind != 0 || (place->size != 1 && place->size != 2 && place->size != 4 && place->size != 8))
		return;
	if (i->what == LOAD)
		i->how = (uint8_t)(64 - 8 * place->size);
	i->operand = place->reg;
	i->size = place->is_signed ? IN_REGISTER_SIGNED : IN_REGISTER;
}

const live_program *live_program_of(const live_point *point, const void *code, size_t size, uint32_t longest)
{
	static live_arena forever;
	live_arena scratch = {0};
	live_program *program = live_allocate(&forever, sizeof *program + size);
	unsigned char *reached = live_allocate(&scratch, size / 8 + 1);
	size_t place, right = program && reached && size % 8 == 0;

	if (!right) {
		live_free(&scratch);
		return NULL;
	}
	program->longest = longest;
	know_memory(program, point->module);
	memcpy(program->code, code, size);
	reached[0] = 1;
	for (place = 0; right && place < size; place += 8) {
		instruction *i = (instruction *)(void *)((char *)program->code + place);
		size_t left = size - place;

		if (!reached[place / 8])
			continue;
		right = left >= sizeof *i && !reached[place / 8 + 1] && is_right(i, left, point->shown.argument_count);
		if (right && may_jump(i->what))
			reached[(place + (size_t)i->jump) / 8] = 1;
		if (right && (i->what == COMPARE || i->what == LOAD))
			prepare(i, &point->shown.arguments[i->operand]);
		program->has_key |= i->what == KEY_BEGIN || i->what == KEY_WORD || i->what == KEY_TEXT || i->what == WIDE_CELL
			|| i->what == HASHED_KEY;
		if (right && i->what != END && !(i->what == JUMP && (i->how & ANY) == ANY)) {
			right = left >= 2 * sizeof *i;
			reached[right ? (place + sizeof *i) / 8 : 0] = 1;
		}
	}
	live_free(&scratch);
	return right ? program : NULL;
}

int live_tables_begin(int fd)
{
	struct stat status;
	void *own_page;

	if (fd < 0 || fstat(fd, &status) || status.st_size < 4096)
		return 0;
	tables = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (tables == MAP_FAILED)
		return 0;
	tables_size = (uint64_t)status.st_size;
	own_page = mmap(NULL, live_page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#ifdef MADV_WIPEONFORK
	if (own_page != MAP_FAILED && madvise(own_page, live_page(), MADV_WIPEONFORK) == 0)
		own_process = own_page;
#endif
	return 1;
}
