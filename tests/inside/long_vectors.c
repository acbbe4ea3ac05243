/* aarch64: vector registers of any length (SVE) and predicates at a site, while a handler overwrites them. Prints their length in bytes, 0 where there are none. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

#include "stress.h"
#include "usdt_live.h"

enum { LONGEST = 256 };

static unsigned char in[32 * LONGEST] __attribute__((aligned(64))), out[32 * LONGEST] __attribute__((aligned(64)));
static unsigned char in_p[17 * LONGEST / 8], out_p[17 * LONGEST / 8];
static unsigned handled;

#define EACH(F, ...) \
	F(0, __VA_ARGS__) F(1, __VA_ARGS__) F(2, __VA_ARGS__) F(3, __VA_ARGS__) F(4, __VA_ARGS__) F(5, __VA_ARGS__) F(6, __VA_ARGS__) F(7, __VA_ARGS__) \
	F(8, __VA_ARGS__) F(9, __VA_ARGS__) F(10, __VA_ARGS__) F(11, __VA_ARGS__) F(12, __VA_ARGS__) F(13, __VA_ARGS__) F(14, __VA_ARGS__) F(15, __VA_ARGS__)
#define MORE(F, ...) \
	F(16, __VA_ARGS__) F(17, __VA_ARGS__) F(18, __VA_ARGS__) F(19, __VA_ARGS__) F(20, __VA_ARGS__) F(21, __VA_ARGS__) F(22, __VA_ARGS__) F(23, __VA_ARGS__) \
	F(24, __VA_ARGS__) F(25, __VA_ARGS__) F(26, __VA_ARGS__) F(27, __VA_ARGS__) F(28, __VA_ARGS__) F(29, __VA_ARGS__) F(30, __VA_ARGS__) F(31, __VA_ARGS__)
#define VECTOR(n, op, at) op " z" #n ", [" at ", " #n ", mul vl]\n"
#define PREDICATE(n, op, at) op " p" #n ", [" at ", " #n ", mul vl]\n"
#define SPOIL_VECTOR(n, x) "mov z" #n ".b, 85\n"
#define SPOIL_PREDICATE(n, x) "pfalse p" #n ".b\n"

static void spoil(const usdt_live_hit *hit, void *data)
{
	(void)data;
	handled += usdt_live_argument(hit, 0) == 1 && usdt_live_argument(hit, 1) == 8;
	if (getauxval(AT_HWCAP) >> 22 & 1)
		__asm__ volatile(".arch_extension sve\n" EACH(SPOIL_VECTOR, ) MORE(SPOIL_VECTOR, ) EACH(SPOIL_PREDICATE, ) "setffr\n" : : : "memory");
}

int main(void)
{
	uint64_t bytes;
	int i;

	if (!(getauxval(AT_HWCAP) >> 22 & 1)) {
		puts("0");
		return 0;
	}
	for (i = 0; i < (int)sizeof in; i++)
		in[i] = (unsigned char)(i * 7 + 3);
	for (i = 0; i < (int)sizeof in_p; i++)
		in_p[i] = (unsigned char)(i * 5 + 1);
	if (usdt_live_probe_on("hit", spoil, NULL) <= 0)
		return 1;
	__asm__ volatile(".arch_extension sve\n rdvl %0, 1\n" : "=r"(bytes));
	memset(in_p + 16 * (bytes / 8), 0, bytes / 8);
	in_p[16 * (bytes / 8)] = 7; /* what the first-fault register holds is a run of ones from the first on */
	__asm__ volatile(
		".arch_extension sve\n"
		"mov x19, %0\n mov x20, %1\n mov x21, %2\n mov x22, %3\n"
		"ldr p0, [x21, 16, mul vl]\n wrffr p0.b\n" EACH(PREDICATE, "ldr", "x21") EACH(VECTOR, "ldr", "x19") MORE(VECTOR, "ldr", "x19")
		"mov w0, 1\n mov x1, 8\n bl __dtrace_stress___hit\n"
		EACH(VECTOR, "str", "x20") MORE(VECTOR, "str", "x20") EACH(PREDICATE, "str", "x22") "rdffr p0.b\n str p0, [x22, 16, mul vl]\n"
		: : "r"(in), "r"(out), "r"(in_p), "r"(out_p)
		: "x0", "x1", "x19", "x20", "x21", "x22", "x30", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",
		"v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
	printf("%d\n", (int)bytes);
	return handled != 1 || memcmp(in, out, 32 * bytes) != 0 || memcmp(in_p, out_p, 17 * (bytes / 8)) != 0;
}
