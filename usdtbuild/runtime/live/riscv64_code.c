/*
 * riscv64: what trampolines call, and the thunks of frames whose return is waited for. There are no functions of C here, so that
 * unwind tables can be asked for where the compiler writes none for C.
 */

#include "internal.h"

#if defined(__riscv) && defined(__LP64__)

#include "frames.h"

live_return live_returns[LIVE_FRAME_COUNT] __attribute__((aligned(4096), used));

/*
 * Registers that a C function may change: a0 to a7, t2 to t6, and of floating point ft0 to ft11, fa0 to fa7, fcsr. Trampolines have saved
 * t0, t1, ra. Vector registers (V) are left to handlers, which must not use them.
 */
__asm__(
	".cfi_sections .eh_frame, .debug_frame\n"
	".macro live_riscv_general op\n"
	"	.irp n,0,1,2,3,4,5,6,7\n	\\op a\\n, 8*\\n(sp)\n	.endr\n"
	"	\\op t2, 64(sp)\n	\\op t4, 80(sp)\n	\\op t5, 88(sp)\n	\\op t6, 96(sp)\n"
	".endm\n"
	".macro live_riscv_floats op\n"
	"	.irp n,0,1,2,3,4,5,6,7\n	\\op ft\\n, 112+8*\\n(sp)\n	\\op fa\\n, 176+8*\\n(sp)\n	.endr\n"
	"	\\op ft8, 240(sp)\n	\\op ft9, 248(sp)\n	\\op ft10, 256(sp)\n	\\op ft11, 264(sp)\n"
	".endm\n"
	".macro live_riscv_save\n	live_riscv_general sd\n	live_riscv_floats fsd\n	frcsr t0\n	sd t0, 104(sp)\n	.endm\n"
	".macro live_riscv_load\n	ld t0, 104(sp)\n	fscsr t0\n	live_riscv_floats fld\n	live_riscv_general ld\n	.endm\n"
	".pushsection .text.live_riscv,\"ax\",@progbits\n"
	".option push\n	.option norvc\n	.option norelax\n"
	".balign 16\n"
	/* A site was hit; t1 is the point. */
	LIVE_FUNCTION("live_riscv_hit")
	"	.cfi_undefined ra\n"
	"	addi sp, sp, -288\n"
	"	live_riscv_save\n"
	"	sd t3, 72(sp)\n"
	"	sd ra, 272(sp)\n"
	"	mv a0, t1\n"
	"	mv a1, sp\n"
	"	li a2, 1\n"
	"	call live_hit\n"
	"	live_riscv_load\n"
	"	ld t3, 72(sp)\n"
	"	ld ra, 272(sp)\n"
	"	addi sp, sp, 288\n"
	"	ret\n"
	LIVE_END("live_riscv_hit")

	/* A function is entered; t1 is the point, the trampoline has saved the function's ra at 0(sp). Returns the thunk in t3, or 0. */
	LIVE_FUNCTION("live_riscv_enter")
	"	.cfi_def_cfa sp, 16\n" /* as if the function's caller had called us */
	"	.cfi_offset ra, -16\n"
	"	addi sp, sp, -288\n"
	"	.cfi_adjust_cfa_offset 288\n"
	"	live_riscv_save\n"
	"	sd ra, 272(sp)\n"
	"	ld t0, 288(sp)\n"
	"	sd t0, 280(sp)\n"
	"	mv a0, t1\n"
	"	mv a1, sp\n"
	"	addi a2, sp, 304\n"
	"	li a3, 1\n"
	"	call live_enter\n"
	"	mv t3, a0\n"
	"	live_riscv_load\n"
	"	ld ra, 272(sp)\n"
	"	addi sp, sp, 288\n"
	"	ret\n"
	LIVE_END("live_riscv_enter")

	/* A body returned to the thunk that t0 tells. */
	LIVE_LOCAL("live_riscv_leave")
	"	.cfi_undefined ra\n"
	"	addi sp, sp, -288\n"
	"	mv t1, t0\n"
	"	live_riscv_save\n"
	"	mv a0, t1\n"
	"	mv a1, sp\n"
	"	addi a2, sp, 288\n"
	"	call live_leave\n"
	"	mv ra, a0\n"
	"	live_riscv_load\n"
	"	addi sp, sp, 288\n"
	"	ret\n"
	LIVE_END("live_riscv_leave")

	/* Thunks, and where unwinders find their return addresses: as on x86-64 and aarch64. */
	LIVE_THUNKS(
		"	.cfi_def_cfa sp, 0\n"
		"	.cfi_escape 0x16,1,19, 0x71,0, 0x12, 0x0a,0xf0,0x0f, 0x1a, 0x16, 0x0b,0x00,0xf0, 0x1a, 0x12, 0x06, 0x22, 0x22, 0x06, 0x32, 0x1c\n",
		"	jalr t1\n"
		"	auipc t0, 0\n"
		"	j live_riscv_leave\n"
		"	.word 0x00000013\n")
	".option pop\n"
	".popsection\n");

#endif
