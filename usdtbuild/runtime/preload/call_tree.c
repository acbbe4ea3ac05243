/*
 * The calls of a program as a tree: a node for each way in which a function was reached, with the number of its calls, and their time.
 *
 * The tree is in a file that the reader has mapped, too, in nodes of 64 bytes; node 0 is the root, and its `calls` are the nodes that were
 * taken, its `total` those that there was no room for, its `self` the calls without a frame, whose return isn't seen, and its `most` how many
 * have one at a time; others' `most` is the longest call. The root says how many nodes there may be. Behind them is a histogram for each
 * function, of how long its calls took: CLASSES numbers by `class_of`. All threads share it: children are added at the front of their
 * parent's list by compare-and-exchange, and numbers added to atomically.
 *
 * What a thread has open is in memory of its own. A function that is left by longjmp or an exception doesn't return: what it opened goes when
 * another call stands at its place or above on the stack, or when one of its callers returns, and its time is its callers' then. On stacks of
 * coroutines that are far from each other nothing goes before a caller returns. A call deeper than DEEPEST is counted below the deepest that is
 * open, and has no time: its return isn't seen, because there are fewer frames than that.
 */

#include "call_tree.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "frames.h"

typedef struct node {
	uint32_t point, child, sibling, pad;
	uint64_t calls, total, self; /* nanoseconds */
	uint64_t most;
	uint64_t room, functions; /* the root's only: how many nodes there may be, and histograms */
} node;

typedef struct opened {
	uint32_t node, point;
	uint64_t start, in_children;
	const char *slot;
} opened;

enum { DEEPEST = 4096, NEAR = 1 << 20, CLASSES = 512 };

typedef struct stack {
	uint32_t depth;
	opened open[DEEPEST];
} stack;

static node *nodes;
static uint32_t *histograms;
static uint64_t room;
static __thread stack *mine __attribute__((tls_model("initial-exec")));
static pthread_key_t key;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void add(uint64_t *to, uint64_t what)
{
	__atomic_fetch_add(to, what, __ATOMIC_RELAXED);
}

/* Calls that the runtime had no frame for since the last look. A forked child goes on from its parent's numbers. */
static void add_too_deep(void)
{
	static uint64_t told;
	uint64_t all = __atomic_load_n(&live_too_deep, __ATOMIC_RELAXED), before = __atomic_load_n(&told, __ATOMIC_RELAXED);

	while (all > before)
		if (__atomic_compare_exchange_n(&told, &before, all, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
			add(&nodes[0].self, all - before);
			return;
		}
}

static void free_stack(void *of)
{
	mine = NULL;
	munmap(of, sizeof(stack));
}

/* A forked child has no part in the calls that its parent has open: they are the parent's, and return there. */
static void in_child(void)
{
	if (mine)
		mine->depth = 0;
}

int live_tree_begin(int fd)
{
	struct stat status;

	if (fstat(fd, &status) || (size_t)status.st_size < 2 * sizeof *nodes || pthread_key_create(&key, free_stack)
		|| live_at_fork(NULL, NULL, in_child))
		return 0;
	nodes = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (nodes == MAP_FAILED)
		return 0;
	room = nodes[0].room;
	histograms = (uint32_t *)(void *)(nodes + room);
#ifdef LIVE_FRAMES
	nodes[0].most = LIVE_MOST_FRAMES;
#endif
	return 1;
}

static stack *this_stack(void)
{
	stack *made;

	if (mine)
		return mine;
	made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (made == MAP_FAILED)
		return NULL;
	mine = made;
	pthread_setspecific(key, made);
	return made;
}

/* The node of `point` below `parent`, or 0 if there is no room for it. */
static uint32_t child_of(uint32_t parent, uint32_t point)
{
	uint32_t first = __atomic_load_n(&nodes[parent].child, __ATOMIC_ACQUIRE), at, made = 0;

	for (;;) {
		for (at = first; at; at = nodes[at].sibling)
			if (nodes[at].point == point)
				return at; /* what was made meanwhile stays unused */
		if (!made) {
			uint64_t number = __atomic_add_fetch(&nodes[0].calls, 1, __ATOMIC_RELAXED);

			if (number >= room) {
				add(&nodes[0].total, 1);
				return 0;
			}
			made = (uint32_t)number;
			nodes[made].point = point;
		}
		nodes[made].sibling = first;
		if (__atomic_compare_exchange_n(&nodes[parent].child, &first, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return made;
	}
}

/* The class of a time, as the reader's `measures.class_of` has it: eight for each power of two. */
static unsigned class_of(uint64_t value)
{
	unsigned bits = 64 - (unsigned)__builtin_clzll(value | 1), shift = bits > 4 ? bits - 4 : 0;

	return (shift << 3) + (unsigned)(value >> shift);
}

static void note_time(const opened *o, uint64_t took)
{
	uint64_t *longest = &nodes[o->node].most, before = __atomic_load_n(longest, __ATOMIC_RELAXED);

	while (took > before && !__atomic_compare_exchange_n(longest, &before, took, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	if (o->point < nodes[0].functions)
		__atomic_fetch_add(&histograms[(size_t)o->point * CLASSES + class_of(took)], 1, __ATOMIC_RELAXED);
}

/* Close the topmost open call, which has taken until `when`. */
static void close_one(stack *self, uint64_t when)
{
	const opened *o = &self->open[--self->depth];
	uint64_t took = when - o->start;

	if (!o->node)
		return;
	add(&nodes[o->node].total, took);
	add(&nodes[o->node].self, took > o->in_children ? took - o->in_children : 0);
	note_time(o, took);
	if (self->depth)
		self->open[self->depth - 1].in_children += took;
}

/* Whether the call was entered by a jump from the one that stands at the same place, which still returns. */
static int is_tail_call(const usdt_live_hit *hit)
{
#ifdef LIVE_FRAMES
	return live_back(hit->registers, hit->stack) - (uintptr_t)live_trampolines < (uintptr_t)LIVE_FRAME_COUNT * 16;
#else
	return hit == NULL;
#endif
}

void live_tree_enter(const usdt_live_hit *hit, void *data)
{
	stack *self = this_stack();
	const char *slot = hit->stack;
	opened *o;

	(void)data;
	if (!self)
		return;
	add_too_deep();
	while (self->depth) {
		const char *top = self->open[self->depth - 1].slot;

		if (top > slot || slot - top > NEAR || (top == slot && is_tail_call(hit)))
			break;
		self->depth--; /* left without a return */
	}
	if (self->depth == DEEPEST) {
		uint32_t counted = child_of(self->open[DEEPEST - 1].node, live_point_number(hit->point));

		if (counted)
			add(&nodes[counted].calls, 1);
		return;
	}
	o = &self->open[self->depth];
	o->point = live_point_number(hit->point);
	o->node = child_of(self->depth ? self->open[self->depth - 1].node : 0, o->point);
	o->slot = slot;
	o->in_children = 0;
	if (o->node)
		add(&nodes[o->node].calls, 1);
	self->depth++;
	o->start = now();
}

void live_tree_leave(const usdt_live_return *ret, void *data)
{
	uint64_t when = now();
	uint32_t point = live_point_number(ret->point), at;
	stack *self = mine;

	(void)data;
	if (!self)
		return;
	for (at = self->depth; at && (self->open[at - 1].slot != (const char *)ret->stack || self->open[at - 1].point != point); at--)
		;
	if (!at)
		return; /* entered before, or on another thread */
	self->depth = at;
	close_one(self, when);
	add_too_deep();
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
