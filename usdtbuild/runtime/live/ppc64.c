/*
 * ppc64le: IBM's Power servers in little-endian mode (ELFv2). Instructions have four bytes and are aligned to four. Arguments travel in r3 to r10, the result in r3; lr
 * has the return address, r2 is the pointer to the module's table of addresses (TOC), r1 the stack pointer; the 288 bytes below it belong to leaf functions
 * (ELFv2 ABI, 2.2.2 and 2.2.3).
 *
 * A SITE is one aligned store: `nop` (ori 0,0,0) becomes `b stub`, and back. Both are instructions that may be replaced by each other while other threads
 * run them (Power ISA, book II, "Concurrent Modification and Execution of Instructions"): a thread runs the old one or the new one. A tail's blr
 * isn't: its page is exchanged (text.c). A branch reaches 32 MB.
 *
 * AN ENTRY's NOPs must stand at the local entry point, behind the two instructions that make r2. GCC before 13 puts them before those, so that r2 is wrong, and its
 * assembler refuses most. They are refused here (toc).
 *
 * Condition, count and link registers may be alive at sites, and are kept, as are all registers that C code may change.
 */

#include "internal.h"

#if LIVE_PPC64

#include <string.h>

const unsigned live_stub_size = 160;
const intptr_t live_reach = (intptr_t)30 << 20, live_far_reach = 0;
const int live_has_leave = 0;

enum { FORM_SITE = 1, FORM_TAIL };

#define NOP 0x60000000u
#define RETURN 0x4e800020u

static uint32_t word_at(uintptr_t at)
{
	uint32_t word;

	memcpy(&word, (const void *)at, 4);
	return word;
}

static uint32_t branch(uintptr_t from, uintptr_t to)
{
	return 0x48000000u | ((uint32_t)(to - from) & 0x03fffffcu);
}

/* -- points ------------------------------------------------------------------------------------------------------ */

void live_machine_site(live_point *point)
{
	uint32_t word = word_at(point->shown.address);

	memcpy(point->original, (const void *)point->shown.address, 4);
	point->resume = point->shown.address + 4;
	point->form = word == RETURN ? FORM_TAIL : FORM_SITE;
	if ((word & 0xfc000003u) == 0x48000000u)
		live_refuse(point, "patched", "a branch stands there already: another patcher's");
	else if (word != NOP && word != RETURN && word != 0x7fe00008u && word != 0x7d821008u) /* trap: it may be gone when the point is to be switched on */
		live_refuse(point, "changed", "no NOP stands there");
}

unsigned live_machine_nop(const unsigned char *at, size_t left)
{
	return left >= 4 && word_at((uintptr_t)at) == NOP ? 4 : 0;
}

unsigned live_machine_pad(const unsigned char *at, size_t left)
{
	(void)at;
	(void)left;
	return 0;
}

unsigned live_machine_hotpatch(const unsigned char *at)
{
	(void)at;
	return 0;
}

const char *live_machine_entry_room(const live_point *point, const char **detail)
{
	(void)point;
	*detail = "functions of this machine aren't switched: compilers before GCC 13 put the NOPs where the TOC pointer is made";
	return "toc";
}

void live_machine_entry(live_point *point)
{
	const char *detail, *reason = live_machine_entry_room(point, &detail);

	live_refuse(point, reason, detail);
}

/* -- operands ---------------------------------------------------------------------------------------------------- */

/* Registers r3 to r10 are saved at 128 of a frame of 1,088 bytes, below a stub's of 640. */
enum { SAVED_BYTES = 1088 - 128 + 640 };

/* A register is a bare number, memory 8(9), a constant i5 (usdtbuild/machines/ppc.py). */
int live_machine_operand(const char *text, size_t length, usdt_live_argument_place *place)
{
	const char *at = text, *end = text + length;
	int sign = 1, value = 0, constant = at < end && *at == 'i', base = 0;

	at += constant;
	if (at < end && *at == '-') {
		sign = -1;
		at++;
	}
	if (at == end || *at < '0' || *at > '9')
		return 0;
	while (at < end && *at >= '0' && *at <= '9' && value < 100000000)
		value = value * 10 + (*at++ - '0');
	place->offset = sign * value;
	if (at == end) {
		place->kind = constant ? 2 : 0;
		place->reg = (uint8_t)(value - 3);
		return constant || (sign > 0 && value >= 3 && value <= 10);
	}
	if (constant || *at++ != '(')
		return 0;
	while (at < end && *at >= '0' && *at <= '9' && base < 100)
		base = base * 10 + (*at++ - '0');
	if (at + 1 != end || *at != ')')
		return 0;
	place->kind = base == 1 ? 3 : 1;
	place->offset += base == 1 ? SAVED_BYTES : 0;
	place->reg = (uint8_t)(base - 3);
	return base == 1 || (base >= 3 && base <= 10);
}

int live_machine_parameter(unsigned index, usdt_live_argument_place *place)
{
	place->kind = 0;
	place->reg = (uint8_t)index;
	return index < 8;
}

/* -- steps ------------------------------------------------------------------------------------------------------- */

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
	uint32_t jump = branch(point->shown.address, point->stub), off = point->form == FORM_TAIL ? RETURN : NOP;

	store->at = point->shown.address;
	store->size = store->expected = 4;
	store->by_page = point->form == FORM_TAIL;
	memcpy(store->old, on ? &off : &jump, 4);
	memcpy(store->bytes, on ? &jump : &off, 4);
	return step == 0;
}

/* -- stubs ------------------------------------------------------------------------------------------------------- */

extern void live_ppc64_hit(void) LIVE_HIDDEN;

/* The frame lies below the 288 bytes that a leaf function may use. */
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

void live_machine_stub(live_point *point, unsigned char *stub)
{
	uint64_t words[3] = {(uint64_t)point->count, (uint64_t)point, (uint64_t)live_ppc64_hit};
	size_t end = sizeof site_code - 4;
	uint32_t last = point->form == FORM_TAIL ? RETURN : branch((uintptr_t)stub + end, point->resume);

	memcpy(stub, site_code, sizeof site_code);
	memcpy(stub + end, &last, 4);
	memcpy(stub + COUNT_WORD, words, sizeof words);
}

int live_machine_rights(const live_module *module)
{
	(void)module;
	return 0;
}

int live_machine_hook(uintptr_t at, void (*hook)(void))
{
	(void)at;
	(void)hook;
	return 0;
}

/* Entries are refused, so nothing depends on where branches go. */
void live_machine_jumps(
	live_module *module, const live_segment *code, int (*wanted)(void *, uintptr_t),
	uintptr_t (*function)(void *, uintptr_t), void (*found)(void *, uintptr_t, uintptr_t), void *data)
{
	(void)module;
	(void)code;
	(void)wanted;
	(void)function;
	(void)found;
	(void)data;
}

/*
 * A site was hit; r11 is the point, r12 our address, the stub's frame has r10, r11, r12, cr, lr and ctr. Kept are r0, r2 to r9, xer, fpscr, and of vector and
 * floating-point registers all that C code may change: vs0 to vs31 and v0 to v19.
 */
#define VS "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31"
#define V "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19"
__asm__(
	".pushsection .text.live_ppc64,\"ax\",@progbits\n"
	".machine push\n	.machine power8\n"
	".balign 16\n"
	".globl live_ppc64_hit\n.hidden live_ppc64_hit\n.type live_ppc64_hit,@function\n"
	"live_ppc64_hit:\n"
	"	.cfi_startproc\n"
	"	.cfi_undefined lr\n"
	"	stdu 1,-1088(1)\n"
	"	.irp n,3,4,5,6,7,8,9\n	std \\n,104+8*\\n(1)\n	.endr\n"
	"	ld 10,1216(1)\n	std 10,184(1)\n"
	"	std 0,192(1)\n	std 2,200(1)\n"
	"	mfxer 10\n	std 10,208(1)\n"
	"	mflr 10\n	std 10,216(1)\n"
	"	addi 10,1,240\n	.irp n," VS "\n	stxvd2x \\n,0,10\n	addi 10,10,16\n	.endr\n"
	"	.irp n," V "\n	stvx \\n,0,10\n	addi 10,10,16\n	.endr\n"
	"	mffs 0\n	stfd 0,224(1)\n"
	"	addis 2,12,.TOC.-live_ppc64_hit@ha\n	addi 2,2,.TOC.-live_ppc64_hit@l\n"
	"	mr 3,11\n"
	"	addi 4,1,128\n"
	"	li 5,1\n"
	"	bl live_hit\n	nop\n"
	"	lfd 0,224(1)\n	mtfsf 255,0\n"
	"	addi 10,1,240\n	.irp n," VS "\n	lxvd2x \\n,0,10\n	addi 10,10,16\n	.endr\n"
	"	.irp n," V "\n	lvx \\n,0,10\n	addi 10,10,16\n	.endr\n"
	"	ld 10,216(1)\n	mtlr 10\n"
	"	ld 10,208(1)\n	mtxer 10\n"
	"	ld 10,1256(1)\n	mtctr 10\n" /* the stub's 168 */
	"	ld 0,192(1)\n	ld 2,200(1)\n"
	"	.irp n,3,4,5,6,7,8,9\n	ld \\n,104+8*\\n(1)\n	.endr\n"
	"	addi 1,1,1088\n"
	"	blr\n"
	"	.cfi_endproc\n"
	".size live_ppc64_hit,.-live_ppc64_hit\n"
	".machine pop\n"
	".popsection\n");

#endif
