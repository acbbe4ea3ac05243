/*
 * x86-64: 64-bit PCs and servers. Code has instructions of 1 to 15 bytes and may be changed while it runs, byte by byte, if every state in
 * between is valid code and every processor executes a serialising instruction before the change counts on it (Intel
 * SDM volume 3, 9.1.3). Arguments travel in rdi, rsi, rdx, rcx, r8, r9; results in rax, rdx. Memory 128 bytes below the stack pointer
 * belongs to leaf functions (psABI 3.2.2). Flags are dead at sites and entries.
 *
 * A PROBE'S SITE is five bytes that begin with a NOP of one byte, 90. Switching it on makes that byte e9, a jump, for which the four others
 * are the distance; so they must be one before it is a jump, and code all along:
 *
 *     90 | 0f 1f 40 XX       nop; nopl XX(%rax)        distance 0xXX401f0f: XX is free, in steps of 16 MB
 *     90 | 0f 1f 44 XX 00    nop; nopl 0(%rax,…)       distance 0xXX441f0f, and one byte more to skip
 *     90 | 0f 1f 00 c3       nop; nopl (%rax); ret     distance 0xc3001f0f, always
 *     90 | c3 XX XX XX       nop; ret; …               distance 0xXXXXXXc3: nothing runs behind a ret
 *
 * On: 1. the free bytes (still the same instructions); every thread sees it. 2. e9, in place of 90. A thread that stood behind the
 * NOP finds the instruction that was always there. Off: 90, in place of e9. The free bytes, and what they lead to, stay for threads on
 * their way. Never are the five bytes replaced as a whole: a thread, or a kernel that resumes behind its breakpoint, may stand at the
 * second.
 *
 * Where the distance leads is a "mirror", five bytes of memory mapped there for the purpose, with a jump to the point's trampoline.
 *
 * AN ENTRY has five bytes of padding before the function and two of NOPs in it. On: 1. `jmp trampoline` into the padding, which nothing
 * runs. 2. The entry's second byte, the distance back to the padding: with the first still a NOP of one byte it is an instruction by
 * itself, stc, clc or cmc, and with one of two bytes (66 90) its operand-size variant. 3. The first byte, eb. Off in reverse. A longer
 * first NOP has no such state in between (0f 1f 00 becomes 0f f9 00, psubw: refused).
 */

#include "internal.h"

#if defined(__x86_64__) && !defined(__ILP32__)

#include <string.h>
#include <sys/mman.h>

#include "x86_64.h"

const unsigned live_trampoline_size = 64;
const intptr_t live_reach = (intptr_t)1 << 30, live_far_reach = 0;

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
		live_refuse(point, "too-small",
			"the NOP has no room for a jump: compile with -DUSDT_LIVE, and with a header of usdtbuild in place of sys/sdt.h; a stub that is called and a conditional tail call never have it");
	else
		live_refuse(point, "changed", "no NOP stands there");
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
		live_refuse(
			point, "long-nop", "the entry's first NOP has more than two bytes: a state in between would be an instruction that faults");
		return;
	}
	live_plain_entry(point);
}

/* -- operands ---------------------------------------------------------------------------------------------------- */

/* The order in which live_x86_probe saves registers. */
static const char *const saved_registers[][4] = {
	{"rcx", "ecx", "cx", "cl"},
	{"rdx", "edx", "dx", "dl"},
	{"rsi", "esi", "si", "sil"},
	{"rdi", "edi", "di", "dil"},
	{"r8", "r8d", "r8w", "r8b"},
	{"r9", "r9d", "r9w", "r9b"},
	{"r10", "r10d", "r10w", "r10b"},
	{"r11", "r11d", "r11w", "r11b"},
	{"-", "-", "-", "-"},
	{"rax", "eax", "ax", "al"},
};
const uint8_t live_parameters[] = {6, 4, 3, 2, 1, 5, 6}; /* of rax, rcx, rdx, rsi, rdi, r8, r9, r10 */
enum { SAVED_BYTES = 10 * 8 + 128 }; /* up to the interrupted stack pointer */

int live_machine_operand(const char *text, size_t length, usdt_live_argument_place *place)
{
	const char *end = text + length, *at = text;
	unsigned i, j;
	int digits;

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
	digits = live_number(&at, end, &place->offset);
	if (place->kind == 2)
		return digits && at == end;
	if (!digits && at != text) /* a sign alone */
		return 0;
	if (end - at == 6 && !memcmp(at, "(%rsp)", 6)) {
		place->kind = 3;
		place->offset += SAVED_BYTES;
		return 1;
	}
	for (i = 0; i < sizeof saved_registers / sizeof *saved_registers; i++) {
		size_t name = strlen(saved_registers[i][0]);

		if ((size_t)(end - at) == name + 3 && at[0] == '(' && at[1] == '%' && !memcmp(at + 2, saved_registers[i][0], name)
			&& end[-1] == ')') {
			place->kind = 1;
			place->reg = (uint8_t)i;
			return 1;
		}
	}
	return 0;
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
		put32(store->bytes + 1, point->trampoline - padding - 5);
		return 1;
	}
	/* Who takes out a breakpoint puts back the first byte only. */
	if (on && step == 1 && *(const uint8_t *)(at + 1) == back)
		return 1;
	if (on)
		return step == 1 ? one_byte(store, at + 1, point->original[1], back)
			: step == 2  ? one_byte(store, at, point->original[0], 0xeb)
						 : 0;
	return step == 0 ? one_byte(store, at, 0xeb, point->original[0]) : step == 1 ? one_byte(store, at + 1, back, point->original[1]) : 0;
}

int live_machine_step(const live_point *point, int on, int step, live_store *store)
{
	uintptr_t at = point->shown.address;

	if (point->form == LIVE_ENTRY)
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
		if (store->size == 1 ? *(const uint8_t *)store->at == store->bytes[0] : !memcmp((const void *)store->at, store->bytes, store->size))
			store->size = 0;
		return 1;
	}
	return step == 1 && one_byte(store, at, 0x90, 0xe9);
}

/* -- trampolines ------------------------------------------------------------------------------------------------- */

extern void live_x86_probe(void) LIVE_HIDDEN;
extern void live_x86_enter(void) LIVE_HIDDEN;

/*
 * A trampoline's code; which of the four depends on the point. Where the thread has no cells yet, what is called gives it some, and counts.
 * With handlers, what is called counts. Entries step over no red zone: none is in use there.
 *
 *     probe, in cells                          entry, in cells
 *      0  add $-128,%rsp; push %rax             0  cmpl $0,armed; jne 45
 *      5  mov %fs:cells,%rax                    9  push %rax
 *     14  cmpl $0,armed; jne 45                10  mov %fs:cells,%rax
 *     23  test %rax,%rax; je 45                19  test %rax,%rax; je 44
 *     28  incq cell(%rax)                      24  incq cell(%rax)
 *     35  pop %rax; sub $-128,%rsp             31  pop %rax
 *     40  jmp resume, or ret                   32  jmp resume
 *     45  call *called                         44  pop %rax; call *called
 *     51  jmp 35                               51  notrack jmp *%r11
 *
 *     probe, locked                            entry, locked
 *      0  cmpl $0,armed; jne 40                 0  cmpl $0,armed; jne 45
 *      9  lock incq count                       9  lock incq count
 *     17  jmp resume, or ret                   17  jmp resume
 *     22  pop %rax; sub $-128,%rsp             45  call *called
 *     27  jmp resume, or ret                   51  notrack jmp *%r11
 *     40  add $-128,%rsp; push %rax
 *     45  call *called
 *     51  jmp 22
 *
 * 56 the point, which what is called finds from its return address.
 */
/* clang-format off */
static const unsigned char trampolines[4][56] = {
	{0x48, 0x83, 0xc4, 0x80, 0x50, 0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x83, 0x3d, 0, 0, 0, 0, 0, 0x75, 22,
		0x48, 0x85, 0xc0, 0x74, 17, 0x48, 0xff, 0x80, 0, 0, 0, 0, 0x58, 0x48, 0x83, 0xec, 0x80, 0xe9, 0, 0, 0, 0,
		0xff, 0x15, 0, 0, 0, 0, 0xeb, 0xee, 0xcc, 0xcc, 0xcc},
	{0x83, 0x3d, 0, 0, 0, 0, 0, 0x75, 36, 0x50, 0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0,
		0x48, 0x85, 0xc0, 0x74, 20, 0x48, 0xff, 0x80, 0, 0, 0, 0, 0x58, 0xe9, 0, 0, 0, 0, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
		0x58, 0xff, 0x15, 0, 0, 0, 0, 0x3e, 0x41, 0xff, 0xe3, 0xcc},
	{0x83, 0x3d, 0, 0, 0, 0, 0, 0x75, 31, 0xf0, 0x48, 0xff, 0x05, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0,
		0x58, 0x48, 0x83, 0xec, 0x80, 0xe9, 0, 0, 0, 0, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
		0x48, 0x83, 0xc4, 0x80, 0x50, 0xff, 0x15, 0, 0, 0, 0, 0xeb, 0xe1, 0xcc, 0xcc, 0xcc},
	{0x83, 0x3d, 0, 0, 0, 0, 0, 0x75, 36, 0xf0, 0x48, 0xff, 0x05, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0,
		0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
		0xff, 0x15, 0, 0, 0, 0, 0x3e, 0x41, 0xff, 0xe3, 0xcc},
};
/* clang-format on */

/* Where each has its numbers; 0: nowhere. */
static const struct {
	uint8_t cells, armed, cell, count, resume[2];
} places[4] = {
	{10, 16, 31, 0, {41, 0}},
	{15, 2, 27, 0, {33, 0}},
	{0, 2, 0, 13, {18, 28}},
	{0, 2, 0, 13, {18, 0}},
};

static uintptr_t cells_in_thread(void)
{
	uintptr_t offset;

	__asm__("mov live_cells@gottpoff(%%rip),%0" : "=r"(offset));
	return offset;
}

void live_machine_trampoline(live_point *point, unsigned char *trampoline)
{
	unsigned kind = (point->form == LIVE_ENTRY) + (point->cell ? 0u : 2u), i;
	uintptr_t at = (uintptr_t)trampoline, self = (uintptr_t)point;

	point->called = (uintptr_t)(point->form == LIVE_ENTRY ? live_x86_enter : live_x86_probe);
	memcpy(trampoline, trampolines[kind], 56);
	memcpy(trampoline + 56, &self, 8);
	put32(trampoline + places[kind].armed, (uintptr_t)&point->armed - at - places[kind].armed - 5); /* a byte of it follows */
	put32(trampoline + 47, (uintptr_t)&point->called - at - 51);
	if (point->cell) {
		put32(trampoline + places[kind].cells, cells_in_thread());
		put32(trampoline + places[kind].cell, point->cell);
	} else {
		put32(trampoline + places[kind].count, (uintptr_t)point->count - at - 17);
	}
	for (i = 0; i < 2 && places[kind].resume[i]; i++) {
		if (point->resume)
			put32(trampoline + places[kind].resume[i], point->resume - at - places[kind].resume[i] - 4);
		else
			trampoline[places[kind].resume[i] - 1] = 0xc3;
	}
}

/* -- the dynamic linker's hook ----------------------------------------------------------------------------------- */

/* An empty function, `ret`, perhaps behind endbr64. What follows the ret is padding: the jump's distance goes there first. */
int live_machine_hook(uintptr_t at, void (*hook)(void))
{
	const unsigned char *code = (const unsigned char *)(at += live_machine_pad((const unsigned char *)at, 4));
	unsigned char jump[5] = {0xe9}, *far;

	if (code[0] != 0xc3 || live_machine_nop(code + 1, 15) + 1 < 5)
		return 0;
	far = live_hook_mirror(at, "\xff\x25\x00\x00\x00\x00", 6, hook); /* jmp *0(%rip) */
	if (!far)
		return 0;
	put32(jump + 1, (uintptr_t)far - at - 5);
	if (!live_write_code(at + 1, jump + 1, 4))
		return 0;
	live_barrier();
	return live_write_code(at, jump, 1);
}

#endif
