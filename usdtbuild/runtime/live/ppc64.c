/*
 * ppc64le: IBM's Power servers in little-endian mode (ELFv2). Instructions have four bytes and are aligned to four. Arguments travel in r3
 * to r10, the result in r3; lr has the return address, r2 is the pointer to the module's table of addresses (TOC), r1 the stack pointer;
 * the 288 bytes below it belong to leaf functions (ELFv2 ABI, 2.2.2 and 2.2.3).
 *
 * A SITE is one aligned store: `nop` (ori 0,0,0) becomes `b trampoline`, and back. Both are instructions that may be replaced by each other
 * while other threads run them (Power ISA, book II, "Concurrent Modification and Execution of Instructions"): a thread runs the old one or
 * the new one. A tail's blr isn't: its page is exchanged (text.c). A branch reaches 32 MB.
 *
 * AN ENTRY's NOPs must stand at the local entry point, behind the two instructions that make r2. GCC before 13 puts them before those, so
 * that r2 is wrong, and its assembler refuses most. They are refused here (toc). Others are switched as sites are. A body whose return is
 * waited for gets a thunk's address in lr, and is jumped to.
 *
 * Condition, count and link registers may be alive at sites, and are kept, as are all registers that C code may change.
 */

#include "internal.h"

#if LIVE_PPC64

#include <string.h>

const unsigned live_trampoline_size = 160;
const intptr_t live_reach = (intptr_t)30 << 20, live_far_reach = 0;

enum { FORM_SITE = 1, FORM_TAIL };

#define NOP 0x60000000u
#define RETURN 0x4e800020u

static uint32_t branch(uintptr_t from, uintptr_t to)
{
	return 0x48000000u | ((uint32_t)(to - from) & 0x03fffffcu);
}

/* -- points ------------------------------------------------------------------------------------------------------ */

void live_machine_site(live_point *point)
{
	uint32_t word = live_word(point->shown.address);

	memcpy(point->original, (const void *)point->shown.address, 4);
	point->resume = point->shown.address + 4;
	point->form = word == RETURN ? FORM_TAIL : FORM_SITE;
	if ((word & 0xfc000003u) == 0x48000000u)
		live_refuse(point, "patched", "a branch stands there already: another patcher's");
	else if (word != NOP && word != RETURN && word != 0x7fe00008u && word != 0x7d821008u) /* a trap may be gone by then */
		live_refuse(point, "changed", "no NOP stands there");
}

/* -- operands ---------------------------------------------------------------------------------------------------- */

/* Registers r3 to r10 are saved at 128 of a frame of 1,088 bytes, below a trampoline's of 640. */
const uint8_t live_parameters[] = {8, 0, 1, 2, 3, 4, 5, 6, 7};
enum { SAVED_BYTES = 1088 - 128 + 640 };

/* A register is a bare number, memory 8(9), a constant i5 (usdtbuild/machines/ppc). */
int live_machine_operand(const char *text, size_t length, usdt_live_argument_place *place)
{
	const char *at = text, *end = text + length;
	int constant = at < end && *at == 'i';
	int64_t base = 0;

	at += constant;
	if (!live_number(&at, end, &place->offset))
		return 0;
	if (at == end) {
		place->kind = constant ? 2 : 0;
		place->reg = (uint8_t)(place->offset - 3);
		return constant || (place->offset >= 3 && place->offset <= 10);
	}
	if (constant || *at++ != '(' || !live_number(&at, end, &base) || at + 1 != end || *at != ')')
		return 0;
	place->kind = base == 1 ? 3 : 1;
	place->offset += base == 1 ? SAVED_BYTES : 0;
	place->reg = (uint8_t)(base - 3);
	return base == 1 || (base >= 3 && base <= 10);
}

/* -- steps ------------------------------------------------------------------------------------------------------- */

int live_machine_step(const live_point *point, int on, int step, live_store *store)
{
	int tail = point->form == FORM_TAIL;

	return live_word_step(point, tail ? RETURN : NOP, branch(point->shown.address, point->trampoline), tail, on, step, store);
}

/* -- trampolines ------------------------------------------------------------------------------------------------- */

extern void live_ppc64_hit(void) LIVE_HIDDEN;
extern void live_ppc64_enter(void) LIVE_HIDDEN;

/* For sites and entries. The frame lies below the 288 bytes that a leaf function may use; lr comes back from it. */
static const uint32_t site_code[] = {
	0xf821fd81, /* stdu 1, -640(1) */
	0xf9410080, /* std 10, 128(1) */
	0xf9610088, /* std 11, 136(1) */
	0xf9810090, /* std 12, 144(1) */
	0x7d400026, /* mfcr 10 */
	0xf9410098, /* std 10, 152(1) */
	0x7d4802a6, /* mflr 10 */
	0xf94100a0, /* std 10, 160(1) */
	0x429f0005, /* bcl 20, 31, .+4 */
	0x7d4802a6, /* mflr 10: 36 */
	0xe96a0064, /* ld 11, 100(10): the count (136) */
	0x7d8058a8, /* again: ldarx 12, 0, 11 */
	0x398c0001, /* addi 12, 12, 1 */
	0x7d8059ad, /* stdcx. 12, 0, 11 */
	0x40c2fff4, /* bne- again */
	0xe96a006c, /* ld 11, 108(10): the point (144) */
	0x818b0000, /* lwz 12, 0(11) */
	0x2c0c0000, /* cmpwi 12, 0 */
	0x41820018, /* beq 1f */
	0x7d8902a6, /* mfctr 12 */
	0xf98100a8, /* std 12, 168(1) */
	0xe98a0074, /* ld 12, 116(10): what is called (152) */
	0x7d8903a6, /* mtctr 12 */
	0x4e800421, /* bctrl */
	0xe94100a0, /* 1: ld 10, 160(1) */
	0x7d4803a6, /* mtlr 10 */
	0xe9410098, /* ld 10, 152(1) */
	0x7d4ff120, /* mtcr 10 */
	0xe9410080, /* ld 10, 128(1) */
	0xe9610088, /* ld 11, 136(1) */
	0xe9810090, /* ld 12, 144(1) */
	0x38210280, /* addi 1, 1, 640 */
	0,          /* b resume, or blr */
};

enum { COUNT_WORD = 136 };

void live_machine_trampoline(live_point *point, unsigned char *trampoline)
{
	uint64_t words[3] = {
		(uint64_t)point->count, (uint64_t)point, point->form == LIVE_ENTRY ? (uint64_t)live_ppc64_enter : (uint64_t)live_ppc64_hit};
	size_t end = sizeof site_code - 4;
	uint32_t last = point->form == FORM_TAIL ? RETURN : branch((uintptr_t)trampoline + end, point->resume);

	memcpy(trampoline, site_code, sizeof site_code);
	memcpy(trampoline + end, &last, 4);
	memcpy(trampoline + COUNT_WORD, words, sizeof words);
}

/* -- branches ---------------------------------------------------------------------------------------------------- */

/* B and BL, with 24 bits of words, and BC, with 14 (Power ISA, book I, 2.4), of those that count from where they are. 0: no branch. */
static intptr_t branch_of(uint32_t word)
{
	if ((word & 0xfc000002u) == 0x48000000u)
		return (int32_t)((word & 0x03fffffcu) << 6) >> 6;
	return (word & 0xfc000002u) == 0x40000000u ? (int16_t)(word & 0xfffc) : 0;
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

#endif
