/*
 * Rules, in their order, and what follows from them for a point: whether it shall be on, and with which handlers.
 */

#include "internal.h"

#include <string.h>

#include "rules.h"

unsigned live_rule_count;
static rule *rules; /* in the order in which they came; who has gone leaves a gap, of kind 0, until there is no more room */
static uint32_t used, rule_room;
enum { LISTS = 1024 };
static const live_actions *all_actions[LISTS]; /* lists that were ever made; a hit may be on its way in any of them */
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

/*
 * Each rule is in a chain of those that have its key, or of those that have none: so that nobody need look at all where there are
 * thousands. There are as many chains as there is room for rules, a power of two, and behind them the one of key 0.
 */
enum { NONE = UINT32_MAX };
static struct chain {
	uint32_t first, last;
} *chains;

static struct chain *chain_of(uint32_t key)
{
	return &chains[key ? key & (rule_room - 1) : rule_room];
}

/* A walk through the rules that may have a point in common with one of this key, in their order; 0: through all. */
typedef struct walk {
	uint32_t key, same, any;
} walk;

static walk walk_of(uint32_t key)
{
	walk w = {key, key && chains ? chain_of(key)->first : key ? NONE : 0, key && chains ? chain_of(0)->first : NONE};

	return w;
}

/* The next rule, or NONE, which is behind all of them. */
static uint32_t next_of(walk *w)
{
	uint32_t *from, found;

	if (!w->key) {
		while (w->same < used && !rules[w->same].kind)
			w->same++;
		return w->same < used ? w->same++ : NONE;
	}
	while (w->same != NONE && rules[w->same].key != w->key)
		w->same = rules[w->same].next;
	from = w->same < w->any ? &w->same : &w->any;
	found = *from;
	if (found != NONE)
		*from = rules[found].next;
	return found;
}

/* -- what a point shall do ---------------------------------------------------------------------------------------- */

int live_rule_applies(const rule *r, const live_point *point)
{
	return point->shown.size >= (r->on ? r->minimum : 0) && live_point_matches(r->kind, &r->pattern, point);
}

static int has_handler(const live_actions *actions, const rule *r)
{
	unsigned i;

	for (i = 0; i < actions->count; i++)
		if (actions->action[i].handler == r->handler && actions->action[i].leaver == r->leaver && actions->action[i].data == r->data)
			return 1;
	return 0;
}

/* Handlers of a point by all rules, in `wanted`. Returns whether it shall be on. */
int live_decide(const live_point *point, live_actions *wanted, int *error)
{
	walk w = walk_of(point->key);
	uint32_t i;
	int on = 0;

	wanted->count = wanted->vectors = wanted->leaves = wanted->counted = 0;
	while ((i = next_of(&w)) != NONE) {
		const rule *r = &rules[i];
		live_action *action;

		if (!live_rule_applies(r, point))
			continue;
		if (!r->on) {
			on = 0;
			wanted->count = wanted->vectors = wanted->leaves = wanted->counted = 0;
			continue;
		}
		on = 1;
		if (!r->handler && !r->leaver)
			continue;
		if (has_handler(wanted, r))
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
		wanted->counted |= r->flags & LIVE_COUNTED;
		wanted->leaves |= r->leaver != NULL;
	}
	return on;
}

/* Whether one more rule would give a point, whose name may have its key, more handlers than there is room for. */
int live_is_one_too_many(const rule *added, const live_point *point)
{
	live_actions wanted;
	int error;

	return live_rule_applies(added, point) && live_decide(point, &wanted, &error) && wanted.count == HANDLERS
		&& !has_handler(&wanted, added);
}

/* The one list of this content, so that switching on and off for ever takes no memory. */
const live_actions *live_shared_actions(const live_actions *wanted)
{
	const live_actions *found, **list;
	live_actions *made;
	size_t i;

	if (!wanted->count)
		return NULL;
	list = &all_actions[((uintptr_t)wanted->action[0].data >> 3 ^ (uintptr_t)wanted->action[0].data >> 13) % LISTS];
	for (found = *list; found; found = found->next) {
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
	made->next = *list;
	*list = made;
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
	return a->on && b->on && a->kind == b->kind && !strcmp(a->pattern.text, b->pattern.text) && a->handler == b->handler
		&& a->flags == b->flags && a->leaver == b->leaver && a->data == b->data && a->minimum == b->minimum;
}

/* -- rules -------------------------------------------------------------------------------------------------------- */

static void link_rule(uint32_t index)
{
	struct chain *chain = chain_of(rules[index].key);

	rules[index].next = NONE;
	*(chain->first == NONE ? &chain->first : &rules[chain->last].next) = index;
	chain->last = index;
}

static void drop_rule(uint32_t index)
{
	struct chain *chain = chain_of(rules[index].key);
	uint32_t at = chain->first, before = NONE;

	for (; at != index; at = rules[at].next)
		before = at;
	*(before == NONE ? &chain->first : &rules[before].next) = rules[index].next;
	if (chain->last == index)
		chain->last = before;
	rules[index].kind = 0;
	while (used && !rules[used - 1].kind)
		used--;
	live_rule_count--;
}

/* Whether one of the rules from `first` up to `end`, of those that switch on or of those that take out, may match what `r` does. */
static int any_meets(const rule *r, int on, uint32_t first, uint32_t end)
{
	walk w = walk_of(r->key);
	uint32_t i;

	while ((i = next_of(&w)) < end)
		if (i >= first && !rules[i].on == !on && rules_meet(r, &rules[i]))
			return 1;
	return 0;
}

/*
 * Whether a rule that is said again may go from its first place: what it says is said later, too, and in between nothing else calls
 * handlers, whose order would be another one.
 */
static int may_move(uint32_t index, uint32_t again)
{
	const rule *r = &rules[index];
	walk w = walk_of(r->key);
	uint32_t i;

	while ((r->handler || r->leaver) && (i = next_of(&w)) < again)
		if (i > index && rules[i].on && (rules[i].handler || rules[i].leaver) && rules_meet(r, &rules[i]))
			return 0;
	return 1;
}

/*
 * Find a rule that has no effect, now or on a module that is loaded later: one that takes out what no earlier one may switch on, one
 * that switches on what an earlier one does with nothing taken out in between, or what a later one repeats. There was none before a rule of
 * this key came and others went for it: so only those are looked at, from `first` on, that may meet it.
 */
static int find_needless(uint32_t key, uint32_t first, uint32_t *found)
{
	walk w = walk_of(key);
	uint32_t i, j;

	while ((i = next_of(&w)) != NONE) {
		walk before = walk_of(rules[i].key);

		if (i < first)
			continue;
		*found = i;
		if (!rules[i].on && !any_meets(&rules[i], 1, 0, i))
			return 1;
		while ((j = next_of(&before)) < i) {
			if (!is_same(&rules[j], &rules[i]))
				continue;
			if (!any_meets(&rules[i], 0, j + 1, i))
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
	uint32_t room = !rule_room ? 64 : 2 * live_rule_count < rule_room ? rule_room : 2 * rule_room, kept = 0, i;
	rule *more;

	if (used + (added->on ? 2u : 1u) <= rule_room)
		return 1;
	more = live_allocate(&larger, room * sizeof *more + (room + 1) * sizeof *chains);
	if (!more)
		return 0;
	for (i = 0; i < used; i++)
		if (rules[i].kind)
			more[kept++] = rules[i];
	live_free(&arena);
	arena = larger;
	rules = more;
	used = kept;
	rule_room = room;
	chains = (struct chain *)(void *)(more + room);
	for (i = 0; i <= room; i++)
		chains[i].first = chains[i].last = NONE;
	for (i = 0; i < used; i++)
		link_rule(i);
	return 1;
}

/* Add a rule. One that takes points out makes earlier ones needless whose points are among them. */
int live_add_rule(const rule *added)
{
	walk w = walk_of(added->key);
	uint32_t i, first;
	int dropped = 0;

	while (!added->on && (i = next_of(&w)) != NONE)
		if (rule_covers(added, &rules[i])) {
			drop_rule(i);
			dropped = 1;
		}
	if (!make_room(added))
		return USDT_LIVE_NO_MEMORY;
	first = dropped ? 0 : used;
	rules[used] = *added;
	link_rule(used++);
	live_rule_count++;
	while (find_needless(added->key, first, &i)) {
		drop_rule(i);
		first = 0;
	}
	return 0;
}
