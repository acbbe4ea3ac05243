/*
 * ppc64le: what trampolines call, and the thunks of frames whose return is waited for.
 */

#include "internal.h"

#if LIVE_PPC64

#include "frames.h"

live_return live_returns[LIVE_FRAME_COUNT] __attribute__((aligned(4096), used));

/*
 * A frame of 1,088 bytes has r3 to r10 at 128, r0, r2, xer, lr and fpscr behind them, and from 240 on the vector and floating-point
 * registers that C code may change: vs0 to vs31 and v0 to v19. A trampoline's frame of 640 bytes above it has r10, r11, r12, cr, lr and
 * ctr, at 128 to 168.
 */
#define VS "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31"
#define V "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19"
#define BACK "0x92,65,0, 0x12, 0x0a,0xf0,0x0f, 0x1a, 0x16, 0x0b,0x00,0xf0, 0x1a, 0x12, 0x06, 0x22, 0x22, 0x06"
__asm__(
	".macro live_ppc64_save\n"
	"	.irp n,3,4,5,6,7,8,9\n	std \\n,104+8*\\n(1)\n	.endr\n"
	"	std 10,184(1)\n"
	"	std 0,192(1)\n	std 2,200(1)\n"
	"	mfxer 10\n	std 10,208(1)\n"
	"	mflr 10\n	std 10,216(1)\n"
	"	addi 10,1,240\n	.irp n," VS "\n	stxvd2x \\n,0,10\n	addi 10,10,16\n	.endr\n"
	"	.irp n," V "\n	stvx \\n,0,10\n	addi 10,10,16\n	.endr\n"
	"	mffs 0\n	stfd 0,224(1)\n"
	".endm\n"
	".macro live_ppc64_load\n"
	"	lfd 0,224(1)\n	mtfsf 255,0\n"
	"	addi 10,1,240\n	.irp n," VS "\n	lxvd2x \\n,0,10\n	addi 10,10,16\n	.endr\n"
	"	.irp n," V "\n	lvx \\n,0,10\n	addi 10,10,16\n	.endr\n"
	"	ld 10,216(1)\n	mtlr 10\n"
	"	ld 10,208(1)\n	mtxer 10\n"
	"	ld 0,192(1)\n	ld 2,200(1)\n"
	"	.irp n,3,4,5,6,7,8,9\n	ld \\n,104+8*\\n(1)\n	.endr\n"
	".endm\n"
	".pushsection .text.live_ppc64,\"ax\",@progbits\n"
	".machine push\n	.machine power8\n"
	".balign 16\n"
	/* A site was hit; r11 is the point, r12 our address. */
	LIVE_FUNCTION("live_ppc64_hit")
	"	.cfi_undefined lr\n"
	"	stdu 1,-1088(1)\n"
	"	ld 10,1216(1)\n" /* the trampoline's 128 */
	"	live_ppc64_save\n"
	"	addis 2,12,.TOC.-live_ppc64_hit@ha\n	addi 2,2,.TOC.-live_ppc64_hit@l\n"
	"	mr 3,11\n"
	"	addi 4,1,128\n"
	"	li 5,1\n"
	"	bl live_hit\n	nop\n"
	"	live_ppc64_load\n"
	"	ld 10,1256(1)\n	mtctr 10\n" /* the trampoline's 168 */
	"	addi 1,1,1088\n"
	"	blr\n"
	LIVE_END("live_ppc64_hit")

	/* A function is entered. As before; the trampoline's lr, at 160, becomes a thunk if the return is waited for. */
	LIVE_FUNCTION("live_ppc64_enter")
	"	.cfi_def_cfa 1,640\n" /* as if the function's caller had called us */
	"	.cfi_offset lr,-480\n"
	"	stdu 1,-1088(1)\n"
	"	.cfi_adjust_cfa_offset 1088\n"
	"	ld 10,1216(1)\n"
	"	live_ppc64_save\n"
	"	addis 2,12,.TOC.-live_ppc64_enter@ha\n	addi 2,2,.TOC.-live_ppc64_enter@l\n"
	"	mr 3,11\n"
	"	addi 4,1,128\n"
	"	addi 5,1,1728\n"
	"	li 6,1\n"
	"	bl live_enter\n	nop\n"
	"	cmpdi 3,0\n"
	"	beq 1f\n"
	"	std 3,1248(1)\n"
	"1:	live_ppc64_load\n"
	"	ld 10,1256(1)\n	mtctr 10\n"
	"	addi 1,1,1088\n"
	"	blr\n"
	LIVE_END("live_ppc64_enter")

	/* A body returned to the thunk that lr tells, four bytes behind it. r2 is what the caller will have to find. */
	LIVE_LOCAL("live_ppc64_leave")
	"	.cfi_undefined lr\n"
	"	mflr 11\n"
	"	stdu 1,-1088(1)\n"
	"	live_ppc64_save\n"
	"	bcl 20,31,.Llive_ppc64_here\n"
	".Llive_ppc64_here:\n"
	"	mflr 12\n"
	"	addis 2,12,.TOC.-.Llive_ppc64_here@ha\n	addi 2,2,.TOC.-.Llive_ppc64_here@l\n"
	"	addi 3,11,-4\n"
	"	addi 4,1,128\n"
	"	addi 5,1,1088\n"
	"	bl live_leave\n	nop\n"
	"	std 3,216(1)\n"
	"	live_ppc64_load\n"
	"	addi 1,1,1088\n"
	"	blr\n"
	LIVE_END("live_ppc64_leave")

	/*
	 * Thunks, and where unwinders find their return addresses: as on aarch64. Bodies return to a thunk's first byte; what unwinders look
	 * up, one before, is within the table, too. r2 is at 24 of the caller's frame if the instruction that is returned to loads it from
	 * there, as libgcc finds out for other frames itself.
	 */
	LIVE_THUNKS(
		"	.cfi_def_cfa 1,0\n"
		"	.cfi_escape 0x16,65,20, " BACK ", 0x34, 0x1c\n"
		"	.cfi_escape 0x16,2,37, " BACK ", 0x94,4, 0x0c,0x18,0x00,0x41,0xe8, 0x29, 0x28,5,0, 0x72,0, 0x2f,3,0, 0x71,24, 0x06\n",
		"	bcl 20,31,.+4\n"
		"	b live_ppc64_leave\n"
		"	nop\n	nop\n")
	".machine pop\n"
	".popsection\n");

#endif
