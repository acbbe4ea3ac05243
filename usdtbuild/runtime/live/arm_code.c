/*
 * 32-bit Arm: what trampolines call, and the thunks of frames whose return is waited for.
 */

#include "internal.h"

#if LIVE_ARM

#include <sys/auxv.h>

#include "frames.h"

live_return live_returns[LIVE_FRAME_COUNT];

/* Floating-point registers: 0 none, 1 d0 to d15, 2 also d16 to d31. Code compiled without any may still be called by such that has them. */
LIVE_HIDDEN __attribute__((used)) uint32_t live_arm_floats;

static __attribute__((constructor(101))) void look_at_processor(void)
{
	unsigned long has = getauxval(AT_HWCAP);

	live_arm_floats = has >> 6 & 1 /* HWCAP_VFP */ ? 1 + (has >> 19 & 1) /* HWCAP_VFPD32 */ : 0;
}

/* -- unwinding ---------------------------------------------------------------------------------------------------- */

/*
 * Unwinders of this machine go by tables of their own kind (EHABI), whose entries for thunks and live_arm_enter name this function: it says
 * which frame comes next, after a thunk's the one of the real return address. The unwinder's functions are libgcc's; who has none of them
 * doesn't unwind.
 */
extern int _Unwind_VRS_Get(void *context, int registers, uint32_t number, int kind, void *value) __attribute__((weak));
extern int _Unwind_VRS_Set(void *context, int registers, uint32_t number, int kind, void *value) __attribute__((weak));

LIVE_HIDDEN __attribute__((used)) LIVE_PLAIN int live_arm_personality(int state, void *exception, void *context)
{
	enum { FRAME = 4, STACK = 13, LINK = 14, PC = 15, FAILURE = 9, GO_ON = 8 };
	uint32_t pc, frame, stack, back;

	(void)state;
	(void)exception;
	if (!_Unwind_VRS_Get || !_Unwind_VRS_Set || _Unwind_VRS_Get(context, 0, PC, 0, &pc) || _Unwind_VRS_Get(context, 0, FRAME, 0, &frame))
		return FAILURE;
	if (pc - (uintptr_t)live_thunks <= 16 * LIVE_FRAME_COUNT) {
		back = live_returns[live_frame_of(pc & ~1u)].address;
	} else { /* in live_arm_enter: as if the function's caller had called us */
		const uint32_t *saved = (const uint32_t *)(uintptr_t)frame;

		frame = saved[0];
		back = saved[8];
		stack = (uint32_t)(uintptr_t)(saved + 9);
		if (_Unwind_VRS_Set(context, 0, FRAME, 0, &frame) || _Unwind_VRS_Set(context, 0, STACK, 0, &stack))
			return FAILURE;
	}
	return _Unwind_VRS_Set(context, 0, LINK, 0, &back) || _Unwind_VRS_Set(context, 0, PC, 0, &back) ? FAILURE : GO_ON;
}

/* -- code --------------------------------------------------------------------------------------------------------- */

/*
 * live_arm_save leaves r4 as the stack pointer before, and below it fpscr and the floating-point registers that C code may change: d0 to
 * d7, d16 to d31. These are written as words, since compilers for processors without them don't know them. Both keep r0 and, but for r1 to
 * r3, all else.
 */
#if defined(__thumb__)
#define STATE ".thumb\n"
#else
#define STATE ".arm\n"
#endif
__asm__(
	".macro live_arm_load_floats\n"
	"	ldr r2, 70f\n"
	"69:	add r2, pc, r2\n	ldr r2, [r2]\n"
	"	b 71f\n"
	"70:	.word live_arm_floats-69b-8\n"
	"71:	cmp r2, #0\n"
	".endm\n"
	".macro live_arm_save\n"
	"	mov r4, sp\n"
	"	sub sp, sp, #208\n	bic sp, sp, #7\n"
	"	live_arm_load_floats\n"
	"	beq 72f\n"
	"	mov r1, sp\n"
	"	.inst 0xeef13a10\n	str r3, [r1], #8\n" /* vmrs r3, fpscr */
	"	.inst 0xeca10b10\n"                      /* vstmia r1!, {d0-d7} */
	"	cmp r2, #1\n	beq 72f\n"
	"	.inst 0xece10b20\n" /* vstmia r1!, {d16-d31} */
	"72:\n"
	".endm\n"
	".macro live_arm_load\n"
	"	live_arm_load_floats\n"
	"	beq 72f\n"
	"	mov r1, sp\n"
	"	ldr r3, [r1], #8\n	.inst 0xeee13a10\n" /* vmsr fpscr, r3 */
	"	.inst 0xecb10b10\n"                      /* vldmia r1!, {d0-d7} */
	"	cmp r2, #1\n	beq 72f\n"
	"	.inst 0xecf10b20\n" /* vldmia r1!, {d16-d31} */
	"72:	mov sp, r4\n"
	".endm\n"
	".macro live_arm_unwound\n"
	"	.personality live_arm_personality\n"
	"	.handlerdata\n	.word 0\n"
	"	.section .text.live_arm,\"ax\",%progbits\n"
	"	.fnend\n"
	".endm\n"
	".pushsection .text.live_arm,\"ax\",%progbits\n"
	".syntax unified\n"
	".arm\n"
	".balign 16\n"
	/* A site was hit; r0 is the point, r12 has the flags. The trampoline has saved r0, r1, r2, r3, r12 and lr, in this order. */
	".globl live_arm_hit\n.hidden live_arm_hit\n.type live_arm_hit,%function\n"
	"live_arm_hit:\n"
	"	.fnstart\n"
	"	.cantunwind\n"
	"	push {r4, r12, lr}\n"
	"	live_arm_save\n"
	"	add r1, r4, #12\n"
	"	mov r2, #1\n"
	"	bl live_hit\n"
	"	live_arm_load\n"
	"	pop {r4, r12, pc}\n"
	"	.fnend\n"
	".size live_arm_hit,.-live_arm_hit\n"

	/* A function is entered. As before; the trampoline's lr becomes a thunk if the return is waited for. */
	".globl live_arm_enter\n.hidden live_arm_enter\n.type live_arm_enter,%function\n"
	"live_arm_enter:\n"
	"	.fnstart\n"
	"	push {r4, r12, lr}\n"
	"	live_arm_save\n"
	"	add r1, r4, #12\n"
	"	add r2, r4, #36\n"
	"	mov r3, #1\n"
	"	bl live_enter\n"
	"	cmp r0, #0\n"
	"	strne r0, [r4, #32]\n"
	"	live_arm_load\n"
	"	pop {r4, r12, pc}\n"
	"	live_arm_unwound\n"
	".size live_arm_enter,.-live_arm_enter\n"

	/* A body returned to the thunk that r12 tells. */
	".type live_arm_leave,%function\n"
	"live_arm_leave:\n"
	"	.fnstart\n"
	"	.cantunwind\n"
	"	push {r0, r1, r2, r3, r4, lr}\n"
	"	live_arm_save\n"
	"	mov r0, r12\n"
	"	mov r1, r4\n"
	"	add r2, r4, #24\n"
	"	bl live_leave\n"
	"	str r0, [r4, #20]\n"
	"	live_arm_load\n"
	"	pop {r0, r1, r2, r3, r4, lr}\n"
	"	bx lr\n"
	"	.fnend\n"
	".size live_arm_leave,.-live_arm_leave\n"

	/* Thunks. Return addresses are theirs, so what unwinders look up, two bytes before, is within the table as well. */
	".balign 16\n"
	".globl live_thunks\n.hidden live_thunks\n.type live_thunks,%function\n"
	"live_thunks:\n"
	"	.fnstart\n"
	".rept 4096\n"
	"	sub r12, pc, #8\n"
	"	b live_arm_leave\n"
	"	nop\n	nop\n"
	".endr\n"
	"	live_arm_unwound\n"
	".popsection\n"
	STATE);

#endif
