/*
 * aarch64: 64-bit Arm, in phones, servers and small computers. Instructions have four bytes and are aligned to four; code is little-endian. Arguments
 * travel in x0 to x7, results in x0, x1; x30 is the return address; nothing below the stack pointer is in use (AAPCS64, 6.1 and 6.4).
 *
 * Of the instructions that may be replaced by each other while other threads run them, with no more than cache maintenance (Arm ARM B2.2.5),
 * two are NOP and B. So a site, and an entry, is one aligned store: `nop` becomes `b stub`, and back. A tail's RET is not among
 * them: refused. Whether flags are alive at a site isn't known, so stubs keep them too.
 */

#include "internal.h"

#if defined(__aarch64__) && !defined(__ILP32__)

#include <string.h>

const unsigned live_stub_size = 128;
const intptr_t live_reach = (intptr_t)120 << 20;
const int live_has_leave = 0;

enum { NOP = 0xd503201f, RET = 0xd65f03c0 };

static uint32_t word_at(uintptr_t at)
{
	uint32_t word;

	memcpy(&word, (const void *)at, 4);
	return word;
}

static uint32_t branch(uintptr_t from, uintptr_t to)
{
	return 0x14000000u | ((uint32_t)((intptr_t)(to - from) >> 2) & 0x03ffffffu);
}

void live_machine_site(live_point *point)
{
	uint32_t word = word_at(point->shown.address);

	memcpy(point->original, (const void *)point->shown.address, 4);
	point->resume = point->shown.address + 4;
	point->form = 1;
	if (word == RET)
		live_refuse(point, "tail", "a return can't be replaced while other threads run it");
	else if ((word & 0xfc000000u) == 0x14000000u)
		live_refuse(point, "patched", "a branch stands there already: another patcher's");
	else if (word != NOP && (word & 0xffe0001fu) != 0xd4200000u) /* brk: it may be gone when the point is to be switched on */
		live_refuse(point, "changed", "no NOP stands there");
}

unsigned live_machine_nop(const unsigned char *at, size_t left)
{
	return left >= 4 && word_at((uintptr_t)at) == NOP ? 4 : 0;
}

unsigned live_machine_pad(const unsigned char *at, size_t left)
{
	uint32_t word = left >= 4 ? word_at((uintptr_t)at) : 0;

	return (word & 0xffffff3fu) == 0xd503241fu ? 4 : 0; /* bti, bti c, bti j, bti jc */
}

const char *live_machine_entry_room(const live_point *point, const char **detail)
{
	if (point->nops >= 4)
		return NULL;
	*detail = "a patch needs one NOP at the entry";
	return "too-small";
}

void live_machine_entry(live_point *point)
{
	point->form = 1;
	point->resume = point->shown.address + point->nops;
	memcpy(point->original, (const void *)point->shown.address, 4);
}

/* What live_arm64_hit saves: x0 to x18 in order; the interrupted stack pointer is as far from there. */
enum { SAVED_BYTES = 704 + 32 };

static int number(const char **at, const char *end)
{
	int value = 0, sign = 1;

	if (*at < end && **at == '-') {
		sign = -1;
		++*at;
	}
	while (*at < end && **at >= '0' && **at <= '9' && value < 100000000)
		value = value * 10 + *(*at)++ - '0';
	return sign * value;
}

int live_machine_operand(const char *text, size_t length, usdt_live_argument_place *place)
{
	const char *at = text, *end = text + length;
	int n;

	if (length >= 2 && (*at == 'x' || *at == 'w') && at[1] >= '0' && at[1] <= '9') {
		at++;
		n = number(&at, end);
		place->kind = 0;
		place->reg = (uint8_t)n;
		return at == end && n <= 14;
	}
	if (length >= 4 && !memcmp(at, "[sp", 3)) { /* [sp] and [sp, 8] */
		at += 3;
		while (at < end && (*at == ',' || *at == ' ' || *at == '#'))
			at++;
		place->kind = 3;
		place->offset = number(&at, end) + SAVED_BYTES;
		return at + 1 == end && *at == ']';
	}
	place->kind = 2;
	place->offset = number(&at, end);
	return length && at == end;
}

int live_machine_parameter(unsigned index, usdt_live_argument_place *place)
{
	place->kind = 0;
	place->reg = (uint8_t)index;
	return index < 8;
}

size_t live_machine_room(live_module *module)
{
	(void)module;
	return 0;
}

int live_machine_prepare(live_module *module, char *room, size_t size)
{
	(void)module;
	(void)room;
	(void)size;
	return 0;
}

int live_machine_step(const live_point *point, int on, int step, live_store *store)
{
	uint32_t jump = branch(point->shown.address, point->stub), nop = NOP;

	store->at = point->shown.address;
	store->size = store->expected = 4;
	memcpy(store->old, on ? &nop : &jump, 4);
	memcpy(store->bytes, on ? &jump : &nop, 4);
	return step == 0;
}

extern void live_arm64_hit(void) LIVE_HIDDEN;

void live_machine_stub(live_point *point, unsigned char *stub)
{
	static const uint32_t code[] = {
		0xa9be47f0, /* stp x16, x17, [sp, #-32]! */
		0xa9017bef, /* stp x15, x30, [sp, #16] */
		0x580001d0, /* ldr x16, count (64) */
		0xc85f7e11, /* again: ldxr x17, [x16] */
		0x91000631, /* add x17, x17, #1 */
		0xc80f7e11, /* stxr w15, x17, [x16] */
		0x35ffffaf, /* cbnz w15, again */
		0x58000170, /* ldr x16, point (72) */
		0xb9400211, /* ldr w17, [x16] */
		0x34000071, /* cbz w17, 1f */
		0x58000151, /* ldr x17, called (80) */
		0xd63f0220, /* blr x17 */
		0xa9417bef, /* 1: ldp x15, x30, [sp, #16] */
		0xa8c247f0, /* ldp x16, x17, [sp], #32 */
		0,          /* b resume */
	};
	uint64_t words[3] = {(uint64_t)point->count, (uint64_t)point, (uint64_t)live_arm64_hit};
	uint32_t last = branch((uintptr_t)stub + 56, point->resume);

	memcpy(stub, code, sizeof code);
	memcpy(stub + 56, &last, 4);
	memset(stub + 60, 0, 4);
	memcpy(stub + 64, words, sizeof words);
}

int live_machine_hook(uintptr_t at, void (*hook)(void))
{
	(void)at;
	(void)hook;
	return 0; /* its RET can't be replaced while other threads run it */
}

static int64_t extend(uint32_t value, unsigned bits)
{
	return (int64_t)((uint64_t)value << (64 - bits)) >> (64 - bits);
}

/* B and BL, B.cond, CBZ and CBNZ, TBZ and TBNZ (Arm ARM C4.1.66). */
void live_machine_jumps(
	live_module *module, const live_segment *code, int (*wanted)(void *, uintptr_t),
	uintptr_t (*function)(void *, uintptr_t), void (*found)(void *, uintptr_t, uintptr_t), void *data)
{
	uintptr_t at;

	(void)module;
	(void)function;
	for (at = (code->start + 3) & ~(uintptr_t)3; at + 4 <= code->end; at += 4) {
		uint32_t word = word_at(at);
		uintptr_t target;

		if ((word & 0x7c000000u) == 0x14000000u)
			target = at + (uintptr_t)(extend(word & 0x3ffffff, 26) * 4);
		else if ((word & 0xff000000u) == 0x54000000u || (word & 0x7e000000u) == 0x34000000u)
			target = at + (uintptr_t)(extend(word >> 5 & 0x7ffff, 19) * 4);
		else if ((word & 0x7e000000u) == 0x36000000u)
			target = at + (uintptr_t)(extend(word >> 5 & 0x3fff, 14) * 4);
		else
			continue;
		if (wanted(data, target))
			found(data, at, target);
	}
}

/* x16 is the point; the stub has saved x15, x16, x17 and x30. Everything that a C function may change is kept. */
__asm__(
	".pushsection .text.live_arm64,\"ax\",@progbits\n"
	".balign 16\n"
	".globl live_arm64_hit\n.hidden live_arm64_hit\n.type live_arm64_hit,@function\n"
	"live_arm64_hit:\n"
	"	.cfi_startproc\n"
	"	.cfi_undefined x30\n"
	"	hint 34\n" /* bti c: it is called through a register */
	"	sub sp, sp, 704\n"
	"	stp x0, x1, [sp, 0]\n	stp x2, x3, [sp, 16]\n	stp x4, x5, [sp, 32]\n	stp x6, x7, [sp, 48]\n"
	"	stp x8, x9, [sp, 64]\n	stp x10, x11, [sp, 80]\n	stp x12, x13, [sp, 96]\n	stp x14, x18, [sp, 112]\n"
	"	mrs x0, nzcv\n	mrs x1, fpsr\n	stp x0, x1, [sp, 128]\n"
	"	stp x29, x30, [sp, 144]\n"
	"	.irp n,0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30\n"
	"	str q\\n, [sp, 176+16*\\n]\n"
	"	.endr\n"
	"	.irp n,1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31\n"
	"	str q\\n, [sp, 176+16*\\n]\n"
	"	.endr\n"
	"	mov x0, x16\n"
	"	mov x1, sp\n"
	"	mov w2, 1\n"
	"	bl live_hit\n"
	"	.irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
	"	ldr q\\n, [sp, 176+16*\\n]\n"
	"	.endr\n"
	"	ldp x0, x1, [sp, 128]\n	msr nzcv, x0\n	msr fpsr, x1\n"
	"	ldp x0, x1, [sp, 0]\n	ldp x2, x3, [sp, 16]\n	ldp x4, x5, [sp, 32]\n	ldp x6, x7, [sp, 48]\n"
	"	ldp x8, x9, [sp, 64]\n	ldp x10, x11, [sp, 80]\n	ldp x12, x13, [sp, 96]\n	ldp x14, x18, [sp, 112]\n"
	"	ldp x29, x30, [sp, 144]\n"
	"	add sp, sp, 704\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size live_arm64_hit,.-live_arm64_hit\n"
	".popsection\n");

#endif
