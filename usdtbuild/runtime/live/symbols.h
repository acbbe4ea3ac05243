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
} function;

typedef struct functions {
	function *all;
	size_t count;
	live_arena scratch;
} functions;

LIVE_HIDDEN int live_read_symbols(live_module *module, const live_file *file, functions *found); /* 0 or an error */
/* The first function at or after an address, or `count`. */
LIVE_HIDDEN size_t live_at_or_after(const functions *found, uintptr_t address);

#endif
