/*
 * Functions as their authors wrote them: what patterns are held against where a C++ program can demangle its names.
 *
 * `usdtbuild/inspection/demangle.py` knows the same names; tests/live/test_written.py holds one against the other.
 */

#include "internal.h"

#include <stdlib.h>
#include <string.h>

#include "rules.h"

/* The C++ runtime's own, in a program that has one. */
extern char *__cxa_demangle(const char *name, char *to, size_t *room, int *status) __attribute__((weak));
live_demangler *live_demangle = __cxa_demangle;

enum { LONGEST_NAME = 4096 };

/* Operators whose signs are brackets, longer ones first. */
static const char *const operators[] = {"()", "[]", "->*", "->", "<=>", "<<=", "<<", ">>=", ">>", "<=", "<", ">=", ">"};

static int is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || (unsigned char)c >= 128;
}

/* The length of an operator's name with brackets that begins here, or 0. */
static size_t bracket_operator(const char *text, const char *at)
{
	size_t i;

	if ((at > text && is_word(at[-1])) || strncmp(at, "operator", 8) != 0)
		return 0;
	for (i = 0; i < sizeof operators / sizeof *operators; i++)
		if (!strncmp(at + 8, operators[i], strlen(operators[i])))
			return 8 + strlen(operators[i]);
	return 0;
}

/* The place behind the bracket that closes this one. */
static const char *closed(const char *text, const char *at)
{
	int depth = 0;
	size_t length;

	for (; *at; at += length) {
		if ((length = bracket_operator(text, at)))
			continue;
		length = 1;
		if (strchr("(<[{", *at))
			depth++;
		else if (strchr(")>]}", *at) && !--depth)
			return at + 1;
	}
	return at;
}

/* The place behind what follows a list of parameters that ends here and only says in which function a name is, or NULL. */
static const char *enclosing(const char *at)
{
	static const char *const words[] = {" const", " volatile", " &&", " &", "&&", "&"};
	size_t i;

	for (i = 0; i < sizeof words / sizeof *words; i++)
		if (!strncmp(at, words[i], strlen(words[i]))) {
			at += strlen(words[i]);
			i = (size_t)-1;
		}
	return at[0] == ':' && at[1] == ':' ? at + 2 : NULL;
}

/* Whether what stands between can be a function's name. */
static int names(const char *begin, const char *at)
{
	const char *p, *signs = NULL;

	if (at > begin && (is_word(at[-1]) || strchr(">]}", at[-1])))
		return 1;
	for (p = begin; p + 8 <= at; p++)
		if (!strncmp(p, "operator", 8))
			signs = p + 8;
	if (!signs || signs == at)
		return 0;
	for (p = signs; *signs != ' ' && p < at; p++)
		if (is_word(*p))
			return 0;
	return 1;
}

/* `shop::sum<int>` of `int shop::sum<int>(int) const`: where it begins, and its length. */
static const char *without_parameters(const char *text, size_t *length)
{
	const char *begin = text, *at, *past = text, *operator_end = NULL, *behind;
	int depth = 0;
	size_t step;

	for (at = text; *at; at += step) {
		step = 1;
		if (at < past)
			continue;
		if ((step = bracket_operator(text, at))) {
			operator_end = at + step;
			continue;
		}
		step = 1;
		if (*at == ' ') {
			if (!depth && at != operator_end && (at - text < 8 || strncmp(at - 8, "operator", 8) != 0))
				begin = at + 1;
		} else if (strchr(")>]}", *at)) {
			depth--;
		} else if (*at == '(' && !depth && names(begin, at)) {
			behind = enclosing(closed(text, at));
			if (!behind) {
				*length = (size_t)(at - begin);
				return begin;
			}
			past = behind;
		} else if (strchr("(<[{", *at)) {
			depth++;
		}
	}
	*length = (size_t)(at - text);
	return text;
}

/* Only a pattern that no single name as it is linked can be is worth the demangler's time. */
int live_may_be_written(const char *pattern)
{
	return strpbrk(pattern, "*?[:(<~ ") != NULL;
}

int live_written_matches(const char *pattern, const char *name, int (*matches)(const char *, const char *))
{
	char *written;
	const char *begin;
	size_t length;
	int fits, status = 0;

	if (!live_demangle || name[0] != '_' || name[1] != 'Z' || !live_may_be_written(pattern) || strlen(name) > LONGEST_NAME)
		return 0;
	written = live_demangle(name, NULL, NULL, &status);
	if (!written)
		return 0;
	fits = !strcmp(pattern, written) || matches(pattern, written);
	if (!fits) {
		begin = without_parameters(written, &length);
		written[begin - written + (ptrdiff_t)length] = '\0';
		fits = !strcmp(pattern, begin) || matches(pattern, begin);
	}
	free(written);
	return fits;
}
