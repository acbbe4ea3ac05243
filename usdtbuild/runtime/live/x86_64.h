/*
 * x86-64: the forms of sites that can be switched.
 */

#ifndef USDT_LIVE_X86_64_H
#define USDT_LIVE_X86_64_H

#include "internal.h"

#include <string.h>

/* Forms of sites. */
enum { FORM_NOPL4 = 1, FORM_NOPL5, FORM_TAIL, FORM_FREE_TAIL };

struct live_form {
	uint8_t bytes[6], mask[6]; /* mask 0: free */
	uint8_t length;            /* from the site to where execution goes on; 0: it returns */
	uint8_t low[3];            /* the distance's lower bytes */
};

LIVE_HIDDEN extern const struct live_form live_forms[];

static inline void put32(unsigned char *at, uintptr_t value)
{
	uint32_t word = (uint32_t)value;

	memcpy(at, &word, 4);
}

#endif
