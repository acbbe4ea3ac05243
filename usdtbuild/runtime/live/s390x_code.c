/*
 * s390x: what trampolines call, and the thunks of frames whose return is waited for.
 */

#include "internal.h"

#if defined(__s390x__)

#include <sys/auxv.h>

#include "frames.h"

live_return live_returns[LIVE_FRAME_COUNT] __attribute__((aligned(4096), used));

/* Whether there are vector registers, of which floating-point ones are a part. */
LIVE_HIDDEN __attribute__((used)) uint32_t live_s390_vectors;

static __attribute__((constructor(101))) void look_at_processor(void)
{
	live_s390_vectors = getauxval(AT_HWCAP) >> 11 & 1; /* HWCAP_S390_VX */
}

/*
 * A frame of 832 bytes: from 160 on r2 to r6, our r14, r0, the function's r14, fpc, f0 to f7; from 304 on the vector registers.
 * Instructions for those are written as bytes, since compilers for older processors don't know them.
 */
__asm__(
	".macro live_s390_save\n"
	"	stmg %r2,%r6,160(%r15)\n"
	"	stfpc 224(%r15)\n"
	"	larl %r3,live_s390_vectors\n	lt %r3,0(%r3)\n	jz 71f\n"
	"	.byte 0xe7,0x0f,0xf1,0x30,0x00,0x3e\n" /* vstm %v0,%v15,304(%r15) */
	"	.byte 0xe7,0x0f,0xf2,0x30,0x0c,0x3e\n" /* vstm %v16,%v31,560(%r15) */
	"	j 72f\n"
	"71:	.irp n,0,1,2,3,4,5,6,7\n	std %f\\n,232+8*\\n(%r15)\n	.endr\n"
	"72:\n"
	".endm\n"
	".macro live_s390_load\n"
	"	larl %r3,live_s390_vectors\n	lt %r3,0(%r3)\n	jz 71f\n"
	"	.byte 0xe7,0x0f,0xf1,0x30,0x00,0x36\n" /* vlm */
	"	.byte 0xe7,0x0f,0xf2,0x30,0x0c,0x36\n"
	"	j 72f\n"
	"71:	.irp n,0,1,2,3,4,5,6,7\n	ld %f\\n,232+8*\\n(%r15)\n	.endr\n"
	"72:	lfpc 224(%r15)\n"
	"	lmg %r2,%r5,160(%r15)\n"
	".endm\n"
	".pushsection .text.live_s390,\"ax\",@progbits\n"
	".balign 16\n"
	/* A site was hit; r1 is the point, r0 must be kept. */
	LIVE_FUNCTION("live_s390_hit")
	"	.cfi_undefined 14\n"
	"	lay %r15,-832(%r15)\n"
	"	live_s390_save\n"
	"	stg %r14,200(%r15)\n"
	"	stg %r0,208(%r15)\n"
	"	lgr %r2,%r1\n"
	"	la %r3,160(%r15)\n"
	"	lghi %r4,1\n"
	"	brasl %r14,live_hit\n"
	"	live_s390_load\n"
	"	lg %r0,208(%r15)\n"
	"	lg %r14,200(%r15)\n"
	"	lay %r15,832(%r15)\n"
	"	br %r14\n"
	LIVE_END("live_s390_hit")

	/* A function is entered; r1 is the point, the trampoline's frame of 192 bytes has its r14 at 176, and gets the thunk, or 0, at 168. */
	LIVE_FUNCTION("live_s390_enter")
	"	.cfi_def_cfa 15,352\n" /* as if the function's caller had called us */
	"	.cfi_offset 14,-176\n"
	"	.cfi_escape 0x14,15,20\n" /* DW_CFA_val_offset: r15 is the CFA - 160 */
	"	lay %r15,-832(%r15)\n"
	"	.cfi_adjust_cfa_offset 832\n"
	"	live_s390_save\n"
	"	stg %r14,200(%r15)\n"
	"	lg %r14,1008(%r15)\n"
	"	stg %r14,216(%r15)\n"
	"	lgr %r2,%r1\n"
	"	la %r3,160(%r15)\n"
	"	la %r4,1024(%r15)\n"
	"	lghi %r5,1\n"
	"	brasl %r14,live_enter\n"
	"	stg %r2,1000(%r15)\n"
	"	live_s390_load\n"
	"	lg %r14,200(%r15)\n"
	"	lay %r15,832(%r15)\n"
	"	br %r14\n"
	LIVE_END("live_s390_enter")

	/* A body returned to the thunk that r1 tells. */
	LIVE_LOCAL("live_s390_leave")
	"	.cfi_undefined 14\n"
	"	lay %r15,-832(%r15)\n"
	"	live_s390_save\n"
	"	lgr %r2,%r1\n"
	"	la %r3,160(%r15)\n"
	"	la %r4,832(%r15)\n"
	"	brasl %r14,live_leave\n"
	"	lgr %r14,%r2\n"
	"	live_s390_load\n"
	"	lay %r15,832(%r15)\n"
	"	br %r14\n"
	LIVE_END("live_s390_leave")

	/* Thunks, and where unwinders find their return addresses: as on x86-64. r15 is as the caller left it. */
	LIVE_THUNKS(
		"	.cfi_def_cfa 15,160\n"
		"	.cfi_escape 0x14,15,20\n" /* DW_CFA_val_offset: r15 is the CFA - 160 */
		"	.cfi_escape 0x16,14,19, 0x7e,0, 0x12, 0x0a,0x0f,0xf0, 0x1a, 0x16, 0x0b,0xf0,0x00, 0x1a, 0x12, 0x06, 0x22, 0x22, 0x06, 0x32, 0x1c\n",
		"	basr %r14,%r14\n"
		"	basr %r1,0\n"
		"	jg live_s390_leave\n"
		"	nopr\n	nopr\n	nopr\n")
	".popsection\n");

#endif
