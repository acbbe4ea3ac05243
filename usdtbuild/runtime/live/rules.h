/*
 * Rules: see rules.c.
 */

#ifndef USDT_LIVE_RULES_H
#define USDT_LIVE_RULES_H

#include "internal.h"

enum { RULES = 64, LONGEST = 256, HANDLERS = 8 };

typedef struct rule {
	char pattern[LONGEST];
	unsigned kind, flags;
	uint32_t minimum;
	int on;
	usdt_live_handler *handler;
	usdt_live_leaver *leaver;
	void *data;
} rule;

LIVE_HIDDEN extern rule live_rules[RULES];
LIVE_HIDDEN extern unsigned live_rule_count;

LIVE_HIDDEN int live_check_pattern(const char *pattern); /* 0 or an error */
LIVE_HIDDEN int live_point_matches(unsigned kinds, const char *pattern, const live_point *point);
LIVE_HIDDEN int live_rule_applies(const rule *r, const live_point *point);
LIVE_HIDDEN int live_add_rule(const rule *added); /* 0 or an error */
/* Handlers of a point by all rules, in `wanted`. Returns whether it shall be on. */
LIVE_HIDDEN int live_decide(const live_point *point, live_actions *wanted, int *error);
LIVE_HIDDEN const live_actions *live_shared_actions(const live_actions *wanted);
LIVE_HIDDEN void live_set_actions(live_point *point, const live_actions *actions);

#endif
