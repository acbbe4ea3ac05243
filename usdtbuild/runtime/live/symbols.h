/*
 * A file's functions: see symbols.c.
 */

#ifndef USDT_LIVE_SYMBOLS_H
#define USDT_LIVE_SYMBOLS_H

#include "internal.h"

typedef struct function {
	uintptr_t address;
	const char *name;
	uint32_t size;
	uint8_t rank; /* of several names the most public one */
	uint8_t mode; /* Arm: 1 of Thumb, which is bit 0 of a symbol's value */
	uint8_t local; /* ppc64le: the distance of the local entry point, in bytes (ELFv2 ABI, 3.4.1) */
} function;

typedef struct functions {
	function *all;
	size_t count;
	function *marks; /* Arm: where code of one kind begins (mode 1 Thumb, 0 A32), or data among it (mode 2) */
	size_t mark_count;
	live_arena scratch;
} functions;

LIVE_HIDDEN int live_read_symbols(live_module *module, const live_file *file, functions *found); /* 0 or an error */
/* The first function at or after an address, or `count`. */
LIVE_HIDDEN size_t live_at_or_after(const functions *found, uintptr_t address);

#endif
