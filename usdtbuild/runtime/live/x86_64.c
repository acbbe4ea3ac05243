/*
 * x86-64: 64-bit PCs and servers. Code has instructions of 1 to 15 bytes and may be changed while it runs, byte by byte, if every state in
 * between is valid code and every processor executes a serialising instruction before the change counts on it (Intel
 * SDM volume 3, 9.1.3). Arguments travel in rdi, rsi, rdx, rcx, r8, r9; results in rax, rdx. Memory 128 bytes below the stack pointer belongs to leaf functions
 * (psABI 3.2.2). Flags are dead at sites and entries.
 *
 * A PROBE'S SITE is five bytes that begin with a NOP of one byte, 90. Switching it on makes that byte e9, a jump, for which the four others are
 * the distance; so they must be one before it is a jump, and code all along:
 *
 *     90 | 0f 1f 40 XX       nop; nopl XX(%rax)        distance 0xXX401f0f: XX is free, in steps of 16 MB
 *     90 | 0f 1f 44 XX 00    nop; nopl 0(%rax,…)       distance 0xXX441f0f, and one byte more to skip
 *     90 | 0f 1f 00 c3       nop; nopl (%rax); ret     distance 0xc3001f0f, always
 *     90 | c3 XX XX XX       nop; ret; …               distance 0xXXXXXXc3: nothing runs behind a ret
 *
 * On: 1. the free bytes (still the same instructions); every thread sees it. 2. e9, in place of 90. A thread that stood behind the
 * NOP finds the instruction that was always there. Off: 90, in place of e9. The free bytes, and what they lead to, stay for threads on their
 * way. Never are the five bytes replaced as a whole: a thread, or a kernel that resumes behind its breakpoint, may stand at the second.
 *
 * Where the distance leads is a "mirror", five bytes of memory mapped there for the purpose, with a jump to the point's stub.
 *
 * AN ENTRY has five bytes of padding before the function and two of NOPs in it. On: 1. `jmp stub` into the padding, which nothing runs. 2. The entry's
 * second byte, the distance back to the padding: with the first still a NOP of one byte it is an instruction by itself, stc, clc or cmc, and
 * with one of two bytes (66 90) its operand-size variant. 3. The first byte, eb. Off in reverse. A longer first NOP has no such
 * state in between (0f 1f 00 becomes 0f f9 00, psubw: refused).
 */

#include "internal.h"

#if defined(__x86_64__) && !defined(__ILP32__)

#include <string.h>
#include <sys/mman.h>

#include "x86_64.h"

const unsigned live_stub_size = 64;
const intptr_t live_reach = (intptr_t)1 << 30, live_far_reach = 0;
const int live_has_leave = 1;

const struct live_form live_forms[] = {
	[FORM_NOPL4] = {{0x90, 0x0f, 0x1f, 0x40, 0x00}, {255, 255, 255, 255, 255}, 5, {0x0f, 0x1f, 0x40}},
	[FORM_NOPL5] = {{0x90, 0x0f, 0x1f, 0x44, 0x00, 0x00}, {255, 255, 255, 255, 255, 255}, 6, {0x0f, 0x1f, 0x44}},
	[FORM_TAIL] = {{0x90, 0x0f, 0x1f, 0x00, 0xc3}, {255, 255, 255, 255, 255}, 0, {0x0f, 0x1f, 0x00}},
	/* nopl (%rax) behind the return, or nopl 0(%rax) where the tail call went through the GOT */
	[FORM_FREE_TAIL] = {{0x90, 0xc3, 0x0f, 0x1f, 0x00}, {255, 255, 255, 255, 0xbf}, 0, {0}},
};

/* -- points ------------------------------------------------------------------------------------------------------ */

void live_machine_site(live_point *point)
{
	const uint8_t *at = (const uint8_t *)point->shown.address;
	unsigned form, i;

	for (form = FORM_NOPL4; form <= FORM_FREE_TAIL; form++) {
		const struct live_form *f = &live_forms[form];

		/* A breakpoint that stands there now may be gone when the point is to be switched on. */
		for (i = 0; i < 6 && (!((at[i] ^ f->bytes[i]) & f->mask[i]) || (i == 0 && at[0] == 0xcc)); i++)
			;
		if (i < 6)
			continue;
		point->form = (uint8_t)form;
		point->resume = f->length ? point->shown.address + f->length : 0;
		memcpy(point->original, at, 8);
		point->original[0] = 0x90;
		return;
	}
	if (at[0] == 0xe9)
		live_refuse(point, "patched", "a jump stands there already: another patcher's");
	else if (at[0] == 0x90 && at[1] == 0x0f && at[2] == 0x1f && (at[3] == 0x40 || at[3] == 0x44) && at[4])
		live_refuse(point, "patched", "another patcher has prepared it");
	else if (!memcmp(at, "\x0f\x1f\x44", 3))
		live_refuse(point, "nop5", "a NOP of five bytes stands there, which can't be replaced in steps; build without --nop=nop5");
	else if (!memcmp(at, "\x90\x90\x90\x90\x90", 5))
		live_refuse(point, "classic", "five NOPs of one byte stand there, and threads may be between them; build without --nop=classic");
	else if (at[0] == 0x90 || at[0] == 0xc3)
		live_refuse(point, "too-small", "the NOP has no room for a jump: a stub that is called, a conditional tail call, or a probe of sys/sdt.h");
	else
		live_refuse(point, "changed", "no NOP stands there");
}

unsigned live_machine_nop(const unsigned char *at, size_t left)
{
	size_t i = 0, end;

	while (i < left && i < 14 && at[i] == 0x66)
		i++;
	if (i < left && at[i] == 0x90)
		return (unsigned)i + 1;
	for (i = 0; i < left && i < 12 && (at[i] == 0x66 || at[i] == 0x2e); i++)
		;
	if (left < i + 3 || at[i] != 0x0f || at[i + 1] != 0x1f)
		return 0;
	switch (at[i + 2]) {
	case 0x00: end = i + 3; break;
	case 0x40: end = i + 4; break;
	case 0x44: end = i + 5; break;
	case 0x80: end = i + 7; break;
	case 0x84: end = i + 8; break;
	default: return 0;
	}
	return end <= left && end <= 15 ? (unsigned)end : 0;
}

unsigned live_machine_pad(const unsigned char *at, size_t left)
{
	return left >= 4 && !memcmp(at, "\xf3\x0f\x1e\xfa", 4) ? 4 : 0;
}

unsigned live_machine_hotpatch(const unsigned char *at)
{
	(void)at;
	return 0;
}

const char *live_machine_entry_room(const live_point *point, const char **detail)
{
	unsigned second = (unsigned)-(2 + point->landing_pad + point->padding) & 255;

	if (point->padding < 5 || point->nops < 2) {
		*detail = "a patch needs five bytes of padding and two of NOPs at the entry";
		return "too-small";
	}
	if (second != 0xf5 && second != 0xf8 && second != 0xf9) {
		*detail = "the second byte of a jump from the entry to its padding would be a harmful instruction";
		return "hlt";
	}
	return NULL;
}

void live_machine_entry(live_point *point)
{
	if (point->first_nop > 2) {
		live_refuse(point, "long-nop", "the entry's first NOP has more than two bytes: a state in between would be an instruction that faults");
		return;
	}
	point->form = FORM_ENTRY;
	point->resume = point->shown.address + point->nops;
	memcpy(point->original, (const void *)point->shown.address, 8);
}

/* -- operands ---------------------------------------------------------------------------------------------------- */

/* The order in which live_x86_probe saves registers. */
static const char *const saved_registers[][4] = {
	{"rax", "eax", "ax", "al"}, {"rcx", "ecx", "cx", "cl"}, {"rdx", "edx", "dx", "dl"}, {"rsi", "esi", "si", "sil"},
	{"rdi", "edi", "di", "dil"}, {"r8", "r8d", "r8w", "r8b"}, {"r9", "r9d", "r9w", "r9b"},
	{"r10", "r10d", "r10w", "r10b"}, {"r11", "r11d", "r11w", "r11b"},
};
enum { SAVED_BYTES = 9 * 8 + 8 + 128 }; /* up to the interrupted stack pointer */

int live_machine_operand(const char *text, size_t length, usdt_live_argument_place *place)
{
	const char *end = text + length, *at = text;
	unsigned i, j;
	int sign = 1;
	long number = 0;

	if (at < end && *at == '$') { /* $5 */
		at++;
		place->kind = 2;
	} else if (at < end && *at == '%') {
		for (i = 0; i < sizeof saved_registers / sizeof *saved_registers; i++)
			for (j = 0; j < 4; j++)
				if (strlen(saved_registers[i][j]) == length - 1 && !memcmp(saved_registers[i][j], at + 1, length - 1)) {
					place->kind = 0;
					place->reg = (uint8_t)i;
					return 1;
				}
		return 0;
	}
	if (at < end && *at == '-') {
		sign = -1;
		at++;
	}
	while (at < end && *at >= '0' && *at <= '9' && number < 100000000)
		number = number * 10 + (*at++ - '0');
	place->offset = (int32_t)(sign * number);
	if (place->kind == 2)
		return at == end;
	if (end - at == 6 && !memcmp(at, "(%rsp)", 6)) {
		place->kind = 3;
		place->offset += SAVED_BYTES;
		return 1;
	}
	for (i = 0; i < sizeof saved_registers / sizeof *saved_registers; i++) {
		size_t name = strlen(saved_registers[i][0]);

		if ((size_t)(end - at) == name + 3 && at[0] == '(' && at[1] == '%' && !memcmp(at + 2, saved_registers[i][0], name) && end[-1] == ')') {
			place->kind = 1;
			place->reg = (uint8_t)i;
			return 1;
		}
	}
	return 0;
}

/* live_x86_enter saves rax, rcx, rdx, rsi, rdi, r8, r9, r10. */
int live_machine_parameter(unsigned index, usdt_live_argument_place *place)
{
	static const uint8_t order[] = {4, 3, 2, 1, 5, 6};

	if (index >= 6)
		return 0;
	place->kind = 0;
	place->reg = order[index];
	return 1;
}

/* -- steps ------------------------------------------------------------------------------------------------------- */

static int one_byte(live_store *store, uintptr_t at, unsigned old, unsigned byte)
{
	store->at = at;
	store->size = store->expected = 1;
	store->old[0] = (uint8_t)old;
	store->bytes[0] = (uint8_t)byte;
	return 1;
}

static int entry_step(const live_point *point, int on, int step, live_store *store)
{
	uintptr_t at = point->shown.address, padding = at - point->landing_pad - point->padding;
	unsigned back = (unsigned)(padding - at - 2) & 255;

	if (on && step == 0) {
		store->at = padding;
		store->size = 5;
		store->bytes[0] = 0xe9;
		put32(store->bytes + 1, point->stub - padding - 5);
		return 1;
	}
	if (on)
		return step == 1   ? one_byte(store, at + 1, point->original[1], back)
			: step == 2 ? one_byte(store, at, point->original[0], 0xeb)
				    : 0;
	return step == 0   ? one_byte(store, at, 0xeb, point->original[0])
		: step == 1 ? one_byte(store, at + 1, back, point->original[1])
			    : 0;
}

int live_machine_step(const live_point *point, int on, int step, live_store *store)
{
	uintptr_t at = point->shown.address;

	if (point->form == FORM_ENTRY)
		return entry_step(point, on, step, store);
	if (!on)
		return step == 0 && one_byte(store, at, 0xe9, 0x90);
	if (step == 0) {
		unsigned char distance[4];

		put32(distance, point->landing - at - 5);
		store->expected = 0;
		if (point->form == FORM_FREE_TAIL) {
			store->at = at + 2;
			store->size = 3;
			memcpy(store->bytes, distance + 1, 3);
		} else if (point->form != FORM_TAIL) {
			one_byte(store, at + 4, 0, distance[3]);
		}
		if (store->size && !memcmp((const void *)store->at, store->bytes, store->size))
			store->size = 0;
		return 1;
	}
	return step == 1 && one_byte(store, at, 0x90, 0xe9);
}

/* -- stubs ------------------------------------------------------------------------------------------------------- */

extern void live_x86_probe(void) LIVE_HIDDEN;
extern void live_x86_enter(void) LIVE_HIDDEN;

/*
 *  0  cmpl $0,armed       7  jne 22      9  lock incq count      17  jmp resume, or ret
 * 22  probes: lea -128(%rsp),%rsp; call *48; lea 128(%rsp),%rsp; jmp resume, or ret
 * 22  entries: call *48; notrack jmp *%r11
 * 48  what is called      56  the point
 *
 * With handlers, what is called counts: a load behind a locked instruction would have to wait for it.
 */
void live_machine_stub(live_point *point, unsigned char *stub)
{
	static const unsigned char probe[] = {
		0x83, 0x3d, 0, 0, 0, 0, 0, 0x75, 13, 0xf0, 0x48, 0xff, 0x05, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0,
		0x48, 0x8d, 0x64, 0x24, 0x80, 0xff, 0x15, 15, 0, 0, 0, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0, 0xe9, 0, 0, 0, 0};
	static const unsigned char entry[] = {0xff, 0x15, 20, 0, 0, 0, 0x3e, 0x41, 0xff, 0xe3};
	uintptr_t at = (uintptr_t)stub, called = (uintptr_t)live_x86_probe, self = (uintptr_t)point;

	memset(stub, 0xcc, 64);
	memcpy(stub, probe, sizeof probe);
	put32(stub + 2, (uintptr_t)&point->armed - at - 7);
	put32(stub + 13, (uintptr_t)point->count - at - 17);
	if (point->resume) {
		put32(stub + 18, point->resume - at - 22);
		put32(stub + 42, point->resume - at - 46);
	} else {
		stub[17] = stub[41] = 0xc3;
	}
	if (point->form == FORM_ENTRY) {
		memcpy(stub + 22, entry, sizeof entry);
		called = (uintptr_t)live_x86_enter;
	}
	memcpy(stub + 48, &called, 8);
	memcpy(stub + 56, &self, 8);
}

int live_machine_rights(const live_module *module)
{
	(void)module;
	return 0;
}

/* -- the dynamic linker's hook ----------------------------------------------------------------------------------- */

/* An empty function, `ret`, perhaps behind endbr64. What follows the ret is padding: the jump's distance goes there first. */
int live_machine_hook(uintptr_t at, void (*hook)(void))
{
	const unsigned char *code = (const unsigned char *)(at += live_machine_pad((const unsigned char *)at, 4));
	unsigned char jump[5] = {0xe9}, *far;

	if (code[0] != 0xc3 || live_machine_nop(code + 1, 15) + 1 < 5)
		return 0;
	far = live_map_near(at, at + 5, live_page(), live_reach);
	if (!far)
		return 0;
	memcpy(far, "\xff\x25\x00\x00\x00\x00", 6); /* jmp *0(%rip) */
	memcpy(far + 6, &hook, 8);
	if (!live_make_executable(far, live_page()))
		return 0;
	put32(jump + 1, (uintptr_t)far - at - 5);
	if (!live_write_code(at + 1, jump + 1, 4))
		return 0;
	live_barrier();
	return live_write_code(at, jump, 1);
}

#endif
