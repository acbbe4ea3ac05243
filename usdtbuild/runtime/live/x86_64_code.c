/*
 * x86-64: what trampolines call. At a site every register is alive, and the red zone, which the trampoline has stepped over; at an entry
 * those that hold arguments are; where a function returns, those that hold its result.
 */

#include "internal.h"

#if defined(__x86_64__) && !defined(__ILP32__)

#include <cpuid.h>

#include "frames.h"

/* Width of vector registers in bytes, as far as the system has them switched on, and whether masks have 64 bits. */
LIVE_HIDDEN __attribute__((used)) uint32_t live_x86_width = 16, live_x86_wide_masks;

static __attribute__((constructor(101))) void look_at_processor(void)
{
	unsigned a, b, c, d, low, high;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 27))
		return;
	__asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	if ((low & 6) == 6 && c & 1u << 28)
		live_x86_width = (low & 0xe0) == 0xe0 ? 64 : 32;
	if (__get_cpuid_count(7, 0, &a, &b, &c, &d))
		live_x86_wide_masks = b >> 30 & 1;
}

live_return live_returns[LIVE_FRAME_COUNT] __attribute__((aligned(4096), used));

/* Compilers that can't be told to keep vector registers alone save them at every hit. */
#if (defined(__clang__) && __clang_major__ >= 12) || (!defined(__clang__) && __GNUC__ >= 11)
#define IF_VECTORS "	cmpl $3,(%rdi)\n	je 1f\n"
#define LEAVE_FAST "	call live_leave_fast\n"
#else
#define IF_VECTORS "	jmp 1f\n"
#define LEAVE_FAST "	xor %eax,%eax\n"
#endif

#define XMM_BUT_0 "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"
#define XMM "0," XMM_BUT_0

/*
 * Vector registers are kept whole. Where nothing stood in their upper halves, nothing does afterwards: code for SSE alone is slow
 * otherwise. The x87 stack is left to handlers, which have room on it as long as the interrupted code holds no more than a few values
 * there.
 */

/* Stack of live_x86_probe: rbp, and where hit->registers are, rcx rdx rsi rdi r8 r9 r10 r11, the return address into the trampoline, rax, the red zone. */
__asm__(
	".pushsection .text.live_x86,\"ax\",@progbits\n"
	".balign 16\n"
	LIVE_FUNCTION("live_x86_probe")
	"	.cfi_undefined rip\n"
	"	push %r11\n	push %r10\n	push %r9\n	push %r8\n	push %rdi\n"
	"	push %rsi\n	push %rdx\n	push %rcx\n"
	"	mov 64(%rsp),%rdi\n"
	"	mov 5(%rdi),%rdi\n" /* the trampoline's word 56, from its byte 51 */
	"	mov %rsp,%rsi\n"
	"	push %rbp\n" /* for who looks for the frame; nobody takes it back */
	IF_VECTORS
	"	and $-16,%rsp\n"
	"	push %rsi\n"
	"	sub $8,%rsp\n"
	"	xor %edx,%edx\n"
	"	call live_hit\n"
	"	mov 8(%rsp),%rsp\n"
	"2:	pop %rcx\n	pop %rdx\n	pop %rsi\n	pop %rdi\n"
	"	pop %r8\n	pop %r9\n	pop %r10\n	pop %r11\n"
	"	ret\n"
	"1:	sub $2240,%rsp\n" /* the old stack pointer, whether upper halves are in use, masks, registers */
	"	and $-64,%rsp\n"
	"	mov %rsi,(%rsp)\n"
	"	mov $1,%edx\n"
	"	cmpl $32,live_x86_width(%rip)\n"
	"	je 4f\n"
	"	ja 5f\n"
	"	.irp n," XMM "\n	movups %xmm\\n,128+16*\\n(%rsp)\n	.endr\n"
	"	call live_hit\n"
	"	.irp n," XMM "\n	movups 128+16*\\n(%rsp),%xmm\\n\n	.endr\n"
	"	mov (%rsp),%rsp\n"
	"	jmp 2b\n"

	"4:	.irp n," XMM "\n	vmovups %ymm\\n,128+32*\\n(%rsp)\n	.endr\n"
	"	.irp n," XMM_BUT_0 "\n	vorps %ymm\\n,%ymm0,%ymm0\n	.endr\n"
	"	vextractf128 $1,%ymm0,%xmm0\n"
	"	vptest %xmm0,%xmm0\n"
	"	setnz 8(%rsp)\n"
	"	call live_hit\n"
	"	vzeroupper\n"
	"	cmpb $0,8(%rsp)\n"
	"	je 6f\n"
	"	.irp n," XMM "\n	vmovups 128+32*\\n(%rsp),%ymm\\n\n	.endr\n"
	"	mov (%rsp),%rsp\n"
	"	jmp 2b\n"
	"6:	.irp n," XMM "\n	movups 128+32*\\n(%rsp),%xmm\\n\n	.endr\n"
	"	mov (%rsp),%rsp\n"
	"	jmp 2b\n"

	"5:	.irp n," XMM ",16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n	vmovups %zmm\\n,128+64*\\n(%rsp)\n	.endr\n"
	"	cmpl $0,live_x86_wide_masks(%rip)\n"
	"	je 7f\n"
	"	.irp n,0,1,2,3,4,5,6,7\n	kmovq %k\\n,64+8*\\n(%rsp)\n	.endr\n"
	"	jmp 8f\n"
	"7:	.irp n,0,1,2,3,4,5,6,7\n	kmovw %k\\n,64+8*\\n(%rsp)\n	.endr\n"
	"8:	.irp n," XMM_BUT_0 "\n	vporq %zmm\\n,%zmm0,%zmm0\n	.endr\n"
	"	vptestmq %zmm0,%zmm0,%k1\n"
	"	kmovw %k1,%eax\n"
	"	and $0xfc,%eax\n" /* of eight words those above the lower two */
	"	mov %eax,8(%rsp)\n"
	"	call live_hit\n"
	"	vzeroupper\n"
	"	.irp n,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n	vmovups 128+64*\\n(%rsp),%zmm\\n\n	.endr\n"
	"	cmpl $0,live_x86_wide_masks(%rip)\n"
	"	je 7f\n"
	"	.irp n,0,1,2,3,4,5,6,7\n	kmovq 64+8*\\n(%rsp),%k\\n\n	.endr\n"
	"	jmp 8f\n"
	"7:	.irp n,0,1,2,3,4,5,6,7\n	kmovw 64+8*\\n(%rsp),%k\\n\n	.endr\n"
	"8:	cmpl $0,8(%rsp)\n"
	"	je 9f\n"
	"	.irp n," XMM "\n	vmovups 128+64*\\n(%rsp),%zmm\\n\n	.endr\n"
	"	mov (%rsp),%rsp\n"
	"	jmp 2b\n"
	"9:	.irp n," XMM "\n	movups 128+64*\\n(%rsp),%xmm\\n\n	.endr\n"
	"	mov (%rsp),%rsp\n"
	"	jmp 2b\n"
	LIVE_END("live_x86_probe")
	".popsection\n");

/* Vector registers that hold arguments or results, 0 to N-1, at 16(%rsp) and on, at the processor's width. */
__asm__(
	".macro live_vectors op, count\n"
	"	cmpl $32,live_x86_width(%rip)\n"
	"	je 732f\n"
	"	ja 764f\n"
	"	.irp n,0,1,2,3,4,5,6,7\n	.if \\n < \\count\n	live_\\op\\()16 \\n\n	.endif\n	.endr\n"
	"	jmp 799f\n"
	"732:	.irp n,0,1,2,3,4,5,6,7\n	.if \\n < \\count\n	live_\\op\\()32 \\n\n	.endif\n	.endr\n"
	"	jmp 799f\n"
	"764:	.irp n,0,1,2,3,4,5,6,7\n	.if \\n < \\count\n	live_\\op\\()64 \\n\n	.endif\n	.endr\n"
	"799:\n"
	".endm\n"
	".macro live_save16 n\n	movups %xmm\\n,16+16*\\n(%rsp)\n.endm\n"
	".macro live_load16 n\n	movups 16+16*\\n(%rsp),%xmm\\n\n.endm\n"
	".macro live_save32 n\n	vmovups %ymm\\n,16+32*\\n(%rsp)\n.endm\n"
	".macro live_load32 n\n	vmovups 16+32*\\n(%rsp),%ymm\\n\n.endm\n"
	".macro live_save64 n\n	vmovups %zmm\\n,16+64*\\n(%rsp)\n.endm\n"
	".macro live_load64 n\n	vmovups 16+64*\\n(%rsp),%zmm\\n\n.endm\n");

/*
 * Called at a function's entry; the stack is rax rcx rdx rsi rdi r8 r9 r10, the return address into the trampoline, the function's own.
 * Returns to the trampoline with r11 where to go on: at the function's body, or, with the function's return address taken off the stack, at
 * a thunk.
 */
__asm__(
	".pushsection .text.live_x86,\"ax\",@progbits\n"
	".balign 16\n"
	LIVE_FUNCTION("live_x86_enter")
	"	.cfi_def_cfa rsp,16\n" /* as if the function's caller had called us */
	"	.cfi_offset rip,-8\n"
	"	push %r10\n	push %r9\n	push %r8\n	push %rdi\n	push %rsi\n	push %rdx\n	push %rcx\n	push %rax\n"
	"	.cfi_adjust_cfa_offset 64\n"
	"	mov 64(%rsp),%rdi\n"
	"	mov 5(%rdi),%rdi\n" /* the trampoline's word 56, from its byte 51 */
	"	lea 72(%rsp),%rdx\n"
	"	mov %rsp,%rsi\n"
	"	.cfi_def_cfa rsi,80\n"
	IF_VECTORS
	"	and $-16,%rsp\n"
	"	push %rsi\n"
	"	push %rsi\n"
	"	.cfi_escape 0x0f,5, 0x77,0, 0x06, 0x23,80\n" /* the CFA is *rsp + 80 */
	"	xor %ecx,%ecx\n"
	"	call live_enter\n"
	"2:	mov (%rsp),%rsp\n"
	"	.cfi_def_cfa rsp,80\n"
	"	test %rax,%rax\n"
	"	jz 3f\n"
	"	mov %rax,%r11\n"
	"	pop %rax\n	pop %rcx\n	pop %rdx\n	pop %rsi\n	pop %rdi\n	pop %r8\n	pop %r9\n	pop %r10\n"
	"	ret $8\n"
	"	.cfi_def_cfa rsp,80\n"
	"3:	mov 64(%rsp),%r11\n"
	"	mov 5(%r11),%r11\n"
	"	mov 8(%r11),%r11\n"
	"	pop %rax\n	pop %rcx\n	pop %rdx\n	pop %rsi\n	pop %rdi\n	pop %r8\n	pop %r9\n	pop %r10\n"
	"	ret\n"
	"	.cfi_def_cfa rsi,80\n"
	"1:	sub $544,%rsp\n"
	"	and $-16,%rsp\n"
	"	mov %rsi,(%rsp)\n"
	"	.cfi_escape 0x0f,5, 0x77,0, 0x06, 0x23,80\n"
	"	live_vectors save,8\n"
	"	mov $1,%ecx\n"
	"	call live_enter\n"
	"	live_vectors load,8\n"
	"	jmp 2b\n"
	LIVE_END("live_x86_enter")

	/* A body returned to thunk k; its address is still there, below the stack pointer. */
	LIVE_LOCAL("live_x86_leave")
	"	.cfi_undefined rip\n"
	"	sub $8,%rsp\n"
	"	push %rdx\n"
	"	push %rax\n"
	"	mov 16(%rsp),%rdi\n"
	"	lea 16(%rsp),%rdx\n"
	"	mov %rsp,%rsi\n"
	"	and $-16,%rsp\n"
	"	push %rsi\n"
	"	push %rsi\n"
	LEAVE_FAST
	"	mov (%rsp),%rsp\n"
	"	test %rax,%rax\n"
	"	jz 1f\n"
	"2:	mov %rax,16(%rsp)\n"
	"	pop %rax\n"
	"	pop %rdx\n"
	"	ret\n"
	"1:	mov 16(%rsp),%rdi\n"
	"	lea 16(%rsp),%rdx\n"
	"	mov %rsp,%rsi\n"
	"	sub $160,%rsp\n"
	"	and $-16,%rsp\n"
	"	mov %rsi,(%rsp)\n"
	"	live_vectors save,2\n"
	"	call live_leave\n"
	"	live_vectors load,2\n"
	"	mov (%rsp),%rsp\n"
	"	jmp 2b\n"
	LIVE_END("live_x86_leave")

	/*
	 * Thunks. The first 16 bytes of a page hold how far the page's return addresses are from it. Unwinders find a thunk's by that: with A
	 * the address in it, at (A & -4096) + *(A & -4096) + (A & 0xff0). A thunk's frame ends where its caller's does, and libgcc tells such
	 * two apart if one is a signal's. What a signal interrupted is looked up by the very address, what called by one less: so that is what
	 * it gets.
	 */
	LIVE_THUNKS(
		"	.cfi_def_cfa rsp,0\n"
		"	.cfi_escape 0x16,16,19, 0x80,0, 0x12, 0x0a,0xf0,0x0f, 0x1a, 0x16, 0x0b,0x00,0xf0, 0x1a, 0x12, 0x06, 0x22, 0x22, 0x06, 0x31, 0x1c\n",
		"	call *live_returns+live_place+8(%rip)\n"
		"	jmp live_x86_leave\n"
		"	.balign 16,0xcc\n")
	".popsection\n");

#endif
