/*
 * s390x: IBM's mainframes. Instructions have two, four or six bytes at even addresses, big-endian. Arguments travel in r2 to r6, the result
 * in r2; r14 is the return address, r15 the stack pointer; nothing below it is in use, and the 160 bytes above it are the called function's
 * (ELF ABI, 1.2.2). Distances are counted in halves, from the instruction's first byte.
 *
 * A SITE is `c0 04 dddddddd`, a jump on no condition: a NOP whatever the distance d is. On: 1. the distance, in any number of stores. 2.
 * c0f4 in place of c004, one aligned store of two bytes, which processors fetch whole (Principles of Operation, "Block-Concurrent
 * References"). Off: c004, then the distance. Every state in between is the NOP or the jump, and a thread never stands inside. A tail's
 * site, `47000000 07fe`, has two instructions and no room: refused.
 *
 * AN ENTRY of -fpatchable-function-entry is two NOPs of two bytes, between which a thread may stand: refused (not-one-store). With
 * -mhotpatch=4,2 it is one of four bytes, 47000000, behind eight of padding, and has no table: such functions are found by their symbols
 * and bytes. On: 1. `jg trampoline` into the padding, which nothing runs. 2. `j padding`, one aligned store of four bytes.
 *
 * Condition codes may be alive at sites, and are kept. Counting adds to memory in one instruction (agsi, one step from z196 on).
 *
 * The dynamic linker's hook, br %r14, has room for no jump.
 */

#include "internal.h"

#if defined(__s390x__)

#include <string.h>

const unsigned live_trampoline_size = 128;
const intptr_t live_reach = (intptr_t)1 << 31, live_far_reach = 0;

enum { FORM_SITE = 1 };

static const uint8_t nop6[] = {0xc0, 0x04, 0, 0, 0, 0}, nop4[] = {0x47, 0, 0, 0};

static void put_distance(uint8_t *at, uintptr_t from, uintptr_t to)
{
	int32_t halves = (int32_t)((intptr_t)(to - from) / 2);

	memcpy(at, &halves, 4);
}

/* -- points ------------------------------------------------------------------------------------------------------ */

void live_machine_site(live_point *point)
{
	const uint8_t *at = (const uint8_t *)point->shown.address;

	memcpy(point->original, nop6, 6);
	point->form = FORM_SITE;
	point->resume = point->shown.address + 6;
	if (!memcmp(at, nop6, 6) || (at[0] == 0 && at[1] == 1)) /* a breakpoint may be gone when the point is to be switched on */
		return;
	if (at[0] == 0xc0 && at[1] == 0xf4)
		live_refuse(point, "patched", "a jump stands there already: another patcher's");
	else if (!memcmp(at, nop4, 4) || at[0] == 0x07)
		live_refuse(point, "tail", "a tail call's NOP has no room for a jump that reaches anything");
	else
		live_refuse(point, "changed", "no NOP stands there");
}

unsigned live_machine_hotpatch(const unsigned char *at)
{
	return !memcmp(at, nop4, 4) && !memcmp(at - 8, "\x07\x00\x07\x00\x07\x00\x07\x00", 8) ? 8 : 0;
}

const char *live_machine_entry_room(const live_point *point, const char **detail)
{
	if (point->first_nop == 2) {
		*detail = "the entry's NOPs of two bytes can't be replaced at once; use -mhotpatch=4,2";
		return "not-one-store";
	}
	if (point->padding < 6 || point->nops < 4 || point->shown.address % 4) {
		*detail = "a patch needs six bytes of padding and an aligned NOP of four at the entry";
		return "too-small";
	}
	return NULL;
}

/* -- operands ---------------------------------------------------------------------------------------------------- */

/* Registers r2 to r6 are saved at 160 of a frame of 832 bytes, below a trampoline's of 192. */
const uint8_t live_parameters[] = {5, 0, 1, 2, 3, 4};
enum { SAVED_BYTES = 832 - 160 + 192, TRAMPOLINE_SAVED = (832 - 160 + 160) / 8 /* r0 and r1, in the trampoline's */ };

int live_machine_operand(const char *text, size_t length, usdt_live_argument_place *place)
{
	const char *at = text, *end = text + length;

	if (length == 3 && !memcmp(at, "%r", 2) && at[2] >= '2' && at[2] <= '6') {
		place->kind = 0;
		place->reg = (uint8_t)(at[2] - '2');
		return 1;
	}
	if (!live_number(&at, end, &place->offset))
		return 0;
	place->kind = 2;
	if (at == end)
		return 1;
	if (end - at == 5 && !memcmp(at, "(%r", 3) && at[4] == ')' && at[3] >= '0' && at[3] <= '6') {
		place->kind = 1;
		place->reg = (uint8_t)(at[3] >= '2' ? at[3] - '2' : TRAMPOLINE_SAVED + at[3] - '0');
		return at[3] > '0';
	}
	place->kind = 3;
	place->offset += SAVED_BYTES;
	return end - at == 6 && !memcmp(at, "(%r15)", 6);
}

/* -- steps ------------------------------------------------------------------------------------------------------- */

static int site_step(const live_point *point, int on, int step, live_store *store)
{
	static const uint8_t nop[] = {0xc0, 0x04}, jump[] = {0xc0, 0xf4};
	uintptr_t at = point->shown.address;
	uint8_t distance[4] = {0, 0, 0, 0};

	if (step > 1)
		return 0;
	if (step == !on)
		return on && memcmp((const void *)at, nop, 2) ? live_store_at(store, at, nop, nop, 2) /* fails: somebody else stands there */
			: on ? (put_distance(distance, at, point->trampoline), live_store_at(store, at + 2, NULL, distance, 4))
				 : live_store_at(store, at + 2, NULL, distance, 4);
	return live_store_at(store, at, on ? nop : jump, on ? jump : nop, 2);
}

int live_machine_step(const live_point *point, int on, int step, live_store *store)
{
	uintptr_t at = point->shown.address, padding = at - point->padding;
	uint8_t code[6] = {0xc0, 0xf4}, back[4] = {0xa7, 0xf4, 0xff, (uint8_t)(0x100 - point->padding / 2)};

	if (point->form == FORM_SITE)
		return site_step(point, on, step, store);
	if (on && step == 0) {
		put_distance(code + 2, padding, point->trampoline);
		return live_store_padding(store, padding, code, 6);
	}
	return step == on && live_store_at(store, at, on ? nop4 : back, on ? back : nop4, 4);
}

/* -- trampolines ------------------------------------------------------------------------------------------------- */

extern void live_s390_hit(void) LIVE_HIDDEN;
extern void live_s390_enter(void) LIVE_HIDDEN;

/* clang-format off */
static const uint8_t site_code[] = {
	0xe3, 0xf0, 0xff, 0x40, 0xff, 0x71, /* lay %r15,-192(%r15) */
	0xeb, 0x01, 0xf0, 0xa0, 0x00, 0x24, /* stmg %r0,%r1,160(%r15) */
	0xe3, 0xe0, 0xf0, 0xb0, 0x00, 0x24, /* stg %r14,176(%r15) */
	0xb2, 0x22, 0x00, 0x00,             /* ipm %r0 */
	0xc4, 0x18, 0x00, 0x00, 0x00, 0x29, /* lgrl %r1,count (104) */
	0xeb, 0x01, 0x10, 0x00, 0x00, 0x7a, /* agsi 0(%r1),1 */
	0xc4, 0x18, 0x00, 0x00, 0x00, 0x27, /* lgrl %r1,point (112) */
	0xe3, 0xe0, 0x10, 0x00, 0x00, 0x12, /* lt %r14,0(%r1) */
	0xa7, 0x84, 0x00, 0x06,             /* je 1f */
	0xc4, 0xe8, 0x00, 0x00, 0x00, 0x23, /* lgrl %r14,called (120) */
	0x0d, 0xee,                         /* basr %r14,%r14 */
	0x04, 0x00,                         /* 1: spm %r0 */
	0xe3, 0xe0, 0xf0, 0xb0, 0x00, 0x04, /* lg %r14,176(%r15) */
	0xeb, 0x01, 0xf0, 0xa0, 0x00, 0x04, /* lmg %r0,%r1,160(%r15) */
	0xe3, 0xf0, 0xf0, 0xc0, 0x00, 0x71, /* lay %r15,192(%r15) */
	0xc0, 0xf4, 0x00, 0x00, 0x00, 0x00, /* jg resume */
};
/* clang-format on */

/* r1 is free at entries, and the condition code. r1 comes back as the thunk, or 0; r14 then tells it the body, the frame has the return
 * address. */
/* clang-format off */
static const uint8_t entry_code[] = {
	0xe3, 0xf0, 0xff, 0x40, 0xff, 0x71, /* lay %r15,-192(%r15) */
	0xe3, 0x00, 0xf0, 0xa0, 0x00, 0x24, /* stg %r0,160(%r15) */
	0xe5, 0x48, 0xf0, 0xa8, 0x00, 0x00, /* mvghi 168(%r15),0 */
	0xe3, 0xe0, 0xf0, 0xb0, 0x00, 0x24, /* stg %r14,176(%r15) */
	0xc4, 0x18, 0x00, 0x00, 0x00, 0x28, /* lgrl %r1,count (104) */
	0xeb, 0x01, 0x10, 0x00, 0x00, 0x7a, /* agsi 0(%r1),1 */
	0xc4, 0x18, 0x00, 0x00, 0x00, 0x26, /* lgrl %r1,point (112) */
	0xe3, 0xe0, 0x10, 0x00, 0x00, 0x12, /* lt %r14,0(%r1) */
	0xa7, 0x84, 0x00, 0x06,             /* je 1f */
	0xc4, 0xe8, 0x00, 0x00, 0x00, 0x22, /* lgrl %r14,called (120) */
	0x0d, 0xee,                         /* basr %r14,%r14 */
	0xe3, 0xe0, 0xf0, 0xb0, 0x00, 0x04, /* 1: lg %r14,176(%r15) */
	0xeb, 0x01, 0xf0, 0xa0, 0x00, 0x04, /* lmg %r0,%r1,160(%r15) */
	0xe3, 0xf0, 0xf0, 0xc0, 0x00, 0x71, /* lay %r15,192(%r15) */
	0xec, 0x18, 0x00, 0x07, 0x00, 0x7c, /* cgije %r1,0,2f */
	0xc0, 0xe0, 0x00, 0x00, 0x00, 0x04, /* larl %r14,2f */
	0x07, 0xf1,                         /* br %r1 */
	0xc0, 0xf4, 0x00, 0x00, 0x00, 0x00, /* 2: jg resume */
};
/* clang-format on */

enum { COUNT_WORD = 104 };

void live_machine_trampoline(live_point *point, unsigned char *trampoline)
{
	int is_entry = point->form == LIVE_ENTRY;
	size_t size = is_entry ? sizeof entry_code : sizeof site_code;
	uint64_t words[3] = {(uint64_t)point->count, (uint64_t)point, is_entry ? (uint64_t)live_s390_enter : (uint64_t)live_s390_hit};

	memcpy(trampoline, is_entry ? entry_code : site_code, size);
	put_distance(trampoline + size - 4, (uintptr_t)trampoline + size - 6, point->resume);
	memcpy(trampoline + COUNT_WORD, words, sizeof words);
}

/* -- branches ---------------------------------------------------------------------------------------------------- */

/* BRC, BRAS, BRCT and their kind, with 16 or 32 bits of halves (Principles of Operation, chapter 7). 0: no branch. */
static intptr_t branch_of(const uint8_t *at)
{
	int16_t near;
	int32_t far;

	memcpy(&near, at + 2, 2);
	memcpy(&far, at + 2, 4);
	if ((at[0] == 0xa7 && (at[1] & 15) >= 4 && (at[1] & 15) <= 7) || at[0] == 0x84 || at[0] == 0x85 || at[0] == 0xec)
		return (intptr_t)near * 2;
	return at[0] == 0xc0 && (at[1] & 14) == 4 ? (intptr_t)far * 2 : 0;
}

void live_machine_jumps(const live_segment *code, live_guard *guard)
{
	static const uint8_t lengths[] = {2, 4, 4, 6};
	const uint8_t *at = (const uint8_t *)((code->start + 1) & ~(uintptr_t)1);

	for (; (uintptr_t)at + 6 <= code->end; at += lengths[*at >> 6]) {
		intptr_t distance = branch_of(at);

		if (distance)
			live_branch(guard, (uintptr_t)at, distance);
	}
}

#endif
