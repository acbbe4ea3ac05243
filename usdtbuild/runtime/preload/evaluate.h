/* Programs that say what a hit's arguments decide; see evaluate.c. */

#ifndef USDT_LIVE_EVALUATE_H
#define USDT_LIVE_EVALUATE_H

#include "internal.h"

typedef struct live_program live_program;

/* Map the file that programs add up in; 0 if that isn't possible. */
LIVE_HIDDEN int live_tables_begin(int fd);
/* Check and copy a program for a site; NULL if it isn't one. It keeps at most `longest` bytes of a text. */
LIVE_HIDDEN const live_program *live_program_of(const live_point *point, const void *code, size_t size, uint32_t longest);
/* Run it for a hit; whether the hit passes. */
LIVE_HIDDEN LIVE_PLAIN USDT_LIVE_FAST_HANDLER int live_evaluate(const live_program *program, const usdt_live_hit *hit);

#define LIVE_UNREADABLE UINT32_MAX
/* Copy a text, at most so many bytes and not its NUL, and return how many these are: LIVE_UNREADABLE if it can't be read, `cut` if it goes
 * on where nothing can. */
LIVE_HIDDEN LIVE_PLAIN USDT_LIVE_FAST_HANDLER uint32_t live_copy_text(
	const live_program *of_the_site_or_null, unsigned char *to, uintptr_t text, uint32_t most, int *cut);

#endif
