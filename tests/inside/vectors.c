/* Vector registers at a site, at their whole width, while a handler overwrites all of them. Prints the widths that were tried, and exits 1 if one wasn't kept. */
#include <stdio.h>
#include <string.h>

#include "stress.h"
#include "usdt_live.h"

static unsigned char in[32 * 64] __attribute__((aligned(64))), out[32 * 64] __attribute__((aligned(64)));
static int width;

#define SIXTEEN(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15)
#define MORE(F) F(16) F(17) F(18) F(19) F(20) F(21) F(22) F(23) F(24) F(25) F(26) F(27) F(28) F(29) F(30) F(31)
#define FIRE "mov $1,%%edi\n mov $8,%%esi\n call __dtrace_stress___hit\n"
#define LOAD16(n) "movups 16*" #n "(%0),%%xmm" #n "\n"
#define STORE16(n) "movups %%xmm" #n ",16*" #n "(%1)\n"
#define LOAD32(n) "vmovups 32*" #n "(%0),%%ymm" #n "\n"
#define STORE32(n) "vmovups %%ymm" #n ",32*" #n "(%1)\n"
#define LOAD64(n) "vmovups 64*" #n "(%0),%%zmm" #n "\n"
#define STORE64(n) "vmovups %%zmm" #n ",64*" #n "(%1)\n"
#define SPOIL16(n) "pcmpeqd %%xmm" #n ",%%xmm" #n "\n"
#define SPOIL32(n) "vpcmpeqd %%ymm" #n ",%%ymm" #n ",%%ymm" #n "\n"
#define SPOIL64(n) "vpternlogd $255,%%zmm" #n ",%%zmm" #n ",%%zmm" #n "\n"

static void spoil(const usdt_live_hit *hit, void *data)
{
	(void)hit;
	(void)data;
	if (width == 16)
		__asm__ volatile(SIXTEEN(SPOIL16) : : : "memory");
	else if (width == 32)
		__asm__ volatile(SIXTEEN(SPOIL32) : : : "memory");
	else
		__asm__ volatile(SIXTEEN(SPOIL64) MORE(SPOIL64) "kxnorw %%k1,%%k1,%%k1\n kxnorw %%k5,%%k5,%%k5\n" : : : "memory");
}

static int kept(int registers)
{
	return !memcmp(in, out, (size_t)(registers * width));
}

int main(void)
{
	unsigned first = 0x1234, fifth = 0x4321;
	int right = 1, i, zero_above;

	__builtin_cpu_init();
	for (i = 0; i < (int)sizeof in; i++)
		in[i] = (unsigned char)(i * 7 + 3);
	if (usdt_live_probe_on("hit", spoil, NULL) <= 0)
		return 1;
	width = 16;
	__asm__ volatile(SIXTEEN(LOAD16) FIRE SIXTEEN(STORE16) : : "r"(in), "r"(out) : "rdi", "rsi", "memory");
	right &= kept(16);
	printf("16");
	if (__builtin_cpu_supports("avx2")) {
		width = 32;
		__asm__ volatile(SIXTEEN(LOAD32) FIRE SIXTEEN(STORE32) : : "r"(in), "r"(out) : "rdi", "rsi", "memory");
		right &= kept(16);
		/* What was zero above the lower half is zero again. */
		__asm__ volatile("vzeroupper\n" SIXTEEN(LOAD16) FIRE SIXTEEN(STORE32) : : "r"(in), "r"(out) : "rdi", "rsi", "memory");
		for (zero_above = 1, i = 0; i < 16; i++)
			zero_above &= !memcmp(out + 32 * i, in + 16 * i, 16) && !memcmp(out + 32 * i + 16, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
		right &= zero_above;
		printf(" 32");
	}
	if (__builtin_cpu_supports("avx512f")) {
		width = 64;
		__asm__ volatile("kmovw %0,%%k1\n kmovw %1,%%k5\n" : : "r"(first), "r"(fifth));
		__asm__ volatile(
			SIXTEEN(LOAD64) MORE(LOAD64) FIRE SIXTEEN(STORE64) MORE(STORE64) "vzeroupper\n" : : "r"(in), "r"(out) : "rdi", "rsi", "memory");
		__asm__ volatile("kmovw %%k1,%0\n kmovw %%k5,%1\n" : "=r"(first), "=r"(fifth));
		right &= kept(32) && first == 0x1234 && fifth == 0x4321;
		printf(" 64");
	}
	puts(right ? " right" : " WRONG");
	return !right;
}
