/* What the two parts of the native door share: usdtbuild_cc.c compiles and assembles, linker.c is for links. */
#ifndef USDTBUILD_DOOR_H
#define USDTBUILD_DOOR_H

#define _GNU_SOURCE /* memmem */
#include <stddef.h>
#include <string.h>

#include "tables.h" /* PYTHON, LAUNCHER, STEP_SIGNALS, takes_value[], no_object[], ... */

enum { EXECUTE_FAILED = 126 };

struct bytes {
    const char *start;
    size_t size;
};

/* The door's own arguments behind argv[0]; in the linker's place, those that have Python take it. */
extern char **own_arguments;
extern int own_count;

/* What is not plain is Python's, whole. Nothing has happened yet when this is called. */
_Noreturn void let_python_do_it(void);

void *allocate(size_t size);
void complain(const char *what, const char *about, int error);

int starts_with(const char *word, const char *start);
int starts_with_one_of(const char *word, const char *const *table, size_t count);
int is_in(const char *word, const char *const *table, size_t count); /* in a sorted table */
#define IS_IN(word, table) is_in(word, table, sizeof table / sizeof *table)
#define STARTS_WITH_ONE_OF(word, table) starts_with_one_of(word, table, sizeof table / sizeof *table)
const char *base_name(const char *path);
int is_version(const char *text);

/* Where a command line's own options end and COMPILER ARGS begin, and where the compiler's arguments begin in these.
 * What we can't be sure of is Python's. */
char **behind_options(char **words);
char **behind_compiler(char **words);

/* The path of a program as execvp would find it: NULL, or Python to say so, where there is none. */
const char *look_up(const char *name);
const char *find_program(const char *name);

int may_have_probes(const char *path);

/* linker.c */
_Noreturn void compile_and_link(const char *program, char **words);
_Noreturn void link_objects(const char *path, char **arguments, int count);

#endif
