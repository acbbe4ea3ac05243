/*
 * What trampolines call: handlers at hits, and the frames of functions whose return is waited for.
 *
 * A frame takes one of the thunks that the machine's file has as ordinary code of this library, with unwind tables of its own:
 *
 *     function's trampoline --> live_enter(): the return address goes into frame k, and off the stack
 *                           --> thunk k: `call` the function's body, which finds its stack as it should be
 *     body returns          --> thunk k: live_leave() says where to go on
 *
 * The thunk tells which frame it is, so a coroutine may return on another thread, and an unwinder can find the real return address at a
 * place that follows from the thunk's address. A function that is entered by a jump from another has its frame return to where that one's
 * does, and end it: an unwinder that found a thunk behind a thunk couldn't tell the second from the frame behind it (libgcc: both end at
 * the same place, and are a signal's callers). Frames that longjmp or an exception left are found when their place on the stack is used
 * again.
 *
 * Each thread owns blocks of 8 frames. Only the owner takes frames from a block; whoever ends a frame of another thread's block says so in
 * an atomic mask. A thread that comes back from a deep call keeps a few of its blocks for the next, while there are enough for other
 * threads. A signal handler that interrupts any of this sees `inside` set, and only counts.
 */

#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "frames.h"

uint64_t live_skipped, live_too_deep, live_abandoned, live_handlers_left;
live_decliner *live_declines;

/* A thread's state, in one place: finding it costs as much as using it. */
typedef struct thread {
	uintptr_t inside; /* a handler is being called, or a frame taken or ended: where the hit's registers are on the stack; else 0 */
	int32_t top;     /* the newest frame, or -1 */
	int32_t current; /* the block that frames are taken from, which is this thread's, or -1 */
	int32_t spare[6]; /* blocks of this thread's that are all free */
	uint8_t spares, known;
	uint8_t skip;    /* as many calls more don't look for a frame, because there was none */
	uint32_t takes, next_sweep;
	uintptr_t stack, stack_end;
} thread;

static __thread thread mine __attribute__((tls_model("initial-exec")));

/* What few hits need isn't compiled into what all of them run: it would have them save more registers. */
#define LIVE_RARE __attribute__((noinline, cold))

/* What all of them run has no buffer that a stack protector would look after. */
#ifdef __has_attribute
#if __has_attribute(no_stack_protector)
#define LIVE_BARE __attribute__((no_stack_protector))
#endif
#endif
#ifndef LIVE_BARE
#define LIVE_BARE
#endif

/*
 * `vectors` says that vector registers are saved. A hit that began before a handler that needs that came is the one that doesn't reach it.
 */

/* -- handlers --------------------------------------------------------------------------------------------------- */

/* More than one handler, or one that may change errno, which belongs to the interrupted code. Where errno is stays the same for a
 * thread. */
static LIVE_PLAIN USDT_LIVE_FAST_HANDLER __attribute__((noinline)) void call_all(const live_actions *actions, const usdt_live_hit *hit)
{
	int *number = actions->vectors ? &errno : NULL, saved = number ? *number : 0;
	uint32_t i;

	for (i = 0; i < actions->count; i++)
		if (actions->action[i].handler)
			actions->action[i].handler(hit, actions->action[i].data);
	if (number)
		*number = saved;
}

/* One handler that promised to touch nothing is called at once. */
static inline LIVE_PLAIN USDT_LIVE_FAST_HANDLER void call_handlers(
	live_point *point, const live_actions *actions, uintptr_t *registers, const void *stack)
{
	usdt_live_hit hit;

	hit.point = &point->shown;
	hit.registers = registers;
	hit.stack = stack;
	if (__builtin_expect(actions->count == 1 && !actions->vectors && actions->action[0].handler, 1))
		actions->action[0].handler(&hit, actions->action[0].data);
	else
		call_all(actions, &hit);
}

/* -- counting --------------------------------------------------------------------------------------------------- */

/* In one instruction, in front of which or behind which a signal comes: its handler may count the same. */
static inline LIVE_PLAIN USDT_LIVE_FAST_HANDLER void count_hit(live_point *point)
{
#if LIVE_CELLS
	char *cells = live_cells;

	if (point->cell && (__builtin_expect(cells != NULL, 1) || (cells = live_new_cells()))) {
		__asm__ volatile("incq (%0)" : : "r"(cells + point->cell) : "memory", "cc");
		return;
	}
#endif
	LIVE_ADD_ONE(point->count);
}

/* -- threads ------------------------------------------------------------------------------------------------------ */

/*
 * The bounds of this thread's own stack, from /proc/self/maps without a buffer of libc's: the mapping named [stack], or the one
 * that holds the thread's control block, up to that. None if the thread is running on another stack now.
 */
static LIVE_PLAIN USDT_LIVE_FAST_HANDLER void find_stack(thread *self)
{
	uintptr_t at = (uintptr_t)__builtin_frame_address(0), number[2] = {0, 0}, tls = (uintptr_t)self;
	char text[1024], last = 0;
	ssize_t got;
	int fd, field = 0, i, here = 0;

	self->stack = self->stack_end = 0;
	fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	while ((got = read(fd, text, sizeof text)) > 0)
		for (i = 0; i < got; i++) {
			char c = text[i];

			if (c == '\n') {
				here = number[0] <= at && at < number[1];
				if (here && (last == ']' || (number[0] <= tls && tls < number[1]))) {
					self->stack = number[0];
					self->stack_end = last == ']' ? number[1] : tls;
				}
				number[0] = number[1] = 0;
				field = 0;
			} else if (c == '-' && field == 0) {
				field = 1;
			} else if (c == ' ') {
				field = 2;
			} else if (field < 2) {
				number[field] = number[field] * 16 + (uintptr_t)(c <= '9' ? c - '0' : c - 'a' + 10);
			}
			last = c;
		}
	close(fd);
}

/* A thread's first frame. */
static LIVE_PLAIN USDT_LIVE_FAST_HANDLER LIVE_RARE void know(thread *self)
{
	int saved = errno;

	self->known = 1;
	self->top = self->current = -1;
	find_stack(self);
	errno = saved;
}

/* -- handlers that are left ---------------------------------------------------------------------------------------- */

/*
 * Whether the handler that this thread was in when something is hit at `here` has been left by longjmp: what it hits itself, and what
 * signals hit that interrupt it, is deeper on the thread's own stack. What is on another stack tells nothing.
 */
static LIVE_PLAIN USDT_LIVE_FAST_HANDLER LIVE_RARE int was_left(thread *self, uintptr_t here)
{
	uintptr_t inside = self->inside;
	int saved = errno, left;
	stack_t signals;

	if (here < inside)
		return 0;
	if (!self->known)
		know(self);
	else if (inside < self->stack)
		find_stack(self); /* it has grown */
	left = inside >= self->stack && here < self->stack_end && sigaltstack(NULL, &signals) == 0 && !(signals.ss_flags & SS_ONSTACK);
	errno = saved;
	if (left) {
		self->inside = 0;
		LIVE_ADD_ONE(&live_handlers_left);
	}
	return left;
}

static inline LIVE_PLAIN USDT_LIVE_FAST_HANDLER int is_inside(thread *self, const void *here)
{
	return __builtin_expect(self->inside != 0, 0) && !was_left(self, (uintptr_t)here);
}

/* -- probes ----------------------------------------------------------------------------------------------------- */

LIVE_PLAIN USDT_LIVE_FAST_HANDLER void live_hit(live_point *point, uintptr_t *registers, int vectors)
{
	const live_actions *actions = __atomic_load_n(&point->actions, __ATOMIC_ACQUIRE);
	uintptr_t outer;

	if (LIVE_HIT_COUNTS && !(actions && actions->counted))
		count_hit(point);
	if (!actions)
		return; /* it has just gone off */
	if ((!actions->nests && is_inside(&mine, registers)) || (actions->vectors && !vectors)) {
		LIVE_ADD_ONE(&live_skipped);
		return;
	}
	outer = actions->nests ? mine.inside : 0;
	mine.inside = (uintptr_t)registers;
	__asm__ volatile("" ::: "memory");
	call_handlers(point, actions, registers, NULL);
	__asm__ volatile("" ::: "memory");
	mine.inside = outer;
}

#ifdef LIVE_FRAMES

/* -- frames ----------------------------------------------------------------------------------------------------- */

enum { BLOCK = 8, BLOCKS = LIVE_FRAME_COUNT / BLOCK, SPARES = 6, SKIP = 255 };

/*
 * A frame is in the chain of the thread that entered it (CHAINED) until that thread takes it out. Another thread that ends it, because a
 * coroutine moved, leaves it there (ENDED). What a thread leaves behind that wasn't on its own stack may still return (ORPHAN).
 */
enum { CHAINED = 1, ENDED, ORPHAN };

typedef struct frame {
	live_point *point;
	const live_actions *actions;
	uintptr_t *slot; /* where the return address was, and the thunk's is; with LIVE_LINK the stack pointer at the entry */
	int32_t below;   /* the thread's frame before this one, or -1 */
	int32_t jumped;  /* the frame of who has jumped to this function, which ends with this one, or -1 */
	uint32_t state;
} frame;

typedef struct block {
	void *owner;         /* the thread, by the address of its `mine` */
	uint64_t given_back; /* by other threads */
	uint64_t free;       /* only the owner's */
	uint64_t used;       /* whether `free` is set */
} block;

static frame frames[LIVE_FRAME_COUNT];
static block blocks[BLOCKS];
static uint32_t owned; /* blocks that have an owner */

static pthread_key_t key;
static int have_key;

/* All frames of a block; the first of a page of thunks is its header. */
static inline USDT_LIVE_FAST_HANDLER uint64_t all_of(int32_t i)
{
	return (((uint64_t)1 << BLOCK) - 1) ^ (i % (256 / BLOCK) ? 0 : 1);
}

static LIVE_PLAIN USDT_LIVE_FAST_HANDLER void release(block *b)
{
	__atomic_store_n(&b->owner, NULL, __ATOMIC_RELEASE);
	__atomic_fetch_sub(&owned, 1, __ATOMIC_RELAXED);
}

/* A thread that comes back from a deep recursion doesn't keep all that it took, and nothing where blocks are scarce. */
static inline LIVE_PLAIN USDT_LIVE_FAST_HANDLER void give_back(thread *self, int32_t k)
{
	int32_t i = (int32_t)((uint32_t)k / BLOCK), before = self->current;
	block *b = &blocks[i];

	if (b->owner != self) {
		__atomic_fetch_or(&b->given_back, (uint64_t)1 << ((uint32_t)k % BLOCK), __ATOMIC_RELEASE);
		return;
	}
	b->free |= (uint64_t)1 << ((uint32_t)k % BLOCK);
	self->skip = 0;
	if (before == i)
		return;
	self->current = i;
	if (before < 0 || blocks[before].owner != self || blocks[before].free != all_of(before))
		return;
	if (__builtin_expect(__atomic_load_n(&owned, __ATOMIC_RELAXED) < BLOCKS / 2, 1)) {
		if (self->spares < SPARES) {
			self->spare[self->spares++] = before;
			return;
		}
	} else {
		while (self->spares)
			release(&blocks[self->spare[--self->spares]]);
	}
	release(&blocks[before]);
}

/* A thread ends: frames on its stack are free again, and its blocks anybody's. */
static void thread_ends(void *data)
{
	thread *self = data;
	int32_t k, next;
	int i;

	for (k = self->top; k >= 0; k = next) {
		uint32_t state = CHAINED;
		int own = (uintptr_t)frames[k].slot >= self->stack && (uintptr_t)frames[k].slot < self->stack_end;

		next = frames[k].below;
		if (own || !__atomic_compare_exchange_n(&frames[k].state, &state, ORPHAN, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			give_back(self, k);
	}
	self->top = self->current = -1;
	self->spares = 0;
	for (i = 0; i < BLOCKS; i++)
		if (blocks[i].owner == self)
			release(&blocks[i]);
}

static __attribute__((constructor)) void make_key(void)
{
	have_key = pthread_key_create(&key, thread_ends) == 0;
}

/*
 * Take dead frames off the chain, seen from a call whose return address `back` stands at `slot`. Dead is what another thread has ended;
 * what stood at this same place, unless `back` is its thunk (a tail call: the caller's frame still returns); and what is deeper on the
 * thread's own stack, where its thunk's address isn't any more. Only that stack is read: memory there, once used, stays mapped. Where the
 * address isn't on the stack (LIVE_LINK), what is deeper waits for sweep().
 */
static LIVE_PLAIN USDT_LIVE_FAST_HANDLER LIVE_RARE void bury(thread *self, const uintptr_t *slot, uintptr_t back)
{
	int32_t k;

	while ((k = self->top) >= 0) {
		const frame *f = &frames[k];

		if (__atomic_load_n(&f->state, __ATOMIC_ACQUIRE) != ENDED) {
			if (f->slot > slot || back == live_thunk(k))
				return;
			if (f->slot < slot && ((uintptr_t)f->slot < self->stack || (uintptr_t)slot >= self->stack_end || live_may_return(f->slot, k)))
				return;
			LIVE_ADD_ONE(&live_abandoned);
		}
		self->top = f->below;
		give_back(self, k);
	}
}

/*
 * Take all dead frames off the chain. Of frames on a thread's own stack, one that was entered earlier and is deeper than another is dead:
 * at the other's entry nothing deeper was alive. So the chain is read from the newest, which is the call at `slot` that returns to `back`.
 * Frames of a signal stack, which may lie within the thread's own, are left out. Reading the chain costs as much as it is long, so the next
 * time is when it may be twice as long.
 */
static LIVE_PLAIN USDT_LIVE_FAST_HANDLER void sweep(thread *self, const uintptr_t *slot, uintptr_t back)
{
	int32_t *from = &self->top, k;
	uint32_t alive = 0;
	uintptr_t highest = 0;
	stack_t signals;

	if (sigaltstack(NULL, &signals) || signals.ss_flags & SS_ONSTACK)
		return;
	if ((uintptr_t)slot >= self->stack && (uintptr_t)slot < self->stack_end)
		highest = (uintptr_t)slot;
	while ((k = *from) >= 0) {
		const frame *f = &frames[k];
		uintptr_t at = (uintptr_t)f->slot;
		int own = at >= self->stack && at < self->stack_end
			&& (signals.ss_flags & SS_DISABLE || at - (uintptr_t)signals.ss_sp >= signals.ss_size);
		int dead = __atomic_load_n(&f->state, __ATOMIC_ACQUIRE) == ENDED;

		if (!dead && own && (at < highest || (at == highest && back != live_thunk(k)))) {
			dead = 1;
			LIVE_ADD_ONE(&live_abandoned);
		}
		if (dead) {
			*from = f->below;
			give_back(self, k);
			continue;
		}
		if (own) {
			highest = at;
			back = f->jumped >= 0 ? live_thunk(f->jumped) : live_returns[k].address;
		}
		alive++;
		from = &frames[k].below;
	}
	self->next_sweep = self->takes + BLOCK + alive / BLOCK;
}

static inline LIVE_PLAIN USDT_LIVE_FAST_HANDLER int32_t first_of(thread *self, int32_t i)
{
	unsigned bit = (unsigned)__builtin_ctzll(blocks[i].free);

	blocks[i].free &= blocks[i].free - 1;
	self->current = i;
	return i * BLOCK + (int)bit;
}

/* A free frame in another block of this thread's, or in a new one. -1: there is none. */
static LIVE_PLAIN USDT_LIVE_FAST_HANDLER int32_t find_free(thread *self)
{
	int32_t start = self->current, i, count;

	if (start >= 0 && blocks[start].free)
		return first_of(self, start);
	if (self->spares)
		return first_of(self, self->spare[--self->spares]);
	for (count = 0; count < BLOCKS; count++) {
		block *b = &blocks[i = (start + 1 + count) % BLOCKS];
		void *nobody = NULL;

		if (!b->owner && __atomic_compare_exchange_n(&b->owner, &nobody, self, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
			__atomic_fetch_add(&owned, 1, __ATOMIC_RELAXED);
			if (!b->used) {
				b->used = 1;
				b->free = all_of(i);
			}
			if (have_key)
				pthread_setspecific(key, self);
		}
		if (b->owner != self)
			continue;
		b->free |= __atomic_exchange_n(&b->given_back, 0, __ATOMIC_ACQUIRE);
		if (b->free)
			return first_of(self, i);
	}
	return -1;
}

/* The slow way to a free frame. -1: there is none, and the next calls needn't look, which takes as long as there are frames. */
static LIVE_PLAIN USDT_LIVE_FAST_HANDLER LIVE_RARE int32_t take(thread *self, const uintptr_t *slot, uintptr_t back)
{
	int saved = errno, swept = 0;
	int32_t k;

	if (self->skip) {
		self->skip--;
		return -1;
	}
	if ((int32_t)(self->takes++ - self->next_sweep) >= 0) {
		sweep(self, slot, back);
		swept = 1;
	}
	k = find_free(self);
	if (k < 0 && !swept) {
		sweep(self, slot, back);
		k = find_free(self);
	}
	if (k < 0)
		self->skip = SKIP;
	errno = saved;
	return k;
}

/* A frame for the call whose return address is in `registers` or at `slot`, or -1. */
static inline LIVE_PLAIN USDT_LIVE_FAST_HANDLER int32_t add_frame(
	thread *self, live_point *point, const live_actions *actions, const uintptr_t *registers, uintptr_t *slot)
{
	uintptr_t back = live_back(registers, slot);
	uint64_t free;
	int32_t k;

	if (__builtin_expect(!self->known, 0))
		know(self);
	if (self->top >= 0 && frames[self->top].slot <= slot)
		bury(self, slot, back);
	k = self->current;
	if (__builtin_expect(k >= 0 && (free = blocks[k].free), 1)) {
		blocks[k].free = free & (free - 1);
		k = k * BLOCK + __builtin_ctzll(free);
	} else if ((k = take(self, slot, back)) < 0) {
		LIVE_ADD_ONE(&live_too_deep);
		return k;
	}
	frames[k].point = point;
	frames[k].actions = actions;
	frames[k].slot = slot;
	frames[k].below = self->top;
	frames[k].jumped = live_is_thunk(back) ? live_frame_of(back) : -1;
	frames[k].state = CHAINED;
	live_returns[k].address = frames[k].jumped < 0 ? back : live_returns[frames[k].jumped].address;
	live_returns[k].body = point->resume;
	self->top = k;
	return k;
}

/* Returns where the trampoline goes on: a thunk, with the return address taken off the stack, or 0. */
LIVE_PLAIN LIVE_BARE USDT_LIVE_FAST_HANDLER uintptr_t live_enter(live_point *point, uintptr_t *registers, uintptr_t *slot, int vectors)
{
	const live_actions *actions = __atomic_load_n(&point->actions, __ATOMIC_ACQUIRE);
	thread *self = &mine;
	uintptr_t outer;
	int32_t k = -1;

	if (LIVE_HIT_COUNTS && !(actions && actions->counted))
		count_hit(point);
	if (!actions)
		return 0;
	if ((!actions->nests && is_inside(self, slot)) || (actions->vectors && !vectors)) {
		LIVE_ADD_ONE(&live_skipped);
		return 0;
	}
	outer = actions->nests ? self->inside : 0;
	self->inside = (uintptr_t)slot;
	__asm__ volatile("" ::: "memory");
	if (__builtin_expect(live_declines != NULL, 0) && live_declines(point, registers, slot)) {
		__asm__ volatile("" ::: "memory");
		self->inside = outer;
		return 0;
	}
	if (actions->leaves)
		k = add_frame(self, point, actions, registers, slot);
	call_handlers(point, actions, registers, slot);
	__asm__ volatile("" ::: "memory");
	self->inside = outer;
	return k >= 0 ? live_thunk(k) - LIVE_THUNK_CALL : 0;
}

/* A frame that isn't this thread's newest, or whose block isn't the one that the thread takes from. */
static LIVE_PLAIN USDT_LIVE_FAST_HANDLER LIVE_RARE void end_frame(thread *self, int32_t k)
{
	uint32_t state = CHAINED;
	int32_t *from;

	if (self->top == k) {
		self->top = frames[k].below;
		give_back(self, k);
	} else if (blocks[(uint32_t)k / BLOCK].owner == self && frames[k].state == CHAINED) {
		for (from = &self->top; *from >= 0 && *from != k; from = &frames[*from].below)
			;
		if (*from == k)
			*from = frames[k].below;
		give_back(self, k);
	} else if (!__atomic_compare_exchange_n(&frames[k].state, &state, ENDED, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		give_back(self, k);
	}
}

/* More than one handler, or one that may change errno. */
static LIVE_PLAIN USDT_LIVE_FAST_HANDLER __attribute__((noinline)) void call_leavers(
	const live_actions *actions, const usdt_live_return *ret)
{
	int *number = actions->vectors ? &errno : NULL, saved = number ? *number : 0;
	uint32_t i;

	for (i = 0; i < actions->count; i++)
		if (actions->action[i].leaver)
			actions->action[i].leaver(ret, actions->action[i].data);
	if (number)
		*number = saved;
}

/* Call the leavers of a frame, and end it. Returns the frame of who has jumped there, or -1. */
static inline LIVE_PLAIN USDT_LIVE_FAST_HANDLER int32_t leave_one(thread *self, uint32_t k, usdt_live_return *ret, int skipped)
{
	const live_actions *actions = frames[k].actions;
	int32_t jumped = frames[k].jumped;

	if (__builtin_expect(skipped, 0)) {
		LIVE_ADD_ONE(&live_skipped);
	} else {
		ret->point = &frames[k].point->shown;
		if (__builtin_expect(actions->count == 1 && !actions->vectors && actions->action[0].leaver, 1))
			actions->action[0].leaver(ret, actions->action[0].data);
		else
			call_leavers(actions, ret);
	}
	if (__builtin_expect((uint32_t)self->top == k && k / BLOCK == (uint32_t)self->current, 1)) {
		self->top = frames[k].below;
		blocks[k / BLOCK].free |= (uint64_t)1 << (k % BLOCK);
	} else {
		end_frame(self, (int32_t)k);
	}
	return jumped;
}

/* `thunk` is the address that a body returned to. Returns the real one. */
LIVE_PLAIN LIVE_BARE USDT_LIVE_FAST_HANDLER uintptr_t live_leave(uintptr_t thunk, uintptr_t *values, uintptr_t *slot)
{
	int32_t k = live_frame_of(thunk);
	thread *self = &mine;
	uintptr_t was_inside = is_inside(self, slot) ? self->inside : 0;
	uintptr_t back = live_returns[k].address; /* before the frame is anybody's */
	usdt_live_return ret;

	self->inside = (uintptr_t)slot; /* until all have ended: of who has jumped, nothing on the stack says that it hasn't */
	__asm__ volatile("" ::: "memory");
	if (__builtin_expect(!self->known, 0))
		know(self); /* a coroutine that was entered on another thread */
	ret.value = values[0];
	ret.second = values[1];
	ret.stack = slot;
	do
		k = leave_one(self, (uint32_t)k, &ret, was_inside != 0);
	while (__builtin_expect(k >= 0, 0));
	__asm__ volatile("" ::: "memory");
	self->inside = was_inside;
	return back;
}

/* Whether the handlers of what ends use vector registers. */
LIVE_HIDDEN __attribute__((used)) LIVE_PLAIN USDT_LIVE_FAST_HANDLER uint32_t live_leave_vectors(uintptr_t thunk)
{
	int32_t k = live_frame_of(thunk);
	uint32_t vectors = frames[k].actions->vectors;

	while (__builtin_expect((k = frames[k].jumped) >= 0, 0))
		vectors |= frames[k].actions->vectors;
	return vectors;
}

#if defined(__x86_64__)
/* The same as `live_leave`, but 0, with nothing done, where handlers need vector registers saved. */
LIVE_PLAIN LIVE_BARE USDT_LIVE_FAST_HANDLER uintptr_t live_leave_fast(uintptr_t thunk, uintptr_t *values, uintptr_t *slot)
{
	return live_leave_vectors(thunk) ? 0 : live_leave(thunk, values, slot);
}
#endif

#endif
