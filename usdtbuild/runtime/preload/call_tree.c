/*
 * The calls of a program as a tree: a node for each way in which a function was reached, with the number of its calls, and their time.
 *
 * The tree is in a file that the reader has mapped, too, in nodes of 64 bytes; node 0 is the root, and its `calls` are the nodes that were
 * taken, its `total` those that there was no room for, its `self` the calls without a frame, whose return isn't seen, its `most` how many
 * have one at a time; others' `most` is the longest call, and `ended`, modulo 2^32, how many calls have a time. The root says how many
 * nodes there may be, and by `ticks` whether times are those of the processor's clock. Below it each thread has a node of its own, and
 * below that nobody else writes, so nothing there is atomic. When a thread ends, the next one goes on with its node. Behind the nodes is a
 * histogram for each function, of how long its calls took: CLASSES numbers by `class_of`. All threads share it; what two of them add at one
 * moment counts once, which no percentile shows.
 *
 * What a thread has open is in memory of its own. A function that is left by longjmp or an exception doesn't return: what it opened goes
 * when another call stands at its place or above on the stack, or when one of its callers returns, and its time is its callers' then. On
 * stacks of coroutines that are far from each other nothing goes before a caller returns. A call deeper than DEEPEST is counted below the
 * deepest that is open, and has no time: its return isn't seen, because there are fewer frames than that.
 *
 * Calls that aren't wanted are passed over where they are entered (declines()): they get no frame, so their return costs nothing.
 */

#include "call_tree.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>

#include "frames.h"

#ifndef MADV_WIPEONFORK /* Linux 4.14 */
#define MADV_WIPEONFORK 18
#endif
#ifndef PR_GET_TSC
#define PR_GET_TSC 25
#endif

typedef struct node {
	uint32_t point, child, sibling;
	union {
		uint32_t ticks; /* the root's */
		uint32_t ended; /* others' */
	};
	uint64_t calls, total, self; /* times */
	uint64_t most;
	union {
		struct {
			uint64_t room, functions; /* the root's: how many nodes there may be, and histograms */
		};
		uint32_t next[4]; /* others': where a caller's calls are looked up */
	};
} node;

typedef struct opened {
	const live_point *point;
	uint32_t node, role;
	uint64_t start, in_children;
	const char *slot;
} opened;

enum { DEEPEST = 4096, NEAR = 1 << 20, TAKEN = 16, CLASSES = 512 };

typedef struct stack {
	uint32_t depth, below, without; /* open calls, and how many of them have these roles */
	uint32_t root, next, end; /* this thread's node; nodes that it has taken, and not used yet */
	opened open[DEEPEST];
} stack;

static node *nodes;
static uint32_t *histograms;
static uint64_t room, least;
static uint32_t deepest = UINT32_MAX;
static unsigned roles; /* that some function has */
static int with_ticks, waits;
static __thread stack *mine __attribute__((tls_model("initial-exec")));
static pthread_key_t key;

static __attribute__((noinline)) USDT_LIVE_FAST_HANDLER uint64_t kernels_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline USDT_LIVE_FAST_HANDLER uint64_t now(void)
{
#if defined(__x86_64__)
	if (__builtin_expect(with_ticks, 1))
		return __builtin_ia32_rdtsc();
#endif
	return kernels_now();
}

static USDT_LIVE_FAST_HANDLER void add(uint64_t *to, uint64_t what)
{
	__atomic_fetch_add(to, what, __ATOMIC_RELAXED);
}

/* Calls that the runtime had no frame for since the last look. A forked child goes on from its parent's numbers. */
static USDT_LIVE_FAST_HANDLER void add_too_deep(void)
{
	static uint64_t told;
	uint64_t all = __atomic_load_n(&live_too_deep, __ATOMIC_RELAXED), before = __atomic_load_n(&told, __ATOMIC_RELAXED);

	while (all > before)
		if (__atomic_compare_exchange_n(&told, &before, all, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
			add(&nodes[0].self, all - before);
			return;
		}
}

/* -- threads ------------------------------------------------------------------------------------------------------ */

/* Nodes of threads that have ended. Who can't have the lock at once does without. */
static uint32_t left[64];
static unsigned left_count;
static int locked;

static USDT_LIVE_FAST_HANDLER uint32_t exchange_left(uint32_t given)
{
	uint32_t found = 0;

	if (__atomic_exchange_n(&locked, 1, __ATOMIC_ACQUIRE))
		return 0;
	if (!given && left_count)
		found = left[--left_count];
	else if (given && left_count < sizeof left / sizeof *left)
		left[left_count++] = given;
	__atomic_store_n(&locked, 0, __ATOMIC_RELEASE);
	return found;
}

static void free_stack(void *of)
{
	mine = NULL;
	if (((stack *)of)->root)
		exchange_left(((stack *)of)->root);
	munmap(of, sizeof(stack));
}

/* A forked child has no part in the calls that its parent has open, which return there, nor in its nodes. The kernel clears the memory,
 * too. */
static void in_child(void)
{
	left_count = 0;
	locked = 0;
	if (mine)
		mine->depth = mine->below = mine->without = mine->root = mine->next = mine->end = 0;
}

static __attribute__((noinline, cold)) USDT_LIVE_FAST_HANDLER stack *new_stack(void)
{
	int saved = errno;
	stack *made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (made != MAP_FAILED) {
		madvise(made, sizeof *made, MADV_WIPEONFORK);
		mine = made;
		pthread_setspecific(key, made);
	}
	errno = saved;
	return mine;
}

int live_tree_begin(int fd, int ticks, unsigned *flags)
{
	struct stat status;
	int allowed = 0;

	if (fstat(fd, &status) || (size_t)status.st_size < 2 * sizeof *nodes || pthread_key_create(&key, free_stack)
		|| live_at_fork(NULL, NULL, in_child))
		return 0;
	nodes = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (nodes == MAP_FAILED)
		return 0;
	room = nodes[0].room;
	histograms = (uint32_t *)(void *)(nodes + room);
	with_ticks = ticks && !prctl(PR_GET_TSC, &allowed) && allowed == 1;
	nodes[0].ticks = (uint32_t)with_ticks;
	*flags = LIVE_COUNTED | (with_ticks ? USDT_LIVE_FAST : 0);
#ifdef LIVE_FRAMES
	nodes[0].most = LIVE_MOST_FRAMES;
#endif
	return 1;
}

/* -- nodes -------------------------------------------------------------------------------------------------------- */

/* A node for this thread, or 0 if there is no room for it. */
static __attribute__((noinline)) USDT_LIVE_FAST_HANDLER uint32_t new_node(stack *self, uint32_t point)
{
	if (self->next == self->end) {
		uint64_t first = __atomic_fetch_add(&nodes[0].calls, TAKEN, __ATOMIC_RELAXED) + 1;

		if (first + TAKEN > room) {
			add(&nodes[0].total, 1);
			return 0;
		}
		self->next = (uint32_t)first;
		self->end = (uint32_t)first + TAKEN;
	}
	nodes[self->next].point = point;
	return self->next++;
}

static USDT_LIVE_FAST_HANDLER __attribute__((noinline, cold)) uint32_t new_root(stack *self)
{
	uint32_t made = exchange_left(0), first;

	if (!made && (made = new_node(self, UINT32_MAX))) {
		first = __atomic_load_n(&nodes[0].child, __ATOMIC_ACQUIRE);
		do
			nodes[made].sibling = first;
		while (!__atomic_compare_exchange_n(&nodes[0].child, &first, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	}
	return self->root = made;
}

/* The node of `point` below what is open, or 0 if there is no room for it. */
static inline USDT_LIVE_FAST_HANDLER uint32_t node_of(stack *self, live_point *point)
{
	uint32_t parent = self->depth ? self->open[self->depth - 1].node : (self->root ? self->root : new_root(self));
	uint32_t at, number, hash, *link, *list;

	if (!point->number)
		point->number = 1 + live_point_number(&point->shown);
	number = point->number - 1;
	if (!parent) {
		add(&nodes[0].total, 1);
		return 0;
	}
	/* Another way at each step for each two bits of the hash, which differs for each number: sixteen steps at most. */
	for (link = &nodes[parent].child, hash = number * 2654435761u; (at = *link); hash <<= 2) {
		if (nodes[at].point == number)
			return at;
		link = &nodes[at].next[hash >> 30];
	}
	at = new_node(self, number);
	if (at) {
		if (nodes[parent].child) { /* which stays the first in the reader's list */
			list = &nodes[nodes[parent].child].sibling;
			nodes[at].sibling = *list;
			__atomic_store_n(list, at, __ATOMIC_RELEASE);
		}
		__atomic_store_n(link, at, __ATOMIC_RELEASE);
	}
	return at;
}

/* -- calls -------------------------------------------------------------------------------------------------------- */

static inline USDT_LIVE_FAST_HANDLER const opened *pop(stack *self)
{
	const opened *o = &self->open[--self->depth];

	if (__builtin_expect(o->role, 0)) {
		self->below -= o->role & LIVE_TREE_BELOW;
		self->without -= o->role >> 1;
	}
	return o;
}

/* Forget the topmost open call, which was left without a return. What it has called has its time still; so it has lasted, too, if that
 * has. */
static USDT_LIVE_FAST_HANDLER void forget_one(stack *self)
{
	const opened *o = pop(self);

	if (least && o->in_children && o->node)
		nodes[o->node].calls++;
	if (self->depth)
		self->open[self->depth - 1].in_children += o->in_children;
}

/* The class of a time, as the reader's `measures.class_of` has it: eight for each power of two. */
static inline USDT_LIVE_FAST_HANDLER unsigned class_of(uint64_t value)
{
	unsigned bits = 64 - (unsigned)__builtin_clzll(value | 1), shift = bits > 4 ? bits - 4 : 0;

	return (shift << 3) + (unsigned)(value >> shift);
}

static inline USDT_LIVE_FAST_HANDLER void note_time(const opened *o, uint64_t took)
{
	uint32_t number = o->point->number - 1, *class;

	if (took > nodes[o->node].most)
		nodes[o->node].most = took;
	if (number >= nodes[0].functions)
		return;
	class = &histograms[(size_t)number * CLASSES + class_of(took)];
	__atomic_store_n(class, __atomic_load_n(class, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}

/* Close the topmost open call, which has taken until `when`. */
static inline USDT_LIVE_FAST_HANDLER void close_one(stack *self, uint64_t when)
{
	const opened *o = pop(self);
	uint64_t took = when - o->start;

	if (took < least)
		return;
	if (o->node) {
		nodes[o->node].calls += least != 0;
		nodes[o->node].ended++;
		nodes[o->node].total += took;
		nodes[o->node].self += took > o->in_children ? took - o->in_children : 0;
		note_time(o, took);
	}
	if (self->depth)
		self->open[self->depth - 1].in_children += took;
}

/* Whether a call was entered by a jump from the one that stands at the same place, which still returns. */
static inline USDT_LIVE_FAST_HANDLER int is_tail_call(const uintptr_t *registers, const uintptr_t *slot)
{
#ifdef LIVE_FRAMES
	return live_is_thunk(live_back(registers, slot));
#else
	return registers == slot;
#endif
}

/* What this thread has open when something is entered that returns to what stands at `slot`; NULL: there is no memory. */
static inline USDT_LIVE_FAST_HANDLER stack *stack_at(const uintptr_t *registers, const uintptr_t *at)
{
	stack *self = mine ? mine : new_stack();
	const char *slot = (const char *)at;

	while (self && self->depth) {
		const char *top = self->open[self->depth - 1].slot;

		if (__builtin_expect(top > slot, 1) || slot - top > NEAR || (top == slot && is_tail_call(registers, at)))
			break;
		forget_one(self);
	}
	return self;
}

static USDT_LIVE_FAST_HANDLER int declines(live_point *point, const uintptr_t *registers, const uintptr_t *slot)
{
	const stack *self;

	if (point->shown.kind != USDT_LIVE_FUNCTIONS)
		return 0;
	self = stack_at(registers, slot);
	return !self || __atomic_load_n(&waits, __ATOMIC_RELAXED) || self->depth >= deepest || self->without
		|| (roles & LIVE_TREE_BELOW && !self->below && !(point->role & LIVE_TREE_BELOW));
}

void live_tree_enter(const usdt_live_hit *hit, void *data)
{
	live_point *point = (live_point *)(void *)((char *)(uintptr_t)hit->point - offsetof(live_point, shown));
	stack *self = stack_at(hit->registers, hit->stack);
	uint32_t at;
	opened *o;

	(void)data;
	if (!self)
		return;
	at = node_of(self, point);
	if (at && !least)
		nodes[at].calls++;
	if (self->depth == DEEPEST)
		return;
	o = &self->open[self->depth++];
	o->point = point;
	o->node = at;
	if (__builtin_expect((o->role = point->role), 0)) {
		self->below += o->role & LIVE_TREE_BELOW;
		self->without += o->role >> 1;
	}
	o->slot = hit->stack;
	o->in_children = 0;
	o->start = now();
}

void live_tree_leave(const usdt_live_return *ret, void *data)
{
	uint64_t when = now();
	const live_point *point = (const live_point *)(const void *)((const char *)ret->point - offsetof(live_point, shown));
	stack *self = mine;
	uint32_t at;

	(void)data;
	if (!self)
		return;
	for (at = self->depth; at && (self->open[at - 1].slot != (const char *)ret->stack || self->open[at - 1].point != point); at--)
		;
	if (!at)
		return; /* entered before, or on another thread */
	while (self->depth > at)
		forget_one(self);
	close_one(self, when);
	if (!self->depth)
		add_too_deep();
}

void live_tree_switch(const usdt_live_hit *hit, void *data)
{
	(void)hit;
	__atomic_store_n(&waits, data == NULL, __ATOMIC_RELAXED);
	live_declines = declines;
}

void live_tree_waits(void)
{
	waits = 1;
	live_declines = declines;
}

void live_tree_role(unsigned role)
{
	roles |= role;
	live_declines = declines;
}

void live_tree_cut(uint64_t shortest, uint32_t most)
{
	least = shortest ? shortest : least;
	if (most) {
		deepest = most;
		live_declines = declines;
	}
}

/* exit() was called somewhere below main(): what this thread has open ends now. */
static __attribute__((destructor)) void end(void)
{
	uint64_t when = now();

	if (!nodes)
		return;
	while (mine && mine->depth)
		close_one(mine, when);
	add_too_deep();
}
