/*
 * Rules, in their order, and what follows from them for a point: whether it shall be on, and with which handlers.
 */

#include "internal.h"

#include <string.h>

#include "rules.h"

rule live_rules[RULES];
unsigned live_rule_count;
static const live_actions *all_actions; /* lists that were ever made; a hit may be on its way in any of them */
static live_arena forever;

/* -- patterns ---------------------------------------------------------------------------------------------------- */

/* As a shell matches, but a dash of the pattern is also two underscores of the text. */
static int matches(const char *pattern, const char *text)
{
	const char *star = NULL, *again = NULL;

	/* Most of a pattern is letters. */
	while (*pattern == *text && ((*pattern >= 'a' && *pattern <= 'z') || *pattern == '_')) {
		pattern++;
		text++;
	}
	for (;;) {
		int fits = 0;
		const char *next = pattern + 1;

		if (*pattern == '*') {
			if (!*next)
				return 1;
			star = pattern++;
			again = text;
			continue;
		}
		if (!*text)
			return !*pattern;
		if (*pattern == '?') {
			fits = 1;
		} else if (*pattern == '[') {
			const char *p = pattern + 1;
			int not = *p == '!' || *p == '^', found = 0;

			for (p += not; *p && (*p != ']' || p == pattern + 1 + not); p++)
				if (p[1] == '-' && p[2] && p[2] != ']') {
					found |= p[0] <= *text && *text <= p[2];
					p += 2;
				} else {
					found |= *p == *text;
				}
			fits = *p ? found != not : *text == '[';
			next = *p ? p + 1 : pattern + 1;
		} else if (*pattern == '-' && text[0] == '_' && text[1] == '_') {
			pattern++;
			text += 2;
			continue;
		} else {
			fits = *pattern == *text;
		}
		if (fits) {
			pattern = next;
			text++;
		} else if (star) {
			pattern = star + 1;
			text = ++again;
		} else {
			return 0;
		}
	}
}

/* MODULE!PROVIDER:NAME, of which the first two may be left out. */
int live_read_pattern(live_pattern *pattern, const char *text)
{
	const char *mark, *colon;

	memset(pattern, 0, sizeof *pattern);
	if (!text || !*text || strlen(text) >= LONGEST)
		return USDT_LIVE_BAD_PATTERN;
	strcpy(pattern->text, text);
	if ((mark = strchr(text, '!'))) {
		memcpy(pattern->module, text, (size_t)(mark - text));
		pattern->has_module = 1;
		pattern->name = (uint16_t)(mark - text + 1);
	}
	pattern->probe = pattern->name;
	if ((colon = strchr(text + pattern->name, ':'))) {
		memcpy(pattern->provider, text + pattern->name, (size_t)(colon - text) - pattern->name);
		pattern->has_provider = 1;
		pattern->probe = (uint16_t)(colon - text + 1);
	}
	return 0;
}

static int module_matches(const char *pattern, const live_point *point)
{
	const char *file = strrchr(point->shown.module, '/');

	if (!*pattern)
		return point->module == live_modules;
	return matches(pattern, file ? file + 1 : point->shown.module) || matches(pattern, point->shown.module);
}

int live_point_matches(unsigned kinds, const live_pattern *pattern, const live_point *point)
{
	if (!(kinds & point->shown.kind) || (pattern->has_module && !module_matches(pattern->module, point)))
		return 0;
	if (point->shown.kind != USDT_LIVE_PROBES)
		return matches(pattern->text + pattern->name, point->shown.name);
	if (pattern->has_provider && !matches(pattern->provider, point->shown.provider))
		return 0;
	return matches(pattern->text + pattern->probe, point->shown.name);
}

/* -- what a point shall do ---------------------------------------------------------------------------------------- */

int live_rule_applies(const rule *r, const live_point *point)
{
	return point->shown.size >= (r->on ? r->minimum : 0) && live_point_matches(r->kind, &r->pattern, point);
}

/* Handlers of a point by all rules, in `wanted`. Returns whether it shall be on. */
int live_decide(const live_point *point, live_actions *wanted, int *error)
{
	unsigned i, j;
	int on = 0;

	wanted->count = wanted->vectors = wanted->leaves = 0;
	for (i = 0; i < live_rule_count; i++) {
		const rule *r = &live_rules[i];
		live_action *action;

		if (!live_rule_applies(r, point))
			continue;
		if (!r->on) {
			on = 0;
			wanted->count = wanted->vectors = wanted->leaves = 0;
			continue;
		}
		on = 1;
		if (!r->handler && !r->leaver)
			continue;
		for (j = 0; j < wanted->count; j++)
			if (wanted->action[j].handler == r->handler && wanted->action[j].leaver == r->leaver && wanted->action[j].data == r->data)
				break;
		if (j < wanted->count)
			continue;
		if (wanted->count == HANDLERS) {
			*error = USDT_LIVE_TOO_MANY;
			continue;
		}
		action = &wanted->action[wanted->count++];
		action->handler = r->handler;
		action->leaver = r->leaver;
		action->data = r->data;
		wanted->vectors |= !(r->flags & USDT_LIVE_FAST);
		wanted->leaves |= r->leaver != NULL;
	}
	return on;
}

/* The one list of this content, so that switching on and off for ever takes no memory. */
const live_actions *live_shared_actions(const live_actions *wanted)
{
	const live_actions *found;
	live_actions *made;
	size_t i;

	if (!wanted->count)
		return NULL;
	for (found = all_actions; found; found = found->next) {
		if (found->count != wanted->count || found->vectors != wanted->vectors)
			continue;
		for (i = 0; i < wanted->count; i++)
			if (found->action[i].handler != wanted->action[i].handler || found->action[i].leaver != wanted->action[i].leaver
				|| found->action[i].data != wanted->action[i].data)
				break;
		if (i == wanted->count)
			return found;
	}
	made = live_allocate(&forever, sizeof *made);
	if (!made)
		return NULL;
	*made = *wanted;
	made->next = all_actions;
	all_actions = made;
	return made;
}

/* Handlers may be exchanged while the point is hit: first the list, then that there is one. */
void live_set_actions(live_point *point, const live_actions *actions)
{
	if (actions) {
		uint32_t armed = actions->vectors ? 3 : 1;

		/* While both lists may be seen, vector registers are saved. */
		if (point->armed && (point->armed | armed) == 3)
			__atomic_store_n(&point->armed, 3, __ATOMIC_SEQ_CST);
		__atomic_store_n(&point->actions, actions, __ATOMIC_SEQ_CST);
		if (point->state != LIVE_ON || !point->armed || armed == 3)
			__atomic_store_n(&point->armed, armed, __ATOMIC_SEQ_CST);
	} else {
		__atomic_store_n(&point->armed, 0, __ATOMIC_SEQ_CST);
		__atomic_store_n(&point->actions, NULL, __ATOMIC_SEQ_CST);
	}
}

/* -- rules -------------------------------------------------------------------------------------------------------- */

static void drop_rule(unsigned index)
{
	memmove(&live_rules[index], &live_rules[index + 1], (live_rule_count - index - 1) * sizeof *live_rules);
	live_rule_count--;
}

/* Add a rule. One that takes points out makes earlier rules of the same pattern needless, and is needless itself where no others are left. */
int live_add_rule(const rule *added)
{
	unsigned i, others = 0;

	for (i = live_rule_count; i-- > 0;) {
		const rule *r = &live_rules[i];

		if (r->kind != added->kind)
			continue;
		if (!added->on && (!strcmp(r->pattern.text, added->pattern.text) || !strcmp(added->pattern.text, "*")))
			drop_rule(i);
		else if (added->on && r->on && !strcmp(r->pattern.text, added->pattern.text) && r->handler == added->handler && r->flags == added->flags
			&& r->leaver == added->leaver && r->data == added->data && r->minimum == added->minimum) {
			unsigned j;

			for (j = i + 1; j < live_rule_count && live_rules[j].on; j++)
				;
			if (j == live_rule_count)
				return 0;
		} else {
			others += r->on;
		}
	}
	if (!added->on && !others) {
		for (i = live_rule_count; i-- > 0;)
			if (live_rules[i].kind == added->kind)
				drop_rule(i);
		return 0;
	}
	if (live_rule_count == RULES)
		return USDT_LIVE_TOO_MANY;
	live_rules[live_rule_count++] = *added;
	return 0;
}

