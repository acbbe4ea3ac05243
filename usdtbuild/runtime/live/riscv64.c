/*
 * riscv64: boards and servers of the open architecture. Instructions have four bytes, or with the C extension two, and stand at even
 * addresses. Arguments travel in a0 to a7, results in a0, a1; ra is the return address; nothing below the stack pointer is in use; there
 * are no flags (psABI, "Integer Register Convention").
 *
 * Code that changes is fetched in halves, each of which is old or new (Ziccif, in RVA20), and for good new after fence.i on every hart,
 * which is what __builtin___clear_cache() asks the kernel for. A jump of four bytes may stand at an odd half, so it is made of a NOP in two
 * stores, and every state in between is a NOP or the jump:
 *
 *     0013 0000    addi zero, zero, 0
 *     0013 hhhh    addi zero, rN, n       a NOP whatever N and n are ("HINT Instructions"); every hart sees it before
 *     L06f hhhh    jal zero, trampoline   whose upper half is the distance's, as its lower half's first digit
 *
 * Off: the lower half first, then the upper. The first store keeps 0013, so bits 12 to 15 wait for the second. A jump reaches 1 MB: sites
 * of code that has no free memory so near are refused.
 *
 * AN ENTRY has eight bytes of padding or more, for auipc and jr, and one NOP, of two or four bytes. On: 1. the padding, which nothing runs.
 * 2. c.nop becomes c.j to the padding, one store of two bytes; or the four bytes as above. t0, t1, t3 are free at entries: only linkage
 * between calls uses them.
 *
 * The dynamic linker's hook, c.ret, has room for no jump that reaches anything.
 */

#include "internal.h"

#if defined(__riscv) && defined(__LP64__)

#include <string.h>

const unsigned live_trampoline_size = 128;
const intptr_t live_reach = (intptr_t)1000 << 10, live_far_reach = (intptr_t)1 << 30;

enum { NOP = 0x0013, C_NOP = 0x0001, RETURN = 0x8067, C_RETURN = 0x8082 };
enum { FORM_SITE = 1 };

static uint32_t half_at(uintptr_t at)
{
	uint16_t half;

	memcpy(&half, (const void *)at, 2);
	return half;
}

static uint32_t word_at(uintptr_t at)
{
	return half_at(at) | half_at(at + 2) << 16;
}

/* jal zero, distance (unprivileged ISA 2.5.1). */
static uint32_t jump(uintptr_t from, uintptr_t to)
{
	uint32_t d = (uint32_t)(to - from);

	return (d >> 20 & 1) << 31 | (d >> 1 & 0x3ff) << 21 | (d >> 11 & 1) << 20 | (d >> 12 & 0xff) << 12 | 0x6f;
}

static int in_reach(uintptr_t from, uintptr_t to)
{
	intptr_t distance = (intptr_t)(to - from);

	return -(1 << 20) <= distance && distance < 1 << 20;
}

/* c.j distance (16.4). */
static uint32_t short_jump(intptr_t distance)
{
	uint32_t d = (uint32_t)distance;

	return 0xa001 | (d >> 11 & 1) << 12 | (d >> 4 & 1) << 11 | (d >> 8 & 3) << 9 | (d >> 10 & 1) << 8 | (d >> 6 & 1) << 7
		| (d >> 7 & 1) << 6 | (d >> 1 & 7) << 3 | (d >> 5 & 1) << 2;
}

/* auipc t1, and jr t1 with the rest. */
static void far_jump(uint32_t *code, uintptr_t from, uintptr_t to)
{
	uint32_t distance = (uint32_t)(to - from), low = distance & 0xfff;

	code[0] = 0x00000317 | ((distance + 0x800) & 0xfffff000);
	code[1] = 0x00030067 | low << 20;
}

/* -- points ------------------------------------------------------------------------------------------------------ */

void live_machine_site(live_point *point)
{
	uintptr_t at = point->shown.address;
	uint32_t word = word_at(at);

	memcpy(point->original, (const void *)at, 4);
	point->resume = at + 4;
	point->form = FORM_SITE;
	if (word == RETURN || (word & 0xffff) == C_RETURN)
		live_refuse(point, "tail", "a return stands there, of which no steps make a jump");
	else if ((word & 0x7f) == 0x6f)
		live_refuse(point, "patched", "a jump stands there already: another patcher's");
	else if (word != NOP && (word & 0xffff) != 0x9002 && word != 0x00100073) /* an ebreak may be gone by then */
		live_refuse(point, "changed", "no NOP stands there");
	point->original[0] = NOP;
	point->original[1] = point->original[2] = point->original[3] = 0;
}

const char *live_machine_entry_room(const live_point *point, const char **detail)
{
	if (point->padding >= 8 && point->padding < 200 && point->nops >= 2)
		return NULL;
	*detail = "a patch needs eight bytes of padding and one NOP at the entry";
	return "too-small";
}

/* -- operands ---------------------------------------------------------------------------------------------------- */

/* live_riscv_hit saves a0 to a7 first; the interrupted stack pointer is as far from there. */
const uint8_t live_parameters[] = {8, 0, 1, 2, 3, 4, 5, 6, 7};
enum { SAVED_BYTES = 288 + 32 };

int live_machine_operand(const char *text, size_t length, usdt_live_argument_place *place)
{
	const char *at = text, *end = text + length;

	if (length == 2 && *at == 'a' && at[1] >= '0' && at[1] <= '7') {
		place->kind = 0;
		place->reg = (uint8_t)(at[1] - '0');
		return 1;
	}
	if (!live_number(&at, end, &place->offset))
		return 0;
	place->kind = 2;
	if (at == end)
		return 1;
	if (end - at != 4 || *at != '(' || at[3] != ')')
		return 0;
	if (at[1] == 'a' && at[2] >= '0' && at[2] <= '7') {
		place->kind = 1;
		place->reg = (uint8_t)(at[2] - '0');
		return 1;
	}
	place->kind = 3;
	place->offset += SAVED_BYTES;
	return !memcmp(at, "(sp)", 4);
}

/* -- steps ------------------------------------------------------------------------------------------------------- */

static int half(live_store *store, uintptr_t at, uint32_t old, uint32_t value)
{
	uint16_t halves[2] = {(uint16_t)old, (uint16_t)value};

	return live_store_at(store, at, &halves[0], &halves[1], 2);
}

/* A NOP of four bytes, and a jump. Who stands there instead is seen before anything is written. */
static int long_step(uintptr_t at, uint32_t word, int on, int step, live_store *store)
{
	if (step > 1)
		return 0;
	if (on && step == 0 && half_at(at) != NOP)
		return half(store, at, NOP, NOP);
	if (on)
		return step == 0 ? half(store, at + 2, 0, word >> 16) : half(store, at, NOP, word & 0xffff);
	return step == 0 ? half(store, at, word & 0xffff, NOP) : half(store, at + 2, word >> 16, 0);
}

int live_machine_step(const live_point *point, int on, int step, live_store *store)
{
	uintptr_t at = point->shown.address, padding = at - point->padding;
	uint32_t code[2], back = short_jump((intptr_t)(padding - at));

	if (point->form == FORM_SITE)
		return long_step(at, jump(at, point->trampoline), on, step, store);
	if (on && step == 0) {
		far_jump(code, padding, point->trampoline);
		return live_store_padding(store, padding, code, 8);
	}
	step -= on;
	if (point->first_nop == 4)
		return long_step(at, jump(at, padding), on, step, store);
	return step == 0 && half(store, at, on ? C_NOP : back, on ? back : C_NOP);
}

/* -- trampolines ------------------------------------------------------------------------------------------------- */

extern void live_riscv_hit(void) LIVE_HIDDEN;
extern void live_riscv_enter(void) LIVE_HIDDEN;

static const uint32_t site_code[] = {
	0xfe010113, /* addi sp, sp, -32 */
	0x00513023, /* sd t0, 0(sp) */
	0x00613423, /* sd t1, 8(sp) */
	0x00113823, /* sd ra, 16(sp) */
	0x00000297, /* auipc t0, 0 */
	0x0502b303, /* ld t1, 80(t0): the count (96) */
	0x00100093, /* li ra, 1 */
	0x0013302f, /* amoadd.d zero, ra, (t1) */
	0x0582b303, /* ld t1, 88(t0): the point (104) */
	0x00032083, /* lw ra, 0(t1) */
	0x00008663, /* beqz ra, 1f */
	0x0602b083, /* ld ra, 96(t0): what is called (112) */
	0x000080e7, /* jalr ra */
	0x00013283, /* 1: ld t0, 0(sp) */
	0x00813303, /* ld t1, 8(sp) */
	0x01013083, /* ld ra, 16(sp) */
	0x02010113, /* addi sp, sp, 32 */
	0x0000006f, /* j resume */
};

/* t3 comes back as the thunk, or 0. */
static const uint32_t entry_code[] = {
	0xff010113, /* addi sp, sp, -16 */
	0x00113023, /* sd ra, 0(sp) */
	0x00000297, /* auipc t0, 0 */
	0x0582b303, /* ld t1, 88(t0): the count (96) */
	0x00100e13, /* li t3, 1 */
	0x01c3302f, /* amoadd.d zero, t3, (t1) */
	0x0602b303, /* ld t1, 96(t0): the point (104) */
	0x00032e03, /* lw t3, 0(t1) */
	0x000e0663, /* beqz t3, 1f */
	0x0682be03, /* ld t3, 104(t0): what is called (112) */
	0x000e00e7, /* jalr t3 */
	0x00013083, /* 1: ld ra, 0(sp) */
	0x01010113, /* addi sp, sp, 16 */
	0x000e0863, /* beqz t3, 2f */
	0x00000317, /* auipc t1, 0 */
	0x00c30313, /* addi t1, t1, 12: 2f */
	0x000e0067, /* jr t3 */
	0x00000317, /* 2: auipc t1, resume */
	0x00030067, /* jr t1 */
};

enum { COUNT_WORD = 96 };

void live_machine_trampoline(live_point *point, unsigned char *trampoline)
{
	int is_entry = point->form == LIVE_ENTRY;
	uint64_t words[3] = {(uint64_t)point->count, (uint64_t)point, is_entry ? (uint64_t)live_riscv_enter : (uint64_t)live_riscv_hit};
	size_t size = is_entry ? sizeof entry_code : sizeof site_code;
	uint32_t last[2];

	memcpy(trampoline, is_entry ? entry_code : site_code, size);
	memcpy(trampoline + COUNT_WORD, words, sizeof words);
	if (is_entry) {
		far_jump(last, (uintptr_t)trampoline + size - 8, point->resume);
		memcpy(trampoline + size - 8, last, 8);
		return;
	}
	last[0] = jump((uintptr_t)trampoline + size - 4, point->resume);
	memcpy(trampoline + size - 4, last, 4);
	if (!in_reach(point->shown.address, (uintptr_t)trampoline) || !in_reach((uintptr_t)trampoline + size - 4, point->resume))
		live_refuse(point, "no-memory", live_no_reach);
}

/* -- branches ---------------------------------------------------------------------------------------------------- */

/* JAL and branches (2.5), c.j, c.beqz and c.bnez (16.4). 0: no branch. */
static intptr_t branch_of(uint32_t word)
{
	if ((word & 0x7f) == 0x6f)
		return live_extend((word >> 31) << 20 | (word >> 12 & 0xff) << 12 | (word >> 20 & 1) << 11 | (word >> 21 & 0x3ff) << 1, 21);
	if ((word & 0x7f) == 0x63)
		return live_extend((word >> 31) << 12 | (word >> 7 & 1) << 11 | (word >> 25 & 0x3f) << 5 | (word >> 8 & 15) << 1, 13);
	if ((word & 0xe003) == 0xa001)
		return live_extend((word >> 12 & 1) << 11 | (word >> 8 & 1) << 10 | (word >> 9 & 3) << 8 | (word >> 6 & 1) << 7
				| (word >> 7 & 1) << 6 | (word >> 2 & 1) << 5 | (word >> 11 & 1) << 4 | (word >> 3 & 7) << 1,
			12);
	if ((word & 0xc003) == 0xc001)
		return live_extend(
			(word >> 12 & 1) << 8 | (word >> 5 & 3) << 6 | (word >> 2 & 1) << 5 | (word >> 10 & 3) << 3 | (word >> 3 & 3) << 1, 9);
	return 0;
}

void live_machine_jumps(const live_segment *code, live_guard *guard)
{
	uintptr_t at;

	for (at = (code->start + 1) & ~(uintptr_t)1; at + 4 <= code->end; at += (half_at(at) & 3) == 3 ? 4 : 2) {
		intptr_t distance = branch_of(word_at(at));

		if (distance)
			live_branch(guard, at, distance);
	}
}

#endif
