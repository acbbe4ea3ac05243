/*
 * What is known of a module's probes by name while it is read: shared by notes.c, which reads its file, and table.c, which reads its
 * memory.
 */

#ifndef USDT_LIVE_NOTES_H
#define USDT_LIVE_NOTES_H

#include "internal.h"

/* What all sites of a probe share. */
typedef struct live_probe {
	struct live_probe *next;
	const char *provider, *name, *arguments; /* of the description: code|type|name;… */
	size_t provider_length, name_length, arguments_length;
	uintptr_t semaphore;                     /* as the loaded table says */
	const char *operands;                    /* of the last site that was read, and where its arguments are */
	const usdt_live_argument_place *places;
	unsigned count;
} live_probe;

enum { LIVE_BUCKETS = 4096 };

typedef struct live_probes {
	live_probe *bucket[LIVE_BUCKETS];
	const live_probe *newest; /* whose provider's name the next one mostly has, too */
	live_arena *arena;
} live_probes;

/* The probe of a name, made if it isn't there; NULL where there is no memory. */
LIVE_HIDDEN live_probe *live_find_probe(
	live_probes *known, const char *provider, size_t provider_length, const char *name, size_t name_length);

/* Append a site: its probe, and its operands as a note has them. Returns 0 or an error. */
LIVE_HIDDEN int live_add_site(
	live_module *module, live_list *list, live_probe *probe, uintptr_t site, uintptr_t semaphore, const char *operands);

/* Append the sites of the loaded table. 0 if there is none, 1 if there is, or an error. */
LIVE_HIDDEN int live_read_table(live_module *module, live_list *list);

#endif
