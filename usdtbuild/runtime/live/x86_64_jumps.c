/*
 * x86-64: branches that go where a patch of an entry will be.
 *
 * Every byte that looks like a branch to such a place is a candidate; it is one if reading the function from its start, instruction by
 * instruction, comes by there. So lengths of instructions are all that must be known (Intel SDM volume 2, appendix A; 2.3 VEX, 2.7 EVEX;
 * AMD's XOP).
 */

#include "internal.h"

#if defined(__x86_64__) && !defined(__ILP32__)

#include <string.h>

/* What follows an opcode: M ModRM, b an immediate of 1 byte, w of 2, z of 2 or 4, d of 4, v of 2, 4 or 8, o an address, g ModRM with
 * immediate in group 3. */
/* clang-format off */
static const char *const one_byte[] = {
	[0x00] = "M M M M b z - - M M M M b z - !", [0x10] = "M M M M b z - - M M M M b z - -",
	[0x20] = "M M M M b z ! - M M M M b z ! -", [0x30] = "M M M M b z ! - M M M M b z ! -",
	[0x50] = ". . . . . . . . . . . . . . . .", [0x60] = "- - ! M ! ! ! ! z Mz b Mb . . . .",
	[0x70] = "b b b b b b b b b b b b b b b b", [0x80] = "Mb Mz - Mb M M M M M M M M M M M M",
	[0x90] = ". . . . . . . . . . - . . . . .", [0xa0] = "o o o o . . . . b z . . . . . .",
	[0xb0] = "b b b b b b b b v v v v v v v v", [0xc0] = "Mb Mb w . ! ! Mb Mz wb . w . . b - .",
	[0xd0] = "M M M M - - - . M M M M M M M M", [0xe0] = "b b b b b b b b d d - b . . . .",
	[0xf0] = "! . ! ! . . gb gz . . . . . . M M",
};
static const char *const two_byte[] = {
	[0x00] = "M M M M - . . . . . - . - M . Mb", [0x10] = "M M M M M M M M M M M M M M M M",
	[0x20] = "M M M M - - - - M M M M M M M M", [0x30] = ". . . . . . - . M - Mb - - - - -",
	[0x40] = "M M M M M M M M M M M M M M M M", [0x50] = "M M M M M M M M M M M M M M M M",
	[0x60] = "M M M M M M M M M M M M M M M M", [0x70] = "Mb Mb Mb Mb M M M . M M - - M M M M",
	[0x80] = "d d d d d d d d d d d d d d d d", [0x90] = "M M M M M M M M M M M M M M M M",
	[0xa0] = ". . . M Mb M - - . . . M Mb M M M", [0xb0] = "M M M M M M M M M M Mb M M M M M",
	[0xc0] = "M M Mb M Mb Mb Mb M . . . . . . . .", [0xd0] = "M M M M M M M M M M M M M M M M",
	[0xe0] = "M M M M M M M M M M M M M M M M", [0xf0] = "M M M M M M M M M M M M M M M M",
};
/* clang-format on */

static const char *row(const char *const *table, unsigned opcode)
{
	const char *at = table[opcode & 0xf0];
	unsigned skip = opcode & 15;

	if (!at)
		return "-";
	while (skip--)
		at = strchr(at, ' ') + 1;
	return at;
}

/* Length of the instruction at `at`, 0 if it isn't known. Sets where its opcode is. */
static unsigned length_of(const unsigned char *at, const unsigned char *end, unsigned *opcode_at)
{
	const unsigned char *start = at;
	unsigned small = 0, narrow = 0, wide = 0, opcode, group = 0, more = 0;
	const char *form;

	for (; at < end && at - start < 14; at++) {
		if (*at == 0x66)
			small = 1;
		else if (*at == 0x67)
			narrow = 1;
		else if (*at != 0xf0 && *at != 0xf2 && *at != 0xf3 && *at != 0x2e && *at != 0x36 && *at != 0x3e && *at != 0x26 && *at != 0x64
			&& *at != 0x65)
			break;
	}
	if (end - at < 16)
		return 0;
	if ((*at & 0xf0) == 0x40)
		wide = *at++ >> 3 & 1;
	*opcode_at = (unsigned)(at - start);
	opcode = *at++;
	form = "M";
	if (opcode == 0xc5 || opcode == 0xc4 || opcode == 0x62 || (opcode == 0x8f && (*at & 0x1f) >= 8)) {
		unsigned map = opcode == 0xc5 ? 1 : opcode == 0x62 ? *at & 7 : *at & 0x1f;

		at += opcode == 0xc5 ? 1 : opcode == 0x62 ? 3 : 2;
		opcode = *at++;
		if (map == 3 || map == 8 || (map == 1 && (((opcode & 0xfc) == 0x70) || opcode == 0xc2 || (opcode >= 0xc4 && opcode <= 0xc6))))
			form = "Mb";
		else if (map == 10)
			form = "Md";
		else if (map == 1 && opcode == 0x77)
			form = ".";
	} else if (opcode == 0x0f) {
		opcode = *at++;
		form = row(two_byte, opcode);
		if (opcode == 0x38 || opcode == 0x3a)
			at++;
	} else {
		form = row(one_byte, opcode);
	}
	for (; *form && *form != ' '; form++)
		switch (*form) {
		case 'g': group = 1; /* fall through */
		case 'M': {
			unsigned mod = *at >> 6, rm = *at & 7, reg = *at >> 3 & 7;

			at++;
			if (mod != 3 && rm == 4 && (*at++ & 7) == 5 && mod == 0)
				more += 4;
			if (mod == 0 && rm == 5)
				more += 4;
			more += mod == 1 ? 1 : mod == 2 ? 4 : 0;
			if (group && reg > 1)
				form = ". "; /* TEST alone has an immediate */
			break;
		}
		case 'b': more += 1; break;
		case 'w': more += 2; break;
		case 'z': more += small && !wide ? 2 : 4; break;
		case 'd': more += 4; break;
		case 'v': more += wide ? 8 : small ? 2 : 4; break;
		case 'o': more += narrow ? 4 : 8; break;
		case '.': break;
		default: return 0;
		}
	return (unsigned)(at - start) + more <= 15 ? (unsigned)(at - start) + more : 0;
}

/* Whether reading from `from` comes to an instruction whose opcode stands at `place`. What can't be read counts as yes. */
static int is_instruction(uintptr_t from, uintptr_t place, uintptr_t end)
{
	while (from <= place) {
		unsigned opcode_at = 0, length = length_of((const unsigned char *)from, (const unsigned char *)end, &opcode_at);

		if (!length || from + opcode_at == place)
			return 1;
		from += length;
	}
	return 0;
}

void live_machine_jumps(const live_segment *code, live_guard *guard)
{
	const unsigned char *at = (const unsigned char *)code->start, *end = (const unsigned char *)code->end;

	for (; at + 6 <= end; at++) {
		uintptr_t target, place = (uintptr_t)at;
		int32_t distance;

		if ((*at & 0xf0) == 0x70 || *at == 0xeb || (*at & 0xfc) == 0xe0) {
			target = place + 2 + (uintptr_t)(intptr_t)(signed char)at[1];
		} else if (*at == 0xe8 || *at == 0xe9) {
			memcpy(&distance, at + 1, 4);
			target = place + 5 + (uintptr_t)(intptr_t)distance;
		} else if ((*at == 0x0f && (at[1] & 0xf0) == 0x80) || (*at == 0xc7 && at[1] == 0xf8)) {
			memcpy(&distance, at + 2, 4);
			target = place + 6 + (uintptr_t)(intptr_t)distance;
		} else {
			continue;
		}
		if (live_is_guarded(guard, target) && is_instruction(live_function_of(guard, place), place, code->end))
			live_branch(guard, place, (intptr_t)(target - place));
	}
}

#endif
