/*
 * Rules, in their order, and what follows from them for a point: whether it shall be on, and with which handlers.
 */

#include "internal.h"

#include <string.h>

#include "rules.h"

rule *live_rules;
unsigned live_rule_count;
static unsigned rule_room;
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
			int negated = *p == '!' || *p == '^', found = 0;

			for (p += negated; *p && (*p != ']' || p == pattern + 1 + negated); p++)
				if (p[1] == '-' && p[2] && p[2] != ']') {
					found |= p[0] <= *text && *text <= p[2];
					p += 2;
				} else {
					found |= *p == *text;
				}
			fits = *p ? found != negated : *text == '[';
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
		memcpy(pattern->provider, text + pattern->name, (size_t)(colon - text - pattern->name));
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
		return matches(pattern->text + pattern->name, point->shown.name)
			|| live_written_matches(pattern->text + pattern->name, point->shown.name, matches);
	if (pattern->has_provider && !matches(pattern->provider, point->shown.provider))
		return 0;
	return matches(pattern->text + pattern->probe, point->shown.name);
}

/* -- names -------------------------------------------------------------------------------------------------------- */

uint32_t live_key(const char *name)
{
	uint32_t key = 2166136261u; /* FNV-1a */

	while (*name)
		key = (key ^ (unsigned char)*name++) * 16777619u;
	return key ? key : 1;
}

/* Of each rule its key, which is all that most need be asked when there are thousands. */
static uint32_t *keys;

/* Whether two rules may have a point in common, or a rule and a point. */
static int may_meet(uint32_t a, uint32_t b)
{
	return a == b || !a || !b;
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

		if (!may_meet(keys[i], point->key) || !live_rule_applies(r, point))
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

/* -- what patterns have to do with each other ------------------------------------------------------------------------ */

/* Whether all that `b` matches is matched by `a`. Not every such pair is known; stars are what people write. */
static int covers(const char *a, const char *b)
{
	if (!strcmp(a, "*") || !strcmp(a, b))
		return 1;
	if (!strpbrk(b, "*?[-"))
		return matches(a, b);
	/* As a text, `b` is one of those that it matches, and a star of `a` takes its stars as it takes what they stand for. */
	return !strpbrk(a, "?[") && !strchr(b, '[') && matches(a, b);
}

/* Whether nothing is matched by both. Not every such pair is known. */
static int apart(const char *a, const char *b)
{
	static const char special[] = "*?[]-";
	const char *a_end = a + strlen(a), *b_end = b + strlen(b);
	size_t i;

	if (!strpbrk(a, "*?[-"))
		return !matches(b, a);
	if (!strpbrk(b, "*?[-"))
		return !matches(a, b);
	for (i = 0; !strchr(special, a[i]) && !strchr(special, b[i]); i++)
		if (a[i] != b[i])
			return 1;
	while (a_end > a && b_end > b && !strchr(special, a_end[-1]) && !strchr(special, b_end[-1]))
		if (*--a_end != *--b_end)
			return 1;
	return 0;
}

static const char *provider_of(const rule *r)
{
	return r->pattern.has_provider ? r->pattern.provider : "*";
}

static const char *name_of(const rule *r)
{
	return r->pattern.text + (r->kind == USDT_LIVE_PROBES ? r->pattern.probe : r->pattern.name);
}

uint32_t live_key_of(const rule *r)
{
	const char *name = name_of(r);

	return strpbrk(name, "*?[-") || (r->kind != USDT_LIVE_PROBES && live_may_be_written(name)) ? 0 : live_key(name);
}

static int rule_covers(const rule *a, const rule *b)
{
	if (a->kind != b->kind)
		return 0;
	if (a->pattern.has_module
		&& (!b->pattern.has_module || !*a->pattern.module != !*b->pattern.module || !covers(a->pattern.module, b->pattern.module)))
		return 0;
	return (a->kind != USDT_LIVE_PROBES || covers(provider_of(a), provider_of(b))) && covers(name_of(a), name_of(b));
}

/* Modules don't count: one pattern may be held against the file's name, the other against its path. */
static int rules_meet(const rule *a, const rule *b)
{
	if (a->kind == b->kind && a->kind != USDT_LIVE_PROBES && (live_may_be_written(name_of(a)) || live_may_be_written(name_of(b))))
		return 1; /* one by the name that was written, the other by the one that is linked */
	return a->kind == b->kind && !(a->kind == USDT_LIVE_PROBES && apart(provider_of(a), provider_of(b))) && !apart(name_of(a), name_of(b));
}

static int is_same(const rule *a, const rule *b)
{
	return a->on && b->on && a->kind == b->kind && !strcmp(a->pattern.text, b->pattern.text) && a->handler == b->handler && a->flags == b->flags
		&& a->leaver == b->leaver && a->data == b->data && a->minimum == b->minimum;
}

/* -- rules -------------------------------------------------------------------------------------------------------- */

static void drop_rule(unsigned index)
{
	memmove(&live_rules[index], &live_rules[index + 1], (live_rule_count - index - 1) * sizeof *live_rules);
	memmove(&keys[index], &keys[index + 1], (live_rule_count - index - 1) * sizeof *keys);
	live_rule_count--;
}

/* Whether one of the rules from `first` up to `end`, of those that switch on or of those that take out, may match what `r` does. */
static int any_meets(const rule *r, int on, unsigned first, unsigned end)
{
	for (; first < end; first++)
		if (may_meet(keys[first], r->key) && !live_rules[first].on == !on && rules_meet(r, &live_rules[first]))
			return 1;
	return 0;
}

/*
 * Whether a rule that is said again may go from its first place: what it says is said later, too, and in between nothing else calls
 * handlers, whose order would be another one.
 */
static int may_move(unsigned index, unsigned again)
{
	const rule *r = &live_rules[index];
	unsigned i;

	for (i = index + 1; i < again && (r->handler || r->leaver); i++)
		if (may_meet(keys[i], r->key) && live_rules[i].on && (live_rules[i].handler || live_rules[i].leaver) && rules_meet(r, &live_rules[i]))
			return 0;
	return 1;
}

/*
 * Find a rule that has no effect, now or on a module that is loaded later: one that takes out what no earlier one may switch on, one
 * that switches on what an earlier one does with nothing taken out in between, or what a later one repeats. There was none before the last rule came and
 * others went for it: so only those are looked at, from `first` on, that may meet it.
 */
static int find_needless(unsigned first, unsigned *found)
{
	unsigned i, j;
	uint32_t key = live_rule_count ? keys[live_rule_count - 1] : 0;

	for (i = first; i < live_rule_count; i++) {
		if (!may_meet(keys[i], key))
			continue;
		*found = i;
		if (!live_rules[i].on && !any_meets(&live_rules[i], 1, 0, i))
			return 1;
		for (j = 0; j < i; j++) {
			if (keys[j] != keys[i] || !is_same(&live_rules[j], &live_rules[i]))
				continue;
			if (!any_meets(&live_rules[i], 0, j + 1, i))
				return 1;
			*found = j;
			if (may_move(j, i))
				return 1;
			*found = i;
		}
	}
	return 0;
}

/* Room for one more rule; with one that switches on also for the one that takes it out again. */
static int make_room(const rule *added)
{
	static live_arena arena;
	live_arena larger = {0};
	unsigned room = rule_room ? 2 * rule_room : 64;
	rule *more;

	if (live_rule_count + (added->on ? 2u : 1u) <= rule_room)
		return 1;
	more = live_allocate(&larger, room * (sizeof *more + sizeof *keys));
	if (!more)
		return 0;
	if (live_rule_count) {
		memcpy(more, live_rules, live_rule_count * sizeof *more);
		memcpy(more + room, keys, live_rule_count * sizeof *keys);
	}
	keys = (uint32_t *)(void *)(more + room);
	live_free(&arena);
	arena = larger;
	live_rules = more;
	rule_room = room;
	return 1;
}

/* Add a rule. One that takes points out makes earlier ones needless whose points are among them. */
int live_add_rule(const rule *added)
{
	unsigned i, first = live_rule_count;

	for (i = live_rule_count; !added->on && i-- > 0;)
		if (may_meet(keys[i], added->key) && rule_covers(added, &live_rules[i])) {
			drop_rule(i);
			first = 0;
		}
	first = first > live_rule_count ? live_rule_count : first;
	if (!make_room(added))
		return USDT_LIVE_NO_MEMORY;
	keys[live_rule_count] = added->key;
	live_rules[live_rule_count++] = *added;
	while (find_needless(first, &i)) {
		drop_rule(i);
		first = 0;
	}
	return 0;
}
