/*
 * Runs the programs of usdtbuild/tracing/programs.py as the preloaded library does: as a library of this machine, or as a program of
 * another, which reads from its input how many arguments there are, of each its size and whether it is signed, then programs (their
 * bytes, how many hits there are, the program, and each hit's values), and says of each hit whether it passes.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "evaluate.h"

enum { MOST = 12 };
static usdt_live_argument_place places[MOST];
static live_point point;

/* What else of the library is called. */
void *live_allocate(live_arena *arena, size_t size)
{
	(void)arena;
	return calloc(1, size);
}

void live_free(live_arena *arena)
{
	(void)arena;
}

size_t live_page(void)
{
	return 4096;
}

__attribute__((visibility("default"))) int run_begin(const char *path)
{
	return live_tables_begin(open(path, O_RDWR));
}

/* Half of the arguments are in registers, if these have eight bytes, and have other bits above them; others in memory that a register leads to. */
static int in_register(unsigned i)
{
	return sizeof(uintptr_t) == 8 && i % 2 == 0;
}

static uint64_t above(unsigned i)
{
	return places[i].size < 8 ? (uint64_t)0x5a5a5a5a << 8 * places[i].size : 0;
}

__attribute__((visibility("default"))) const void *run_program_of(
	const unsigned char *arguments, unsigned count, const void *code, size_t size, uint32_t longest)
{
	unsigned i;

	for (i = 0; i < count && i < MOST; i++) {
		places[i].size = arguments[2 * i];
		places[i].is_signed = arguments[2 * i + 1];
		places[i].kind = !in_register(i);
		places[i].reg = (uint8_t)i;
	}
	point.shown.arguments = places;
	point.shown.argument_count = (uint8_t)count;
	return live_program_of(&point, code, size, longest);
}

/* `where` is how many bytes further up the stack the hit is. */
__attribute__((visibility("default"))) int run_program_at(const void *program, const uint64_t *values, unsigned where)
{
	static uintptr_t stack[MOST + 64];
	uintptr_t *registers = stack + where / sizeof *stack;
	usdt_live_hit hit = {&point.shown, registers, NULL};
	unsigned i;

	for (i = 0; i < MOST; i++)
		registers[i] = in_register(i) ? (uintptr_t)(values[i] ^ above(i)) : (uintptr_t)&values[i];
	return live_evaluate(program, &hit);
}

int main(int argc, char **argv)
{
	unsigned char arguments[2 * MOST + 1];
	uint32_t head[2];
	uint64_t values[MOST];
	static uint64_t code[4096];

	if (argc != 2 || !run_begin(argv[1]) || fread(arguments, 1, 1, stdin) != 1 || arguments[0] > MOST)
		return 1;
	if (fread(arguments + 1, 2, arguments[0], stdin) != arguments[0])
		return 1;
	while (fread(head, sizeof head, 1, stdin) == 1) {
		const void *program;

		if (head[0] > sizeof code || fread(code, 1, head[0], stdin) != head[0])
			return 1;
		program = run_program_of(arguments + 1, arguments[0], code, head[0], 64);
		for (; head[1]; head[1]--) {
			if (fread(values, 8, arguments[0], stdin) != arguments[0])
				return 1;
			putchar(program ? '0' + (run_program_at(program, values, 0) != 0) : '?');
		}
		putchar('\n');
	}
	return 0;
}
