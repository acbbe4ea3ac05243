/*
 * Frames whose return is waited for, where the machine has thunks for them.
 *
 * Thunk k and the place that holds its frame's return address lie at the same offset of their pages, 16 bytes
 * each, so that unwind tables can say where the return address of a thunk is. The first of each page of 256 is the page's header.
 */

#ifndef USDT_LIVE_FRAMES_H
#define USDT_LIVE_FRAMES_H

#include "internal.h"

/* Whether trampolines leave the counting of hits with handlers to what they call. */
#if defined(__x86_64__)
#define LIVE_HIT_COUNTS 1
#else
#define LIVE_HIT_COUNTS 0
#endif

/*
 * LIVE_THUNK_CALL: what a thunk has up to where the body returns to, in bytes. LIVE_LINK: the machine passes the return address in a
 * register, which entry trampolines save as this one; a frame's `slot` is then only the stack pointer at the entry. Elsewhere the address
 * is in `*slot`.
 */
#if defined(__x86_64__)
#define LIVE_THUNK_CALL 6
#elif defined(__aarch64__) && !defined(__ILP32__)
#define LIVE_THUNK_CALL 8
#define LIVE_LINK 19
#elif defined(__riscv) && defined(__LP64__)
#define LIVE_THUNK_CALL 4
#define LIVE_LINK 35
#elif defined(__s390x__)
#define LIVE_THUNK_CALL 2
#define LIVE_LINK 7
#elif LIVE_PPC64
#define LIVE_THUNK_CALL 0 /* bodies aren't called by thunks */
#define LIVE_LINK 140
#elif LIVE_ARM
#define LIVE_THUNK_CALL 0
#define LIVE_LINK 5
#endif

#if LIVE_MACHINE
#define LIVE_FRAMES 1

#define LIVE_FRAME_PAGES 16
#define LIVE_FRAME_COUNT (LIVE_FRAME_PAGES * 256)
#define LIVE_MOST_FRAMES (LIVE_FRAME_PAGES * 255) /* at a time: the first of each page is its header */

typedef struct live_return {
	uintptr_t address; /* where the frame returns to */
	uintptr_t body;    /* what the thunk calls, where it doesn't get that in a register */
} live_return;

/*
 * The rows of all thunks, for the machine's assembly: before the 255 of a page, which each are `code` of 16 bytes, how far its return
 * addresses are from there. In `code`, live_returns+live_place is its own. `unwinding` are the directives for all.
 */
#define LIVE_THUNKS(unwinding, code) \
	".balign 4096\n" \
	".globl live_thunks\n.hidden live_thunks\n" \
	"live_thunks:\n" \
	"	.cfi_startproc\n	.cfi_signal_frame\n" \
	unwinding \
	".set live_place, 0\n" \
	".rept 16\n" \
	"	.quad live_returns+live_place-.\n" \
	"	.quad 0\n" \
	"	.set live_place, live_place+16\n" \
	"	.rept 255\n" \
	code \
	"	.set live_place, live_place+16\n" \
	"	.endr\n" \
	".endr\n" \
	"	.cfi_endproc\n"

/* A function in assembly; LIVE_LOCAL: that no other file calls. */
#define LIVE_LOCAL(name) ".type " name ",@function\n" name ":\n	.cfi_startproc\n"
#define LIVE_FUNCTION(name) ".globl " name "\n.hidden " name "\n" LIVE_LOCAL(name)
#define LIVE_END(name) "	.cfi_endproc\n.size " name ",.-" name "\n"

LIVE_HIDDEN extern live_return live_returns[LIVE_FRAME_COUNT];
LIVE_HIDDEN extern const char live_thunks[];

/* The address that frame `k` returns to first. */
static inline USDT_LIVE_FAST_HANDLER uintptr_t live_thunk(int32_t k)
{
	return (uintptr_t)live_thunks + 16u * (uint32_t)k + LIVE_THUNK_CALL;
}

/* The address that a function returns to, at its entry. */
static inline USDT_LIVE_FAST_HANDLER uintptr_t live_back(const uintptr_t *registers, const uintptr_t *slot)
{
#if defined(LIVE_LINK)
	(void)slot;
	return registers[LIVE_LINK];
#else
	(void)registers;
	return *slot;
#endif
}

/* Whether the frame that returns to thunk `k` may be alive, as far as its place on the stack tells. */
static inline USDT_LIVE_FAST_HANDLER int live_may_return(const uintptr_t *slot, int32_t k)
{
#if defined(LIVE_LINK)
	(void)slot;
	(void)k;
	return 1;
#else
	return *slot == live_thunk(k);
#endif
}

static inline USDT_LIVE_FAST_HANDLER int32_t live_frame_of(uintptr_t thunk)
{
	return (int32_t)((thunk - (uintptr_t)live_thunks) >> 4);
}

static inline USDT_LIVE_FAST_HANDLER int live_is_thunk(uintptr_t address)
{
	return address - (uintptr_t)live_thunks < 16u * LIVE_FRAME_COUNT;
}

#endif

#endif
