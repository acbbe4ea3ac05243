/*
 * aarch64: 64-bit Arm, in phones, servers and small computers. Instructions have four bytes and are aligned to four; code is little-endian.
 * Arguments travel in x0 to x7, results in x0, x1; x30 is the return address; nothing below the stack pointer is in use (AAPCS64, 6.1 and
 * 6.4).
 *
 * Of the instructions that may be replaced by each other while other threads run them, with no more than cache maintenance (Arm ARM
 * B2.2.5), two are NOP and B. So a site, and an entry, is one aligned store: `nop` becomes `b trampoline`, and back. A tail's RET is not
 * among them, nor is that of the dynamic linker's hook: there the page is exchanged (text.c). Whether flags are alive at a site isn't
 * known, so trampolines keep them too.
 *
 * AN ENTRY's NOP stands behind `bti c`, where indirect calls land, and before `paciasp`, which signs x30. So x30 is still as the caller
 * left it when the trampoline runs, and the address of a thunk in its place is signed and checked by the body as any other is. A thunk is
 * reached by `br x17` and begins with `bti c`; the body is reached by a direct branch, from a trampoline whose page isn't guarded.
 */

#include "internal.h"

#if defined(__aarch64__) && !defined(__ILP32__)

#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "frames.h"

const unsigned live_trampoline_size = 128;
const intptr_t live_reach = (intptr_t)120 << 20, live_far_reach = 0;

enum { NOP = 0xd503201f, RET = 0xd65f03c0 };

static uint32_t branch(uintptr_t from, uintptr_t to)
{
	return 0x14000000u | ((uint32_t)((intptr_t)(to - from) >> 2) & 0x03ffffffu);
}

enum { FORM_SITE = 1, FORM_TAIL };

void live_machine_site(live_point *point)
{
	uint32_t word = live_word(point->shown.address);

	memcpy(point->original, (const void *)point->shown.address, 4);
	point->resume = point->shown.address + 4;
	point->form = FORM_SITE;
	if (word == RET)
		point->form = FORM_TAIL;
	else if ((word & 0xfc000000u) == 0x14000000u)
		live_refuse(point, "patched", "a branch stands there already: another patcher's");
	else if (word != NOP && (word & 0xffe0001fu) != 0xd4200000u) /* brk: it may be gone when the point is to be switched on */
		live_refuse(point, "changed", "no NOP stands there");
}

/* What live_arm64_hit saves: x0 to x18 in order; the interrupted stack pointer is as far from there. */
const uint8_t live_parameters[] = {8, 0, 1, 2, 3, 4, 5, 6, 7};
enum { SAVED_BYTES = 704 + 32 };

int live_machine_operand(const char *text, size_t length, usdt_live_argument_place *place)
{
	const char *at = text, *end = text + length;
	int64_t n = 0;

	place->reg = 0;
	if (length >= 2 && (*at == 'x' || *at == 'w')) {
		at++;
		if (*at == '-' || !live_number(&at, end, &n) || at != end)
			return 0;
		place->kind = 0;
		place->reg = (uint8_t)n;
		return n >= 0 && n <= 14;
	}
	if (length >= 4 && (!memcmp(at, "[sp", 3) || !memcmp(at, "[x", 2))) { /* [sp], [sp, 8], [x8, 8] */
		place->kind = at[1] == 's' ? 3 : 1;
		at += 2 + (place->kind == 3);
		if (place->kind == 1 && (*at == '-' || !live_number(&at, end, &n) || n > 14))
			return 0;
		place->reg = (uint8_t)n;
		if (!live_index(&at, end, &place->offset))
			return 0;
		place->offset += place->kind == 3 ? SAVED_BYTES : 0;
		return at == end;
	}
	place->kind = 2;
	return live_number(&at, end, &place->offset) && at == end;
}

int live_machine_step(const live_point *point, int on, int step, live_store *store)
{
	int tail = point->form == FORM_TAIL;

	return live_word_step(point, tail ? RET : NOP, branch(point->shown.address, point->trampoline), tail, on, step, store);
}

extern void live_arm64_hit(void) LIVE_HIDDEN;
extern void live_arm64_enter(void) LIVE_HIDDEN;

/* Sites and entries both count, and call if handlers are wanted. A trampoline's last words are the count's place, the point's, and what is
 * called. */
static const uint32_t common_code[] = {
	0xa9be47f0, /* stp x16, x17, [sp, #-32]! */
	0xa9017bef, /* stp x15, x30, [sp, #16] */
	0x58000250, /* ldr x16, count (80) */
	0xc85f7e11, /* again: ldxr x17, [x16] */
	0x91000631, /* add x17, x17, #1 */
	0xc80f7e11, /* stxr w15, x17, [x16] */
	0x35ffffaf, /* cbnz w15, again */
	0x580001f0, /* ldr x16, point (88) */
	0xb9400211, /* ldr w17, [x16] */
	0x34000071, /* cbz w17, 1f */
	0x580001d1, /* ldr x17, called (96) */
	0xd63f0220, /* blr x17 */
	0xa9417bef, /* 1: ldp x15, x30, [sp, #16] */
};

static const uint32_t site_code[] = {
	0xa8c247f0, /* ldp x16, x17, [sp], #32 */
	0,          /* b resume */
};

/* x16 and x17 are free at a function's entry (AAPCS64, 6.1.1): x17 comes back as the thunk, or 0. */
static const uint32_t entry_code[] = {
	0x910083ff, /* add sp, sp, #32 */
	0xb4000071, /* cbz x17, 2f */
	0x10000050, /* adr x16, 2f */
	0xd61f0220, /* br x17 */
	0,          /* 2: b resume; the thunk calls it, which guards (BTI) allow because no trampoline's page is guarded */
};

enum { COUNT_WORD = 80 };

void live_machine_trampoline(live_point *point, unsigned char *trampoline)
{
	int is_entry = point->form == LIVE_ENTRY;
	size_t size = is_entry ? sizeof entry_code : sizeof site_code, end = sizeof common_code + size - 4;
	uint64_t words[3] = {(uint64_t)point->count, (uint64_t)point, is_entry ? (uint64_t)live_arm64_enter : (uint64_t)live_arm64_hit};
	uint32_t last = point->form == FORM_TAIL ? (uint32_t)RET : branch((uintptr_t)trampoline + end, point->resume);

	memcpy(trampoline, common_code, sizeof common_code);
	memcpy(trampoline + sizeof common_code, is_entry ? entry_code : site_code, size);
	memcpy(trampoline + end, &last, 4);
	memcpy(trampoline + COUNT_WORD, words, sizeof words);
}

/* PROT_BTI, where the file says that its indirect branches may be guarded (AAELF64, "Program Property") and this processor can. */
int live_machine_rights(const live_module *module)
{
	unsigned i;

	if (!(getauxval(AT_HWCAP2) >> 17 & 1)) /* HWCAP2_BTI */
		return 0;
	for (i = 0; i < module->header_count; i++) {
		const ElfW(Phdr) *h = &module->headers[i];
		const uint32_t *note = (const void *)(module->bias + h->p_vaddr), *at, *end;

		if (h->p_type != 0x6474e553 /* PT_GNU_PROPERTY */ || h->p_memsz < 16 || note[1] > h->p_memsz - 16)
			continue;
		/* Type, size, and value, padded to eight bytes. */
		for (at = note + 4, end = at + note[1] / 4; at + 3 <= end && at[1] <= 64; at += 2 + (at[1] + 7) / 8 * 2)
			if (at[0] == 0xc0000000u /* FEATURE_1_AND */)
				return at[2] & 1 ? 0x10 /* PROT_BTI */ : 0;
	}
	return 0;
}

static int rights_at(uintptr_t address)
{
	const live_module *module;

	for (module = live_modules; module; module = module->next)
		if (live_is_code(module, address))
			return live_machine_rights(module);
	return 0;
}

/* An empty function, `ret`, perhaps behind `bti c`. */
int live_machine_hook(uintptr_t at, void (*hook)(void))
{
	static const uint32_t code[] = {0x58000050, 0xd61f0200}; /* ldr x16, 8; br x16 */
	unsigned char *far;
	uint32_t jump;

	at += live_machine_pad((const unsigned char *)at, 4);
	if (live_word(at) != RET)
		return 0;
	far = live_hook_mirror(at, code, sizeof code, hook);
	jump = branch(at, (uintptr_t)far);
	return far && live_exchange_page(at, &jump, 4, PROT_READ | PROT_EXEC | rights_at(at));
}

/* B and BL, B.cond, CBZ and CBNZ, TBZ and TBNZ (Arm ARM C4.1.66). 0: no branch. */
static intptr_t branch_of(uint32_t word)
{
	if ((word & 0x7c000000u) == 0x14000000u)
		return live_extend(word & 0x3ffffff, 26) * 4;
	if ((word & 0xff000000u) == 0x54000000u || (word & 0x7e000000u) == 0x34000000u)
		return live_extend(word >> 5 & 0x7ffff, 19) * 4;
	return (word & 0x7e000000u) == 0x36000000u ? live_extend(word >> 5 & 0x3fff, 14) * 4 : 0;
}

void live_machine_jumps(const live_segment *code, live_guard *guard)
{
	uintptr_t at;

	for (at = (code->start + 3) & ~(uintptr_t)3; at + 4 <= code->end; at += 4) {
		intptr_t distance = branch_of(live_word(at));

		if (distance)
			live_branch(guard, at, distance);
	}
}

/* -- what trampolines call ---------------------------------------------------------------------------------------- */

live_return live_returns[LIVE_FRAME_COUNT] __attribute__((aligned(4096), used));

/* Whether vector registers may be longer than sixteen bytes: those are kept whole then, with the predicates. */
LIVE_HIDDEN __attribute__((used)) uint32_t live_arm64_long_vectors;

static __attribute__((constructor(101))) void look_at_processor(void)
{
	live_arm64_long_vectors = getauxval(AT_HWCAP) >> 22 & 1; /* HWCAP_SVE */
}

#define REGISTERS "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31"
#define PREDICATES "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"

/* Vector registers: at x29 + 176, or where they are long below sp, predicates first. Both leave x16 and x17 alone. */
__asm__(
	".macro live_arm64_save\n"
	"	mrs x9, fpsr\n	str x9, [x29, 136]\n"
	"	adrp x9, live_arm64_long_vectors\n	ldr w9, [x9, :lo12:live_arm64_long_vectors]\n"
	"	cbnz w9, 71f\n"
	"	.irp n," REGISTERS "\n	str q\\n, [x29, 176+16*\\n]\n	.endr\n"
	"	b 72f\n"
	"71:	.arch_extension sve\n"
	"	addvl sp, sp, -16\n	addvl sp, sp, -19\n"
	"	.irp n," PREDICATES "\n	str p\\n, [sp, \\n, mul vl]\n	.endr\n"
	"	.irp n," REGISTERS "\n	str z\\n, [sp, 3+\\n, mul vl]\n	.endr\n"
	"	rdffr p0.b\n	str p0, [sp, 16, mul vl]\n"
	"	.arch_extension nosve\n"
	"72:\n"
	".endm\n"
	".macro live_arm64_load\n"
	"	adrp x9, live_arm64_long_vectors\n	ldr w9, [x9, :lo12:live_arm64_long_vectors]\n"
	"	cbnz w9, 71f\n"
	"	.irp n," REGISTERS "\n	ldr q\\n, [x29, 176+16*\\n]\n	.endr\n"
	"	b 72f\n"
	"71:	.arch_extension sve\n"
	"	ldr p0, [sp, 16, mul vl]\n	wrffr p0.b\n"
	"	.irp n," PREDICATES "\n	ldr p\\n, [sp, \\n, mul vl]\n	.endr\n"
	"	.irp n," REGISTERS "\n	ldr z\\n, [sp, 3+\\n, mul vl]\n	.endr\n"
	"	addvl sp, sp, 16\n	addvl sp, sp, 19\n"
	"	.arch_extension nosve\n"
	"72:	ldr x9, [x29, 136]\n	msr fpsr, x9\n"
	".endm\n"
	".macro live_arm64_general op\n"
	"	\\op x0, x1, [sp, 0]\n	\\op x2, x3, [sp, 16]\n	\\op x4, x5, [sp, 32]\n	\\op x6, x7, [sp, 48]\n"
	"	\\op x8, x9, [sp, 64]\n	\\op x10, x11, [sp, 80]\n	\\op x12, x13, [sp, 96]\n	\\op x14, x18, [sp, 112]\n"
	".endm\n"
	".pushsection .text.live_arm64,\"ax\",@progbits\n"
	".balign 16\n"
	/* A site was hit. x16 is the point; the trampoline has saved x15, x16, x17 and x30. Everything that a C function may change is kept. */
	LIVE_FUNCTION("live_arm64_hit")
	"	.cfi_undefined x30\n"
	"	hint 34\n" /* bti c: it is called through a register */
	"	sub sp, sp, 704\n"
	"	live_arm64_general stp\n"
	"	stp x29, x30, [sp, 144]\n"
	"	mov x29, sp\n"
	"	mrs x0, nzcv\n	str x0, [sp, 128]\n"
	"	live_arm64_save\n"
	"	mov x0, x16\n"
	"	mov x1, x29\n"
	"	mov w2, 1\n"
	"	bl live_hit\n"
	"	live_arm64_load\n"
	"	ldr x0, [sp, 128]\n	msr nzcv, x0\n"
	"	live_arm64_general ldp\n"
	"	ldp x29, x30, [sp, 144]\n"
	"	add sp, sp, 704\n"
	"	ret\n"
	LIVE_END("live_arm64_hit")

	/* A function is entered. As before, but flags are dead; x30 of the function's is the trampoline's [sp, 24], and x17 comes back as the
	 * thunk or 0. */
	LIVE_FUNCTION("live_arm64_enter")
	"	.cfi_def_cfa sp, 32\n" /* as if the function's caller had called us */
	"	.cfi_offset x30, -8\n"
	"	hint 34\n"
	"	sub sp, sp, 704\n"
	"	.cfi_adjust_cfa_offset 704\n"
	"	live_arm64_general stp\n"
	"	ldr x17, [sp, 728]\n"
	"	stp x29, x17, [sp, 144]\n"
	"	str x30, [sp, 160]\n"
	"	mov x29, sp\n"
	"	.cfi_def_cfa x29, 736\n"
	"	.cfi_offset x29, -592\n"
	"	live_arm64_save\n"
	"	mov x0, x16\n"
	"	mov x1, x29\n"
	"	add x2, x29, 736\n"
	"	mov w3, 1\n"
	"	bl live_enter\n"
	"	mov x17, x0\n"
	"	live_arm64_load\n"
	"	live_arm64_general ldp\n"
	"	ldr x29, [sp, 144]\n"
	"	ldr x30, [sp, 160]\n"
	"	add sp, sp, 704\n"
	"	ret\n"
	LIVE_END("live_arm64_enter")

	/* A body returned to the thunk that x16 tells. Its results are kept, and the real return address is gone to as if by the body's own
	 * return. */
	LIVE_LOCAL("live_arm64_leave")
	"	.cfi_undefined x30\n"
	"	sub sp, sp, 704\n"
	"	live_arm64_general stp\n"
	"	str x29, [sp, 144]\n"
	"	mov x29, sp\n"
	"	live_arm64_save\n"
	"	mov x0, x16\n"
	"	mov x1, x29\n"
	"	add x2, x29, 704\n"
	"	bl live_leave\n"
	"	mov x30, x0\n"
	"	live_arm64_load\n"
	"	live_arm64_general ldp\n"
	"	ldr x29, [sp, 144]\n"
	"	add sp, sp, 704\n"
	"	ret\n"
	LIVE_END("live_arm64_leave")

	/*
	 * Thunks: `call` the body, which so returns as predictors and guarded control stacks expect. The first 16 bytes of a page hold how far
	 * the page's return addresses are from it. Unwinders find a thunk's by that: with A the address in it, without a signature in its upper
	 * bits, at (A & -4096) + *(A & -4096) + (A & 0xff0). As on x86-64 the frame is marked as a signal's, and gets the address of the call.
	 */
	LIVE_THUNKS(
		"	.cfi_def_cfa sp, 0\n"
		"	.cfi_escape 0x16,30,25, 0x8e,0, 0x12, 0x0a,0xf0,0x0f, 0x1a, 0x16, 0x0e,0,0xf0,0xff,0xff,0xff,0xff,0,0, 0x1a, 0x12, 0x06, 0x22, 0x22, 0x06, "
		"0x34, 0x1c\n",
		"	hint 34\n" /* bti c */
		"	blr x16\n"
		"	adr x16, .\n"
		"	b live_arm64_leave\n")
	".popsection\n");

#endif
