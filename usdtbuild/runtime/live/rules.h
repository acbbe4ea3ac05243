/*
 * Rules: see rules.c.
 */

#ifndef USDT_LIVE_RULES_H
#define USDT_LIVE_RULES_H

#include "internal.h"

enum { LONGEST = 256, HANDLERS = 8 };

/* A pattern, taken apart once: it is held against thousands of names. */
typedef struct live_pattern {
	char text[LONGEST], module[LONGEST], provider[LONGEST];
	uint16_t name;  /* in the text: what names of functions are held against */
	uint16_t probe; /* likewise of probes */
	uint8_t has_module, has_provider;
} live_pattern;

/*
 * What was decided of probes in one walk through a module's points: all sites of one have the same pointer to its name. Other names
 * may share an entry, and then take turns.
 */
typedef struct live_decided {
	const char *name; /* NULL: nobody's */
	const live_actions *actions;
	int on;
} live_decided;

enum { DECIDED = 64 };

static inline live_decided *live_decided_of(live_decided *all, const live_point *point)
{
	return &all[(uintptr_t)point->shown.name / 16 % DECIDED];
}

typedef struct rule {
	live_pattern pattern;
	unsigned kind, flags;
	uint32_t minimum;
	int on;
	uint32_t key; /* live_key() of the only name that it matches; 0: it may match several */
	uint32_t next; /* in the chain of its key */
	usdt_live_handler *handler;
	usdt_live_leaver *leaver;
	void *data;
} rule;

LIVE_HIDDEN extern unsigned live_rule_count;

typedef char *live_demangler(const char *name, char *to, size_t *room, int *status);
LIVE_HIDDEN extern live_demangler *live_demangle; /* written.c: NULL where the program has none */
/* Whether a pattern of functions matches one by what its author has written, and may at all. */
LIVE_HIDDEN int live_written_matches(const char *pattern, const char *name, int (*matches)(const char *, const char *));
LIVE_HIDDEN int live_may_be_written(const char *pattern);
LIVE_HIDDEN int live_read_pattern(live_pattern *pattern, const char *text); /* 0 or an error */
LIVE_HIDDEN int live_point_matches(unsigned kinds, const live_pattern *pattern, const live_point *point);
LIVE_HIDDEN int live_rule_applies(const rule *r, const live_point *point);
LIVE_HIDDEN uint32_t live_key_of(const rule *r);
LIVE_HIDDEN int live_add_rule(const rule *added); /* 0 or an error */
/* Handlers of a point by all rules, in `wanted`. Returns whether it shall be on. */
LIVE_HIDDEN int live_decide(const live_point *point, live_actions *wanted, int *error);
LIVE_HIDDEN int live_is_one_too_many(const rule *added, const live_point *point);
LIVE_HIDDEN const live_actions *live_shared_actions(const live_actions *wanted);
LIVE_HIDDEN void live_set_actions(live_point *point, const live_actions *actions);

#endif
