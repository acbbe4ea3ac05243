/* The native door where a command line links: what launch/link.py does, which has the reasons, for links without probes.
 *
 * A command line that compiles and links becomes the compiler, with `-B` and the folder beside this program in which
 * its linkers are links to this program. Called by such a name, it looks into the objects that the compiler has made
 * for the link, and becomes the linker that the compiler would have found, or, where an object mentions a probe, the
 * Python that completes it. The two halves are different processes; launch/link.py has the form in which the first
 * hands its arguments to the second, so that either may be Python's.
 */
#include "door.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* --- before the compiler ------------------------------------------------------------------------------------------- */

/* Return the folder in which this program is called by linkers' names. */
static const char *linkers_folder(void)
{
    static char path[PATH_MAX + sizeof LINKERS + sizeof "/ld"];
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    if (length <= 0 || length == PATH_MAX)
        let_python_do_it();
    strcpy(path + length, LINKERS "/ld");
    if (access(path, X_OK) != 0)
        let_python_do_it();
    path[(size_t)length + sizeof LINKERS - 1] = '\0';
    return path;
}

/* Whether a compiler is one of those that are known to look for their linkers where `-B` says. */
static int looks_for_linkers_there(const char *compiler)
{
    size_t size = strlen(base_name(compiler)) + 1;
    char *name = memcpy(allocate(size), base_name(compiler), size), *dash;
    while ((dash = strrchr(name, '-')) && is_version(dash + 1))
        *dash = '\0';
    return IS_IN(dash ? dash + 1 : name, link_compilers);
}

static void set_variable(const char *name, const char *value)
{
    if (setenv(name, value, 1) != 0)
        let_python_do_it();
}

static void set_part(size_t number, const char *start, size_t size)
{
    char name[sizeof LINK_PART + 24], *value = allocate(size + 1);
    memcpy(value, start, size);
    value[size] = '\0';
    snprintf(name, sizeof name, LINK_PART "%zu", number);
    set_variable(name, value);
    free(value);
}

/* Put what the linker's half needs into the environment: the linker given by its path (none), the time, our arguments. */
static void hand_on(void)
{
    char now[24];
    size_t size = 64, at = 0;
    char *packed;
    snprintf(now, sizeof now, "%lld", (long long)time(NULL));
    for (int i = 0; i < own_count; i++)
        size += strlen(own_arguments[i]) + 24;
    packed = allocate(size);
    at += (size_t)sprintf(packed, "0:%zu:%s", strlen(now), now);
    for (int i = 0; i < own_count; i++) {
        for (const char *letter = own_arguments[i]; *letter; letter++)
            if (*letter & 0x80) /* Python counts characters, not bytes */
                let_python_do_it();
        at += (size_t)sprintf(packed + at, "%zu:%s", strlen(own_arguments[i]), own_arguments[i]);
    }
    set_variable(LINK_PYTHON, PYTHON);
    set_variable(LINK_LAUNCHER, LAUNCHER);
    for (size_t part = 0; part * LINK_PART_LENGTH < at; part++) {
        size_t start = part * LINK_PART_LENGTH, rest = at - start;
        set_part(part, packed + start, rest < LINK_PART_LENGTH ? rest : LINK_PART_LENGTH);
    }
    free(packed);
}

/* Become the compiler, with our linkers in front of its own. */
_Noreturn void compile_and_link(const char *program, char **words)
{
    char **rest = behind_compiler(words), **all;
    size_t first = (size_t)(rest - words), count = 0;
    const char *folder = linkers_folder();
    char *option = allocate(strlen(folder) + sizeof "-B");
    if (!looks_for_linkers_there(rest[-1]))
        let_python_do_it();
    while (words[count])
        count++;
    all = allocate(sizeof(char *) * (count + 2));
    sprintf(option, "-B%s", folder);
    memcpy(all, words, sizeof(char *) * first);
    all[first] = option;
    memcpy(all + first + 1, rest, sizeof(char *) * (count - first + 1));
    hand_on();
    execv(program, all);
    complain("usdtbuild cc: can't run ", program, errno);
    _exit(EXECUTE_FAILED);
}

/* --- in the linker's place ------------------------------------------------------------------------------------------ */

/* Return what the first half packed, words ended by NULL. */
static char **unpack(void)
{
    size_t size = 0, count = 0, length = LINK_PART_LENGTH;
    char *packed = NULL, *at, **words;
    for (size_t part = 0; length == LINK_PART_LENGTH; part++) { /* all but the last are as long as they may be */
        char name[sizeof LINK_PART + 24];
        const char *value;
        snprintf(name, sizeof name, LINK_PART "%zu", part);
        value = getenv(name);
        length = value ? strlen(value) : 0;
        packed = realloc(packed, size + length + 1);
        if (!packed)
            let_python_do_it();
        memcpy(packed + size, value ? value : "", length + 1);
        size += length;
    }
    words = allocate(sizeof(char *) * (size / 2 + 1)); /* a word has a digit and a colon at least */
    for (at = packed; at < packed + size;) {
        char *end;
        /* strtoul alone would take a sign, blanks, and no digits at all, which are less than two characters a word */
        if (*at < '0' || *at > '9')
            let_python_do_it();
        length = strtoul(at, &end, 10);
        if (*end != ':' || length > size - (size_t)(end + 1 - packed))
            let_python_do_it();
        memmove(at, end + 1, length); /* to where its end may be marked without harm to the next */
        at[length] = '\0';
        words[count++] = at;
        at = end + 1 + length;
    }
    words[count] = NULL;
    if (count < 4)
        let_python_do_it();
    return words;
}

/* Whether a file is an object, relocatable or intermediate code, that is no older than `since`. */
static int is_new_object(const char *path, long long since)
{
    char start[18] = "";
    struct stat status;
    int known = 0, file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    if (read(file, start, sizeof start) > 0 && fstat(file, &status) == 0 && status.st_mtime >= since) {
        /* e_type, in either byte order */
        known = memcmp(start, "\177ELF", 4) == 0
            && (memcmp(start + 16, "\1\0", 2) == 0 || memcmp(start + 16, "\0\1", 2) == 0);
        for (size_t i = 0; i < sizeof bitcode / sizeof *bitcode; i++)
            known = known || memcmp(start, bitcode[i], strlen(bitcode[i])) == 0;
    }
    close(file);
    return known;
}

static int is_among(const char *word, char **words)
{
    while (*words && strcmp(*words, word) != 0)
        words++;
    return *words != NULL;
}

/* Whether one of the objects that this run of the compiler made for the link may have probes. */
static int links_probes(char **arguments, char **named, long long since)
{
    const char *previous = "";
    for (; *arguments; previous = *arguments++) {
        if (**arguments == '@')
            let_python_do_it();
        if (**arguments != '-' && strcmp(previous, "-o") != 0 && !is_among(*arguments, named)
            && is_new_object(*arguments, since) && may_have_probes(*arguments))
            return 1;
    }
    return 0;
}

/* Run a command that prints a word; put that into `answer`, or nothing. */
static void ask(char **words, char *answer, size_t size)
{
    posix_spawn_file_actions_t actions;
    const char *program = find_program(words[0]);
    int ends[2], status;
    size_t length = 0;
    ssize_t got;
    pid_t process;
    if (pipe2(ends, O_CLOEXEC) != 0 || posix_spawn_file_actions_init(&actions) != 0
        || posix_spawn_file_actions_adddup2(&actions, ends[1], 1) != 0
        || posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) != 0
        || posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0) != 0
        || ends[1] <= 2 /* standard streams are closed */
        || posix_spawn(&process, program, &actions, NULL, words, environ) != 0)
        let_python_do_it();
    close(ends[1]);
    while (length < size && ((got = read(ends[0], answer + length, size - length)) > 0 || (got < 0 && errno == EINTR)))
        length += got > 0 ? (size_t)got : 0;
    close(ends[0]);
    while (waitpid(process, &status, 0) < 0 && errno == EINTR)
        ;
    if (length == size)
        let_python_do_it();
    while (length && strchr(" \t\n\r\v\f", answer[length - 1]))
        length--;
    answer[length] = '\0';
}

/* Return the linker that the compiler finds without our `-B`: it is asked for it, with all its options. */
static const char *real_linker(const char *path, char **words)
{
    static char answer[PATH_MAX];
    const char *name = base_name(path), *compiler = base_name(behind_compiler(words)[-1]), *dash, *found;
    size_t count = 0, folder = (size_t)(name - path);
    char **question, *option = allocate(strlen(name) + sizeof "-print-prog-name="), *prefixed;
    while (words[count])
        count++;
    question = allocate(sizeof(char *) * (count + 2));
    memcpy(question, words, sizeof(char *) * count);
    sprintf(option, "-print-prog-name=%s", name);
    question[count] = option;
    question[count + 1] = NULL;
    ask(question, answer, sizeof answer);
    if (!*answer || (strncmp(answer, path, folder) == 0 && !strchr(answer + folder, '/')))
        strcpy(answer, name);
    if (strchr(answer, '/'))
        return answer;
    /* A bare name: GCC's own search continues along PATH, for a cross compiler with its prefix first. */
    dash = strrchr(compiler, '-');
    if (!dash)
        return answer;
    prefixed = allocate((size_t)(dash - compiler) + strlen(name) + 2);
    sprintf(prefixed, "%.*s-%s", (int)(dash - compiler), compiler, name);
    found = look_up(prefixed);
    return found ? found : answer;
}

static void unset_variables(void)
{
    char name[sizeof LINK_PART + 24];
    size_t part = 0;
    unsetenv(LINK_PYTHON);
    unsetenv(LINK_LAUNCHER);
    for (;; part++) {
        snprintf(name, sizeof name, LINK_PART "%zu", part);
        if (!getenv(name))
            return;
        unsetenv(name);
    }
}

/* Become the linker that was called by `path`, or the Python that completes its objects first. */
_Noreturn void link_objects(const char *path, char **arguments, int count)
{
    char **packed, **words, **all, *first[] = {(char *)"--link-step", (char *)path};
    const char *linker, *wish = getenv("USDTBUILD_NATIVE");
    if (!getenv(LINK_PYTHON)) {
        complain(LINK_PYTHON, " is unset; only usdtbuild cc runs this program", 0);
        _exit(EXECUTE_FAILED);
    }
    all = allocate(sizeof(char *) * ((size_t)count + 3));
    memcpy(all, first, sizeof first);
    memcpy(all + 2, arguments, sizeof(char *) * (size_t)count);
    all[count + 2] = NULL;
    own_arguments = all;
    own_count = count + 2;
    if (wish && strcmp(wish, "0") == 0)
        let_python_do_it();
    packed = unpack();
    words = behind_options(packed + 2);
    if (*packed[0] || links_probes(all + 2, words, atoll(packed[1]) - LINK_CLOCK_SKEW))
        let_python_do_it();
    linker = find_program(real_linker(path, words));
    unset_variables();
    all[1] = (char *)linker;
    execv(linker, all + 1);
    complain("usdtbuild cc: can't run ", linker, errno);
    _exit(EXECUTE_FAILED);
}
