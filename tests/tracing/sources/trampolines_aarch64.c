/* Runs trampolines that Python has written, under qemu: `trampolines FILE what [n]`. The file lies at TRAMPOLINES with its counters, rings
   are at RINGS, and each line of standard input is a site's address and the word to put there. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TRAMPOLINES 0x5000000ul
#define RINGS 0x1000000000ul
#define CELL 0x2000000000ul
#define TEXTS 0x3000000000ul
#define SIZE (16ul << 20)

struct all {
	uint64_t x[31], flags;
	uint64_t v[32][2];
	uint64_t sp;
};

/* Loads all registers, passes the site, and stores them all. */
extern void pass_all(const struct all *in, struct all *out);
extern uint32_t site_all[];
/* Passes a site with three numbers and a text, with data alive; returns whether that is as it was. */
extern int pass_one(long n, const char *text);
extern uint32_t site_one[];
/* Calls a function through a register, and through a stub as linkers write them. */
extern long call_register(long (*f)(long), long n), call_stub(long n);
extern uint32_t site_call[], site_stub[];
long (*slot)(long);

__asm__(
	"	.text\n"
	"	.globl pass_all, site_all\n"
	"pass_all:\n"
	"	sub sp, sp, #240\n"
	"	stp x19, x20, [sp, #16]\n	stp x21, x22, [sp, #32]\n	stp x23, x24, [sp, #48]\n	stp x25, x26, [sp, #64]\n"
	"	stp x27, x28, [sp, #80]\n	stp x29, x30, [sp, #96]\n	stp d8, d9, [sp, #112]\n	stp d10, d11, [sp, #128]\n"
	"	stp d12, d13, [sp, #144]\n	stp d14, d15, [sp, #160]\n	str x1, [sp, #176]\n"
	"	movz x2, #0x5747\n	str x2, [sp, #8]\n" /* what operands find on the stack */
	"	add x2, x0, #256\n"
	"	ld1 {v0.2d-v3.2d}, [x2], #64\n	ld1 {v4.2d-v7.2d}, [x2], #64\n	ld1 {v8.2d-v11.2d}, [x2], #64\n"
	"	ld1 {v12.2d-v15.2d}, [x2], #64\n	ld1 {v16.2d-v19.2d}, [x2], #64\n	ld1 {v20.2d-v23.2d}, [x2], #64\n"
	"	ld1 {v24.2d-v27.2d}, [x2], #64\n	ld1 {v28.2d-v31.2d}, [x2], #64\n"
	"	ldr x2, [x0, #248]\n	msr nzcv, x2\n"
	"	ldp x2, x3, [x0, #16]\n	ldp x4, x5, [x0, #32]\n	ldp x6, x7, [x0, #48]\n	ldp x8, x9, [x0, #64]\n"
	"	ldp x10, x11, [x0, #80]\n	ldp x12, x13, [x0, #96]\n	ldp x14, x15, [x0, #112]\n	ldp x16, x17, [x0, #128]\n"
	"	ldp x18, x19, [x0, #144]\n	ldp x20, x21, [x0, #160]\n	ldp x22, x23, [x0, #176]\n	ldp x24, x25, [x0, #192]\n"
	"	ldp x26, x27, [x0, #208]\n	ldp x28, x29, [x0, #224]\n	ldr x30, [x0, #240]\n	ldp x0, x1, [x0]\n"
	"site_all:\n"
	"	nop\n"
	"	stp x0, x1, [sp, #192]\n	ldr x0, [sp, #176]\n	mov x1, sp\n	str x1, [x0, #768]\n"
	"	ldr x1, [sp, #200]\n"
	"	stp x2, x3, [x0, #16]\n	stp x4, x5, [x0, #32]\n	stp x6, x7, [x0, #48]\n	stp x8, x9, [x0, #64]\n"
	"	stp x10, x11, [x0, #80]\n	stp x12, x13, [x0, #96]\n	stp x14, x15, [x0, #112]\n	stp x16, x17, [x0, #128]\n"
	"	stp x18, x19, [x0, #144]\n	stp x20, x21, [x0, #160]\n	stp x22, x23, [x0, #176]\n	stp x24, x25, [x0, #192]\n"
	"	stp x26, x27, [x0, #208]\n	stp x28, x29, [x0, #224]\n	str x30, [x0, #240]\n"
	"	mrs x2, nzcv\n	str x2, [x0, #248]\n"
	"	add x2, x0, #256\n"
	"	st1 {v0.2d-v3.2d}, [x2], #64\n	st1 {v4.2d-v7.2d}, [x2], #64\n	st1 {v8.2d-v11.2d}, [x2], #64\n"
	"	st1 {v12.2d-v15.2d}, [x2], #64\n	st1 {v16.2d-v19.2d}, [x2], #64\n	st1 {v20.2d-v23.2d}, [x2], #64\n"
	"	st1 {v24.2d-v27.2d}, [x2], #64\n	st1 {v28.2d-v31.2d}, [x2], #64\n"
	"	ldp x2, x3, [sp, #192]\n	stp x2, x3, [x0]\n"
	"	ldp x19, x20, [sp, #16]\n	ldp x21, x22, [sp, #32]\n	ldp x23, x24, [sp, #48]\n	ldp x25, x26, [sp, #64]\n"
	"	ldp x27, x28, [sp, #80]\n	ldp x29, x30, [sp, #96]\n	ldp d8, d9, [sp, #112]\n	ldp d10, d11, [sp, #128]\n"
	"	ldp d12, d13, [sp, #144]\n	ldp d14, d15, [sp, #160]\n	add sp, sp, #240\n	ret\n"

	"	.globl pass_one, site_one\n"
	"pass_one:\n"
	"	add x2, x0, x0, lsl #1\n	mvn x3, x0\n	mov x16, x2\n	mov x17, x3\n	mov x15, x30\n	cmp x2, x3\n	cset w4, gt\n	cmp x2, x3\n"
	"site_one:\n"
	"	nop\n"
	"	cset w5, gt\n	cmp w4, w5\n	ccmp x16, x2, #0, eq\n	ccmp x17, x3, #0, eq\n	ccmp x15, x30, #0, eq\n	cset w0, eq\n	ret\n"

	"	.globl call_register, site_call, call_stub, site_stub\n"
	"call_register:\n"
	"	stp x29, x30, [sp, #-16]!\n	mov x9, x0\n	mov x0, x1\n"
	"site_call:\n"
	"	blr x9\n"
	"	add x0, x0, #1\n	ldp x29, x30, [sp], #16\n	ret\n"
	"call_stub:\n"
	"	stp x29, x30, [sp, #-16]!\n	bl site_stub\n	add x0, x0, #1\n	ldp x29, x30, [sp], #16\n	ret\n"
	"site_stub:\n"
	"	hint #34\n	adrp x16, slot\n	ldr x17, [x16, #:lo12:slot]\n	add x16, x16, #:lo12:slot\n	br x17\n"
);

static void put(uint32_t *at, uint32_t word)
{
	*(volatile uint32_t *)at = word;
	__builtin___clear_cache((char *)at, (char *)(at + 1));
}

static void *place(unsigned long at, size_t size)
{
	return mmap((void *)at, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

__thread int own_number; /* what a C library has somewhere behind the thread pointer */
static long passes;
static volatile int toggling;

static void *many(void *wrong)
{
	long left = passes;

	for (long n = 0; left > 0; n++) {
		int on = !toggling; /* from then on, and for good */

		if (!pass_one(n, (char *)TEXTS))
			++*(long *)wrong;
		left -= on;
	}
	return NULL;
}

static long twice(long n)
{
	return 2 * n;
}

int main(int argc, char **argv)
{
	char *trampolines = place(TRAMPOLINES, 1 << 21), *texts = place(TEXTS, 8192);
	uint32_t *rings = place(RINGS, SIZE);
	long address;
	unsigned word, words[4] = {0}, *sites[4] = {site_all, site_one, site_call, site_stub + 4};
	int file = open(argv[1], O_RDONLY), i;

	if (read(file, trampolines, 1 << 21) < 0)
		return 1;
	__builtin___clear_cache(trampolines, trampolines + (1 << 21));
	place(CELL, 4096);
	own_number = (int)syscall(SYS_gettid);
	mprotect(texts + 4096, 4096, PROT_NONE);
	strcpy(texts, "a text");
	memcpy(texts + 4092, "tail", 4);
	memset(texts + 64, 'x', 200);
	while (scanf("%lx %x", &address, &word) == 2) {
		if (address >= RINGS && address < RINGS + SIZE)
			*(unsigned *)address = word;
		for (i = 0; i < 4; i++)
			if (address == (long)sites[i])
				words[i] = word;
	}
	mprotect((void *)((unsigned long)site_all & -4096), 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
	if (!strcmp(argv[2], "all")) {
		struct all in, out;
		uint64_t *v = (uint64_t *)in.v;

		for (i = 0; i < 31; i++)
			in.x[i] = 0x0101010101010101ul * (i + 1);
		in.x[2] = TEXTS;
		in.x[3] = 0x123456789abcdefull;
		in.x[11] = TEXTS + 64;
		in.x[19] = TEXTS + 4092;
		in.x[20] = 16;
		in.x[21] = 0;
		in.flags = 0xa0000000;
		for (i = 0; i < 64; i++)
			v[i] = 0x1122334455660000ul + i;
		put(site_all, words[0]);
		pass_all(&in, &out);
		if (memcmp(&in, &out, sizeof in - sizeof in.sp)) {
			for (i = 0; i < 96; i++)
				if (((uint64_t *)&in)[i] != ((uint64_t *)&out)[i])
					fprintf(stderr, "word %d: %lx %lx\n", i, (long)((uint64_t *)&in)[i], (long)((uint64_t *)&out)[i]);
			return 2;
		}
		printf("%lx\n", (long)out.sp);
	} else if (!strcmp(argv[2], "calls")) {
		slot = twice;
		put(site_call, words[2]);
		put(site_stub + 4, words[3]);
		for (long n = 0; n < 1000; n++)
			if (call_register(twice, n) != 2 * n + 1 || call_stub(n) != 2 * n + 1)
				return 2;
	} else {
		pthread_t threads[4];
		long wrong[4] = {0};

		passes = atol(argv[3]); /* of each thread, with the site on all the while */
		toggling = !strcmp(argv[2], "toggle");
		if (!toggling)
			put(site_one, words[1]);
		for (i = 0; i < 4; i++)
			pthread_create(&threads[i], NULL, many, &wrong[i]);
		for (i = 0; toggling && i < 101; i++) {
			put(site_one, i % 2 ? 0xd503201f : words[1]);
			usleep(1000);
		}
		toggling = 0;
		for (i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
		if (wrong[0] + wrong[1] + wrong[2] + wrong[3])
			return 2;
	}
	printf("%d %ld\n", (int)getpid(), (long)syscall(SYS_gettid));
	fflush(stdout);
	/* What became of counters and rings, for Python to read. */
	file = open(argv[1], O_WRONLY | O_TRUNC);
	if (write(file, trampolines, 1 << 21) < 0 || write(file, rings, SIZE) < 0)
		return 1;
	return argc < 3;
}
