/*
 * 32-bit Arm from version 7 on, little-endian: A32 and Thumb, which call each other. Instructions of A32 are one aligned word; those of
 * Thumb are one or two halves, at even addresses. Arguments travel in r0 to r3, the result in r0, r1; r14 (lr) is the return address, whose
 * bit 0 says Thumb; nothing below the stack pointer is in use (AAPCS32, 6.1 and 6.2.1). Which of both a point is in, its bytes say: no NOP
 * of one is a NOP of the other.
 *
 * Few instructions may be replaced by each other while other threads run them: of A32 NOP and B, of Thumb NOP and B of one half (Arm ARM
 * for v7-A, A3.5.4). `mov r0, r0` and `mov r8, r8`, which sites have because every processor knows them, aren't NOP; so at sites, the page
 * is exchanged (text.c): no memory that is code changes, and a thread fetches all of an instruction before or after.
 *
 *     A32, call    mov r0, r0              b trampoline        32 MB
 *     A32, tail    bx lr                   b trampoline
 *     Thumb, tail  bx lr; mov r8, r8       b.w trampoline      16 MB; nothing runs the second half alone
 *     Thumb, call  mov r8, r8; mov r8, r8  b.w landing
 *
 * In the last one a thread may stand between the halves. So the second half of its jump must do nothing by itself: bf00 is `nop`, and as a
 * second half leaves the distance its multiples of 4 KB (within 4 MB); so is b000, `add sp, #0`, from 4 to 8 MB. Landings are memory at
 * such a distance of all sites (mirrors.c), and go to the trampoline. A site across two pages has two steps: on, its second half is
 * exchanged first, then the first; off, the other way. Every state in between is NOPs or the jump, whoever stands where.
 *
 * AN ENTRY of A32 is `nop`, which becomes `b trampoline`: one aligned store, both in the list. One of Thumb is one half, `nop`, behind
 * padding of four bytes or more: first `b.w trampoline` goes into the padding, which nothing runs, then `b padding` in place of `nop`, both
 * of one half and in the list.
 *
 * Trampolines are A32, and begin with the way there from Thumb. They keep all registers and flags: r12 has a nested function's frame at its
 * entry.
 */

#include "internal.h"

#if LIVE_ARM

#include <string.h>

const unsigned live_trampoline_size = 96;
const intptr_t live_reach = (intptr_t)15 << 20, live_far_reach = (intptr_t)30 << 20;

#define NOP 0xe320f000u
#define OLD_NOP 0xe1a00000u /* mov r0, r0 */
#define RETURN 0xe12fff1eu
#define THUMB_CALL 0x46c046c0u
#define THUMB_TAIL 0x46c04770u
enum { T_NOP = 0xbf00, T_OLD_NOP = 0x46c0, T_RETURN = 0x4770, T_ADD_ZERO = 0xb000 };
enum { FORM_ARM = 1, FORM_ARM_TAIL, FORM_THUMB, FORM_THUMB_TAIL, FORM_ARM_ENTRY, FORM_THUMB_ENTRY };
enum { FROM_ARM = 4 }; /* bytes of a trampoline that only Thumb runs */

static uint32_t half_at(uintptr_t at)
{
	return *(const volatile uint16_t *)at;
}

/* B of A32: the program counter is two instructions ahead (A8.8.18). */
static uint32_t branch(uintptr_t from, uintptr_t to)
{
	return 0xea000000u | ((to - from - 8) >> 2 & 0xffffffu);
}

/* B.W of Thumb (A8.8.18, T4), its second half in the upper bits. */
static uint32_t thumb_branch(uintptr_t from, uintptr_t to)
{
	uint32_t d = to - from - 4, sign = d >> 24 & 1, j1 = ~(d >> 23) & 1, j2 = ~(d >> 22) & 1;

	return 0xf000u | sign << 10 | (d >> 12 & 0x3ff) | (0x9000u | (j1 ^ sign) << 13 | (j2 ^ sign) << 11 | (d >> 1 & 0x7ff)) << 16;
}

static int in_reach(uintptr_t from, uintptr_t to, int32_t reach)
{
	int32_t distance = (int32_t)(to - from);

	return -reach < distance && distance < reach;
}

/* -- points ------------------------------------------------------------------------------------------------------ */

static int is_breakpoint(uint32_t word)
{
	uint32_t half = word & 0xffff; /* gdb's, the kernel's, bkpt: it may be gone when the point is to be switched on */

	return word == 0xe7f001f0u || word == 0xe7f001f9u || (word & 0xfff000f0u) == 0xe1200070u || half == 0xde01 || half >> 8 == 0xbe;
}

void live_machine_site(live_point *point)
{
	uintptr_t at = point->shown.address;
	uint32_t first = half_at(at), word = first | half_at(at + 2) << 16;

	point->resume = at + 4;
	if (is_breakpoint(word))
		word = at % 4 || word >> 16 == T_OLD_NOP ? THUMB_CALL : OLD_NOP;
	memcpy(point->original, &word, 4);
	if (at % 4 == 0 && (word == NOP || word == OLD_NOP || word == RETURN)) {
		point->form = word == RETURN ? FORM_ARM_TAIL : FORM_ARM;
	} else if (word == THUMB_CALL) {
		point->form = FORM_THUMB;
		point->resume |= 1;
	} else if (word == THUMB_TAIL && live_is_code(point->module, at - 2) && (half_at(at - 2) & 0xf0ff) != 0xd000) {
		point->form = FORM_THUMB_TAIL;
	} else if (first == T_OLD_NOP || first == T_NOP || first == T_RETURN) { /* behind b<condition> .+4: half a tail call */
		live_refuse(point, "too-small", "the NOP has no room for a jump: a stub that is called, or a conditional tail call");
	} else if ((at % 4 == 0 && (word & 0xff000000u) == 0xea000000u) || (word & 0xd000f800u) == 0x9000f000u) {
		live_refuse(point, "patched", "a branch stands there already: another patcher's");
	} else {
		live_refuse(point, "changed", "no NOP stands there");
	}
}

const char *live_machine_entry_room(const live_point *point, const char **detail)
{
	uintptr_t at = point->shown.address;

	if (point->first_nop == 2 && point->padding >= 4 && point->padding < 200)
		return NULL;
	if (point->first_nop == 4 && at % 4 == 0 && half_at(at) != 0xf3af)
		return NULL;
	*detail = "a patch needs a NOP of A32, or of Thumb one of two bytes behind four of padding: 1,0 or 3,2";
	return "too-small";
}

void live_machine_entry(live_point *point)
{
	point->form = point->first_nop == 4 ? FORM_ARM_ENTRY : FORM_THUMB_ENTRY;
	point->resume = (point->shown.address + point->nops) | (point->form == FORM_THUMB_ENTRY);
	memcpy(point->original, (const void *)point->shown.address, 4);
}

/* -- operands ---------------------------------------------------------------------------------------------------- */

/* A trampoline saves r0, r1, r2, r3, r12 and lr; the interrupted stack pointer is behind them. */
const uint8_t live_parameters[] = {4, 0, 1, 2, 3};
enum { SAVED_BYTES = 24 };

/* The register at the beginning of `at`, among those that are saved; 6 is sp, -1 none. Sets where its name ends. */
static int register_of(const char **at, const char *end)
{
	static const char names[7][3] = {"r0", "r1", "r2", "r3", "ip", "lr", "sp"};
	int i;

	for (i = 0; i < 7; i++)
		if (end - *at >= 2 && !memcmp(*at, names[i], 2)) {
			*at += 2;
			return i;
		}
	return -1;
}

/* r0, [r0], [sp, #8], #5 */
int live_machine_operand(const char *text, size_t length, usdt_live_argument_place *place)
{
	const char *at = text, *end = text + length;
	int number;

	place->kind = 2;
	if (at < end && *at == '#')
		return at++, live_number(&at, end, &place->offset) && at == end;
	place->kind = at < end && *at == '[';
	at += place->kind;
	number = register_of(&at, end);
	if (number < 0)
		return 0;
	place->reg = (uint8_t)number;
	if (!place->kind)
		return number < 6 && at == end;
	if (!live_index(&at, end, &place->offset))
		return 0;
	if (number == 6) {
		place->kind = 3;
		place->reg = 0;
		place->offset += SAVED_BYTES;
	}
	return at == end;
}

/* -- landings ---------------------------------------------------------------------------------------------------- */

/* Where a site lands at about a distance of 4 KB's multiples, or 0. */
static uintptr_t landing_of(uintptr_t site, int32_t about)
{
	uintptr_t at = site + 4 + (uintptr_t)about, next = at + 0xe00;

	if (thumb_branch(site, next) >> 16 == T_NOP)
		return next;
	return thumb_branch(site, at) >> 16 == T_ADD_ZERO ? at : 0;
}

static int make_landings(live_module *module, live_point **list, size_t count, int32_t about)
{
	unsigned first = module->mirror_count;
	size_t i;

	for (i = 0; i < count; i++) {
		list[i]->landing = landing_of(list[i]->shown.address, about);
		if (!list[i]->landing || list[i]->landing - list[i]->shown.address != list[0]->landing - list[0]->shown.address)
			return 0;
	}
	if (!live_map_landings(module, list, count, 4))
		return 0;
	for (i = 0; i < count; i++) {
		uintptr_t at = list[i]->landing;
		uint32_t jump = thumb_branch(at, list[i]->trampoline);

		if (!in_reach(at, list[i]->trampoline, 1 << 24))
			live_refuse(list[i], "no-memory", live_no_reach);
		memcpy((void *)at, &jump, 4);
	}
	live_seal_landings(module, list, count, first);
	return 1;
}

int live_machine_prepare(live_module *module, char *room, size_t size)
{
	live_arena scratch = {0};
	live_point **list = live_allocate(&scratch, 2 * module->probe_count * sizeof *list + 16);
	size_t count = 0, i;
	int step, done;

	(void)room;
	(void)size;
	for (i = 0; list && i < module->probe_count; i++)
		if (module->points[i].form == FORM_THUMB && !module->points[i].shown.reason)
			list[count++] = &module->points[i];
	done = !count;
	if (count) {
		module->mirrors = live_allocate(&module->arena, (count + 2) * sizeof *module->mirrors);
		live_sort_points(list, list + module->probe_count, count);
		/* All multiples of 128 KB below 8 MB, in an order that begins in the middle: right behind a program its heap grows. */
		for (step = 0; module->mirrors && !done && step < 126; step++) {
			int32_t about = ((step / 2 * 37 + 24) % 63 + 1) << 17;

			done = make_landings(module, list, count, step % 2 ? -about : about);
		}
	}
	for (i = 0; !done && i < count; i++)
		live_refuse(list[i], "no-memory", live_no_reach);
	live_free(&scratch);
	return list ? 0 : USDT_LIVE_NO_MEMORY;
}

/* -- steps ------------------------------------------------------------------------------------------------------- */

static int half(live_store *store, uintptr_t at, uint32_t old, uint32_t value, int by_page)
{
	uint16_t halves[2] = {(uint16_t)old, (uint16_t)value};

	store->by_page = (uint8_t)by_page;
	return live_store_at(store, at, &halves[0], &halves[1], 2);
}

/* Two halves in two pages: the second is there before the first, and goes after it. Who stands there instead is seen before anything is
 * exchanged. */
static int divided_step(uintptr_t at, uint32_t off, uint32_t jump, int on, int step, live_store *store)
{
	if (step > 1)
		return 0;
	if (on && step == 0 && half_at(at) != (off & 0xffff))
		return half(store, at, off, off, 1);
	if (step == on)
		return half(store, at, on ? off : jump, on ? jump : off, 1);
	return half(store, at + 2, (on ? off : jump) >> 16, (on ? jump : off) >> 16, 1);
}

static int entry_step(const live_point *point, int on, int step, live_store *store)
{
	uintptr_t at = point->shown.address, padding = at - point->padding;
	uint32_t jump = thumb_branch(padding, point->trampoline), back = 0xe000u | ((uint32_t)-(point->padding + 4) >> 1 & 0x7ff);
	uint16_t off;

	memcpy(&off, point->original, 2);
	if (on && step == 0)
		return live_store_padding(store, padding, &jump, 4);
	return step == on && half(store, at, on ? off : back, on ? back : off, off != T_NOP);
}

int live_machine_step(const live_point *point, int on, int step, live_store *store)
{
	uintptr_t at = point->shown.address;
	uint32_t off, jump;

	if (point->form == FORM_THUMB_ENTRY)
		return entry_step(point, on, step, store);
	memcpy(&off, point->original, 4);
	jump = point->form == FORM_THUMB     ? thumb_branch(at, point->landing)
		: point->form == FORM_THUMB_TAIL ? thumb_branch(at, point->trampoline)
										 : branch(at, point->trampoline + FROM_ARM);
	if ((at & (live_page() - 1)) == live_page() - 2)
		return divided_step(at, off, jump, on, step, store);
	return live_word_step(point, off, jump, off != NOP, on, step, store);
}

/* -- trampolines ------------------------------------------------------------------------------------------------- */

extern void live_arm_hit(void) LIVE_HIDDEN;
extern void live_arm_enter(void) LIVE_HIDDEN;

static const uint32_t trampoline_code[] = {
	0x46c04778, /* Thumb: bx pc; mov r8, r8 */
	0xe92d500f, /* push {r0, r1, r2, r3, r12, lr} */
	0xe10fc000, /* mrs r12, apsr */
	0xe59f2038, /* ldr r2, count (76) */
	0xe1b20f9f, /* again: ldrexd r0, r1, [r2] */
	0xe2900001, /* adds r0, r0, #1 */
	0xe2a11000, /* adc r1, r1, #0 */
	0xe1a23f90, /* strexd r3, r0, r1, [r2] */
	0xe3530000, /* cmp r3, #0 */
	0x1afffff9, /* bne again */
	0xe59f0020, /* ldr r0, point (80) */
	0xe5901000, /* ldr r1, [r0] */
	0xe3510000, /* cmp r1, #0 */
	0x159f1018, /* ldrne r1, called (84) */
	0x112fff31, /* blxne r1 */
	0xe12cf00c, /* msr apsr_nzcvqg, r12 */
	0xe8bd500f, /* pop {r0, r1, r2, r3, r12, lr} */
	0xe51ff004, /* ldr pc, resume (72); tails: bx lr */
};

void live_machine_trampoline(live_point *point, unsigned char *trampoline)
{
	uintptr_t called = point->form >= FORM_ARM_ENTRY ? (uintptr_t)live_arm_enter : (uintptr_t)live_arm_hit;
	uintptr_t words[4] = {point->resume, (uintptr_t)point->count, (uintptr_t)point, called}, from = point->shown.address;
	int tail = point->form == FORM_ARM_TAIL || point->form == FORM_THUMB_TAIL;
	int thumb = point->form == FORM_THUMB_TAIL || point->form == FORM_THUMB_ENTRY;
	uint32_t last = RETURN;

	memcpy(trampoline, trampoline_code, sizeof trampoline_code);
	memcpy(trampoline + sizeof trampoline_code, words, sizeof words);
	if (tail)
		memcpy(trampoline + sizeof trampoline_code - 4, &last, 4);
	if (point->form != FORM_THUMB && !in_reach(from, (uintptr_t)trampoline, thumb ? (1 << 24) - 256 : (1 << 25) - 256))
		live_refuse(point, "no-memory", live_no_reach);
}

/* The dynamic linker's empty function, `bx lr`; in Thumb what follows must be a NOP that nobody runs. */
int live_machine_hook(uintptr_t at, void (*hook)(void))
{
	static const uint32_t code[] = {0x46c04778, 0xe51ff004}; /* Thumb: bx pc; mov r8, r8. ldr pc, hook (8) */
	uintptr_t thumb = at & 1, mask = live_page() - 1;
	unsigned char *far;
	uint32_t jump;

	at &= ~(uintptr_t)1;
	if (thumb ? half_at(at) != T_RETURN || !live_machine_nop((const unsigned char *)at + 2, 2) || (at & mask) == mask - 1
			  : live_word(at) != RETURN)
		return 0;
	far = live_hook_mirror(at, code, sizeof code, hook);
	jump = thumb ? thumb_branch(at, (uintptr_t)far) : branch(at, (uintptr_t)far + FROM_ARM);
	return far && live_exchange_page(at, &jump, 4, 1 | 4 /* PROT_READ | PROT_EXEC */);
}

/* -- branches ---------------------------------------------------------------------------------------------------- */

/* B, BL and BLX of A32. 0: no branch. */
static int32_t arm_distance(uint32_t word)
{
	return (word & 0x0e000000u) == 0x0a000000u ? live_extend(word & 0xffffff, 24) * 4 + 8 : 0;
}

/* B of one half and of two, CBZ, BL (A8.8.18, A8.8.25, A8.8.29). */
static int32_t thumb_distance(uint32_t half, uint32_t following)
{
	uint32_t sign = half >> 10 & 1, j1 = following >> 13 & 1, j2 = following >> 11 & 1;

	if ((half & 0xf000) == 0xd000 && (half & 0x0f00) < 0x0e00)
		return live_extend(half & 0xff, 8) * 2 + 4;
	if ((half & 0xf800) == 0xe000)
		return live_extend(half & 0x7ff, 11) * 2 + 4;
	if ((half & 0xf500) == 0xb100)
		return (int32_t)((half >> 9 & 1) << 6 | (half >> 3 & 31) << 1) + 4;
	if ((half & 0xf800) != 0xf000 || !(following & 0x8000))
		return 0;
	if (following & 0x5000)
		return live_extend(sign << 24 | (1 ^ j1 ^ sign) << 23 | (1 ^ j2 ^ sign) << 22 | (half & 0x3ff) << 12 | (following & 0x7ff) << 1, 25)
			+ 4;
	if ((half >> 6 & 15) >= 14)
		return 0;
	return live_extend(sign << 20 | j2 << 19 | j1 << 18 | (half & 0x3f) << 12 | (following & 0x7ff) << 1, 21) + 4;
}

/* Whether an instruction of Thumb begins at `at`, as those from `function` on tell, whose bit 0 says Thumb; 0 where `at` is data. */
static int begins(uintptr_t function, uintptr_t at)
{
	uintptr_t next = function & ~(uintptr_t)1;

	while (next < at)
		next += half_at(next) >= 0xe800 ? 4 : 2;
	return function & 1 && next == at;
}

/* Each half is read as both; of a branch that goes where none may, the function that it stands in, or a mapping symbol before, says which
 * it is. */
void live_machine_jumps(const live_segment *code, live_guard *guard)
{
	uintptr_t at, function;

	for (at = (code->start + 3) & ~(uintptr_t)3; at + 4 <= code->end; at += 2) {
		uint32_t first = half_at(at), second = half_at(at + 2);
		int32_t distance = thumb_distance(first, second);

		if (distance && live_is_guarded(guard, at + (uintptr_t)distance) && begins(live_function_of(guard, at), at))
			live_branch(guard, at, distance);
		distance = at % 4 ? 0 : arm_distance(first | second << 16);
		function = distance && live_is_guarded(guard, at + (uintptr_t)distance) ? live_function_of(guard, at) : 0;
		if (function && !(function & 1))
			live_branch(guard, at, distance);
	}
}

#endif
