/* The native door of the compiler launcher: what `usdtbuild cc` is for the objects that have no probes.
 *
 * A build runs its launcher once for each object, and starting Python costs more than compiling a small file's share of
 * it. So this program runs the compiler, looks into the object for the names that only probes have, and is done. Python
 * is started for everything else: for an object that mentions a probe, to complete it, and for each command line that is
 * anything but plain, to run the whole step. Whenever this program is in doubt it becomes the Python door, with the
 * arguments it was called with; it never decides what Python would decide otherwise. What it may do without Python:
 *
 *   -c, one source by its name, an object by `-o NAME` or by the source's name; compilers by their usual names,
 *   or behind ccache and its like; options of `usdtbuild cc` that need no work on objects without probes;
 *   lines that write no object, links of finished ones too, for which the compiler takes this process's place;
 *   and lines that compile and link in one go (linker.c).
 *
 * It is not a second reader of command lines: which options take a value, which ones write no object, what sources are
 * called and what isn't plain is in tables that usdtbuild/compilers and this program share (tables.h is written
 * from there when this is compiled). It knows nothing of ELF.
 *
 * Signals, as in the Python door: what would end the step is passed on to the compiler and then held back until no
 * half-done object lies around. An object that the compiler has written is renamed to .NAME.PID.usdtbuild before
 * anything is read from it. Where Python must complete it, this process becomes Python (same PID, so that the held name
 * stays ours), with the signals blocked until Python has its own handlers.
 *
 * Compiled by native.py with the build machine's compiler: C99 and POSIX, no library but libc.
 */
#include "door.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* --- becoming Python ----------------------------------------------------------------------------------------------- */

char **own_arguments;
int own_count;

void *allocate(size_t size)
{
    void *memory = malloc(size ? size : 1);
    if (memory)
        return memory;
    static const char text[] = "usdtbuild cc: out of memory\n";
    if (write(2, text, sizeof text - 1) < 0)
        _exit(1);
    _exit(1);
}

void complain(const char *what, const char *about, int error)
{
    const char *reason = error ? strerror(error) : "";
    size_t size = strlen(what) + strlen(about) + strlen(reason) + 4;
    char *line = allocate(size);
    int length = snprintf(line, size, "%s%s%s%s\n", what, about, error ? ": " : "", reason);
    if (length > 0 && write(2, line, (size_t)length) < 0)
        _exit(EXECUTE_FAILED);
}

static const char *incomplete; /* an object that nobody but Python can complete */

/* Run `PYTHON -I -S LAUNCHER first... rest...` in this process's place. */
static _Noreturn void become_python(char *const *first, int first_count, char *const *rest, int rest_count)
{
    char **words = allocate(sizeof(char *) * (size_t)(first_count + rest_count + 5));
    int count = 0;
    words[count++] = (char *)PYTHON;
    words[count++] = (char *)"-I";
    words[count++] = (char *)"-S";
    words[count++] = (char *)LAUNCHER;
    for (int i = 0; i < first_count; i++)
        words[count++] = first[i];
    for (int i = 0; i < rest_count; i++)
        words[count++] = rest[i];
    words[count] = NULL;
    if (access(LAUNCHER, R_OK) == 0) {
        execv(PYTHON, words);
        complain("usdtbuild cc: can't run ", PYTHON, errno);
    } else
        complain("usdtbuild cc: can't run ", LAUNCHER, errno);
    if (incomplete && unlink(incomplete) != 0 && truncate(incomplete, 0) != 0)
        complain("usdtbuild: ", incomplete, errno);
    _exit(EXECUTE_FAILED);
}

_Noreturn void let_python_do_it(void)
{
    become_python(own_arguments, own_count, NULL, 0);
}

/* --- words --------------------------------------------------------------------------------------------------------- */

int starts_with(const char *word, const char *start)
{
    return strncmp(word, start, strlen(start)) == 0;
}

static int compare(const void *word, const void *entry)
{
    return strcmp(word, *(const char *const *)entry);
}

int is_in(const char *word, const char *const *table, size_t count)
{
    return bsearch(word, table, count, sizeof *table, compare) != NULL;
}

int starts_with_one_of(const char *word, const char *const *table, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (starts_with(word, table[i]))
            return 1;
    return 0;
}

const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int is_version(const char *text)
{
    int digits = 0;
    for (; *text; text++) {
        if (*text >= '0' && *text <= '9')
            digits++;
        else if (*text != '.')
            return 0;
    }
    return digits > 0;
}

/* Whether a program is called like a compiler: gcc, x86_64-linux-gnu-g++-12, clang-14. */
static int has_compilers_name(const char *path)
{
    const char *name = base_name(path), *dash = strrchr(name, '-');
    size_t length = dash && is_version(dash + 1) ? (size_t)(dash - name) : strlen(name);
    if (memchr(name, '.', length))
        return 0;
    for (size_t i = 0; i < sizeof compilers / sizeof *compilers; i++) {
        size_t size = strlen(compilers[i]);
        if (length >= size && memcmp(name + length - size, compilers[i], size) == 0)
            return 1;
    }
    return 0;
}

/* --- looking into files -------------------------------------------------------------------------------------------- */

/* Return a file's content, with start NULL where there is none to be had. */
static struct bytes map_file(const char *path)
{
    struct bytes content = {NULL, 0};
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return content;
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
        void *start = status.st_size ? mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0) : (void *)"";
        if (start != MAP_FAILED) {
            content.start = start;
            content.size = (size_t)status.st_size;
        }
    }
    close(file);
    return content;
}

static int holds(struct bytes content, const char *text)
{
    return memmem(content.start, content.size, text, strlen(text)) != NULL;
}

/* Whether an object may call probes or test whether one is enabled: launch/step.py, may_have_probes, has the reasons. */
int may_have_probes(const char *path)
{
    struct bytes content = map_file(path);
    int found;
    if (!content.start)
        return 1; /* Python says what is wrong with it */
    found = holds(content, STUB_NAME);
    if (!found && holds(content, SEMAPHORE_NAME))
        for (size_t i = 0; i < sizeof semaphore_company / sizeof *semaphore_company; i++)
            found = found || holds(content, semaphore_company[i]);
    if (content.size)
        munmap((void *)content.start, content.size);
    return found;
}

/* Whether the dependencies would be written over a provider file: then Python says so. */
static int is_provider_file(const char *path)
{
    struct bytes content = map_file(path);
    int found = content.start && memchr(content.start, '{', content.size) && holds(content, "provider");
    if (content.start && content.size)
        munmap((void *)content.start, content.size);
    return found;
}

/* --- the compiler's command line ------------------------------------------------------------------------------------ */

struct line {
    char **words; /* COMPILER ARGS, ended by NULL */
    const char *source;
    const char *output;       /* the object's path */
    const char *dependencies; /* what -MF names, or NULL */
    int writes_dependencies;  /* -MD or -MMD */
    int only_dependencies;    /* -M or -MM */
    int compiles;             /* -c, or the like, is there */
    int writes_no_object;     /* -E, --version, ..., or nothing is compiled */
    int links;                /* compiles, and links in one go */
};

static int is_source(const char *path, const char *language)
{
    const char *dot = strrchr(base_name(path), '.');
    return *language || (dot && IS_IN(dot + 1, source_suffixes));
}

/* Return the source's name with its suffix replaced: as the compilers name what they are not told to name. */
static char *with_suffix(const char *folder, size_t folder_length, const char *name, const char *suffix)
{
    const char *dot = strrchr(name, '.');
    size_t stem = dot && dot != name ? (size_t)(dot - name) : strlen(name), size = strlen(suffix);
    char *path = allocate(folder_length + stem + size + 1);
    memcpy(path, folder, folder_length);
    memcpy(path + folder_length, name, stem);
    memcpy(path + folder_length + stem, suffix, size + 1);
    return path;
}

char **behind_compiler(char **words)
{
    if (words[0] && words[1] && IS_IN(base_name(words[0]), caches))
        words++;
    if (!has_compilers_name(words[0]))
        let_python_do_it();
    return words + 1;
}

static const char *value_of(char **word)
{
    if (!word[1] || word[1][0] == '@')
        let_python_do_it();
    return word[1];
}

/* Return the language that an option in one word names; NULL for all but the two that builds ask compilers' options with
 * (Linux's Kbuild, and what took it over: `-S -o /dev/null -xc /dev/null`, some dozens a build). */
static const char *joined_language(const char *word)
{
    return strcmp(word, "-xc") == 0 || strcmp(word, "-xc++") == 0 ? word + 2 : NULL;
}

static struct line understand(char **words)
{
    struct line line = {.words = words};
    const char *language = "";
    int inputs = 0, sources = 0, odd = 0;
    for (char **at = behind_compiler(words); *at; at++) {
        const char *word = *at, *joined = joined_language(word);
        /* -oNAME and -xLANGUAGE in one word are not told apart from -objc... and -xhost here. */
        if (STARTS_WITH_ONE_OF(word, not_plain)
            || ((starts_with(word, "-o") || (starts_with(word, "-x") && !joined)) && word[2]))
            let_python_do_it();
        if (word[0] != '-') {
            inputs++;
            odd = odd || has_compilers_name(word); /* it may be the compiler, and what stands before it a wrapper */
            if (is_source(word, language)) {
                sources++;
                line.source = word;
            }
        } else if (!word[1] || strcmp(word, "--") == 0) {
            odd = 1; /* standard input, or nothing but inputs from here on */
        } else if (joined) {
            language = joined;
        } else if (IS_IN(word, takes_value)) {
            const char *value = value_of(at++);
            if (strcmp(word, "-o") == 0)
                line.output = value;
            else if (strcmp(word, "-MF") == 0)
                line.dependencies = line.dependencies ? line.dependencies : value;
            else if (strcmp(word, "-x") == 0)
                language = strcmp(value, "none") == 0 ? "" : value;
        } else if (strcmp(word, "-c") == 0) {
            line.compiles = 1;
        } else if (starts_with(word, "-MF")) {
            line.dependencies = line.dependencies ? line.dependencies : word + 3;
        } else if (strcmp(word, "-MD") == 0 || strcmp(word, "-MMD") == 0) {
            line.writes_dependencies = 1;
        } else if (STARTS_WITH_ONE_OF(word, to_preprocessor)) {
            if (is_provider_file(strchr(strchr(word, ',') + 1, ',') + 1))
                let_python_do_it();
        } else if (STARTS_WITH_ONE_OF(word, linker_paths) && (!starts_with(word, "-fuse-ld") || strchr(word, '/'))) {
            odd = 1; /* a linker given by its path */
        } else if (IS_IN(word, no_object) || STARTS_WITH_ONE_OF(word, no_object_prefixes)) {
            line.writes_no_object = 1;
            line.only_dependencies = line.only_dependencies || strcmp(word, "-M") == 0 || strcmp(word, "-MM") == 0;
        }
    }
    if (line.writes_no_object) {
        if (line.only_dependencies && !line.dependencies)
            line.dependencies = line.output;
        if (line.writes_dependencies || (line.only_dependencies && line.dependencies && is_provider_file(line.dependencies)))
            let_python_do_it();
        return line;
    }
    size_t length = strlen(language);
    int header = length >= 7 && strcmp(language + length - 7, "-header") == 0;
    if (odd || header)
        let_python_do_it();
    if (!line.compiles) {
        if (line.writes_dependencies && sources)
            let_python_do_it();
        line.writes_no_object = sources == 0;
        line.links = sources != 0;
        return line;
    }
    if (inputs != 1 || sources != 1 || (line.output && (!*line.output || strcmp(line.output, "-") == 0)))
        let_python_do_it();
    if (!line.output)
        line.output = with_suffix("", 0, base_name(line.source), ".o");
    if (line.writes_dependencies && !line.dependencies) {
        const char *name = base_name(line.output);
        line.dependencies = with_suffix(line.output, (size_t)(name - line.output), name, ".d");
    }
    return line;
}

/* --- the compiler's run -------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t received, child;

static void take_signal(int number)
{
    int error = errno;
    if (!received) /* what the compiler leaves running would write the object when we are gone */
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    received = number;
    if (child)
        kill((pid_t)child, number);
    errno = error;
}

static const int step_signals[] = {STEP_SIGNALS};
enum { STEP_SIGNAL_COUNT = sizeof step_signals / sizeof *step_signals };

static sigset_t step_signal_set(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < STEP_SIGNAL_COUNT; i++)
        sigaddset(&set, step_signals[i]);
    return set;
}

static void hold_signals_back(void)
{
    for (size_t i = 0; i < STEP_SIGNAL_COUNT; i++) {
        struct sigaction action;
        if (sigaction(step_signals[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
            memset(&action, 0, sizeof action);
            action.sa_handler = take_signal;
            sigfillset(&action.sa_mask);
            action.sa_flags = SA_RESTART;
            sigaction(step_signals[i], &action, NULL);
        }
    }
}

/* Hand a signal on to every child in our session, and wait until there is none: orphans.py has the reasons. */
static void end_orphans(int number)
{
    enum { MOST = 64 };
    pid_t found[MOST];
    char name[64];
    size_t count;
    do {
        long process;
        FILE *list;
        snprintf(name, sizeof name, "/proc/self/task/%ld/children", (long)getpid());
        list = fopen(name, "re");
        for (count = 0; list && count < MOST && fscanf(list, "%ld", &process) == 1;)
            if (getsid((pid_t)process) == getsid(0))
                found[count++] = (pid_t)process;
        if (list)
            fclose(list);
        for (size_t i = 0; i < count; i++)
            kill(found[i], number);
        for (size_t i = 0; i < count; i++)
            while (waitpid(found[i], NULL, 0) < 0 && errno == EINTR)
                ;
    } while (count);
}

/* Run the compiler to its end; return its exit code, 128 + n if signal n killed it.
 *
 * The signals are blocked until `child` is set, so that none is lost; the compiler starts with the mask we were given.
 */
static int run(const char *program, char **words)
{
    posix_spawnattr_t attributes;
    sigset_t ours = step_signal_set(), before;
    siginfo_t ended;
    pid_t process;
    int status, error;
    sigprocmask(SIG_BLOCK, &ours, &before);
    if (posix_spawnattr_init(&attributes) != 0 || posix_spawnattr_setsigmask(&attributes, &before) != 0
        || posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK) != 0)
        let_python_do_it();
    error = posix_spawn(&process, program, NULL, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
    if (error == 0)
        child = process;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return -error;
    while (waitid(P_PID, (id_t)process, &ended, WEXITED | WNOWAIT) != 0 && errno == EINTR)
        ;
    child = 0; /* while the number is still the compiler's */
    while (waitpid(process, &status, 0) < 0 && errno == EINTR)
        ;
    if (received)
        end_orphans(received);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static _Noreturn void end(int code)
{
    if (received) {
        int number = received;
        signal(number, SIG_DFL);
        raise(number);
    }
    _exit(code);
}

const char *look_up(const char *name)
{
    struct stat status;
    const char *path = getenv("PATH");
    if (strchr(name, '/'))
        return stat(name, &status) == 0 && !S_ISDIR(status.st_mode) ? name : NULL;
    path = path ? path : "/bin:/usr/bin";
    for (;;) {
        size_t length = strcspn(path, ":");
        char *candidate = allocate(length + strlen(name) + 3);
        sprintf(candidate, "%.*s/%s", length ? (int)length : 1, length ? path : ".", name);
        if (stat(candidate, &status) == 0 && !S_ISDIR(status.st_mode) && access(candidate, X_OK) == 0)
            return candidate;
        free(candidate);
        if (!path[length])
            return NULL;
        path += length + 1;
    }
}

const char *find_program(const char *name)
{
    const char *path = look_up(name);
    if (!path)
        let_python_do_it();
    return path;
}

/* --- the object ---------------------------------------------------------------------------------------------------- */

static int same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec
        && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Rename a freshly written object to a name beside it (launch/step.py, hold, has the reasons). Return that name, the path
 * itself where it can't be renamed, NULL where there is no regular file. */
static const char *hold(const char *path)
{
    struct stat status;
    const char *name = base_name(path);
    size_t size = strlen(path) + 64;
    char *held;
    if (lstat(path, &status) != 0)
        return NULL;
    if (!S_ISREG(status.st_mode))
        return S_ISLNK(status.st_mode) && stat(path, &status) == 0 && S_ISREG(status.st_mode) ? path : NULL;
    held = allocate(size);
    snprintf(held, size, "%.*s.%s.%ld%s", (int)(name - path), path, name, (long)getpid(), HELD);
    return rename(path, held) == 0 ? held : path;
}

/* Become the Python that completes an object which a compiler or assembler has just written. */
static _Noreturn void let_python_complete(int code, const char *held, const char *path)
{
    char code_text[16], received_text[16];
    sigset_t ours = step_signal_set();
    sigprocmask(SIG_BLOCK, &ours, NULL);
    snprintf(code_text, sizeof code_text, "%d", code);
    snprintf(received_text, sizeof received_text, "%d", (int)received);
    char *first[] = {(char *)"--finish-step", code_text, received_text, (char *)held, (char *)path};
    incomplete = held;
    become_python(first, sizeof first / sizeof *first, own_arguments, own_count);
}

static _Noreturn void finish(int code, const char *path)
{
    const char *held = hold(path);
    /* With a signal and a compiler that failed, the object may end anywhere. */
    if (held && ((received && code) || may_have_probes(held)))
        let_python_complete(code, held, path);
    if (held && held != path && rename(held, path) != 0) {
        complain("usdtbuild: ", path, errno);
        end(code ? code : 1);
    }
    end(code);
}

/* Whether an output is standard output by some name, a pipe, or the like: launch/step.py, is_no_file, has the reasons. */
static int is_no_file(const char *path)
{
    struct stat status;
    return strcmp(path, "/dev/null") != 0 && lstat(path, &status) == 0 && !S_ISREG(status.st_mode)
        && !S_ISDIR(status.st_mode);
}

static _Noreturn void compile(char **words)
{
    struct stat before, after;
    const char *program = find_program(words[0]);
    struct line line = understand(words);
    int code, was_there, is_there;
    if (line.writes_no_object) {
        execv(program, words);
        let_python_do_it(); /* and say why it can't be run */
    }
    if (line.links)
        compile_and_link(program, words);
    if (line.writes_dependencies && is_provider_file(line.dependencies))
        let_python_do_it();
    if (is_no_file(line.output))
        let_python_do_it();
    was_there = stat(line.output, &before) == 0;
    hold_signals_back();
    code = run(program, words);
    if (code < 0)
        let_python_do_it();
    is_there = stat(line.output, &after) == 0;
    /* A failing compiler may have left an object of an earlier build alone, which isn't ours to touch. */
    if (code == 0 || (is_there && !(was_there && same_file(&before, &after))))
        finish(code, line.output);
    end(code);
}

static int are_formats(const char *list)
{
    for (;;) {
        char name[16] = "";
        size_t length = strcspn(list, ",");
        if (length >= sizeof name)
            return 0;
        memcpy(name, list, length);
        if (!IS_IN(name, formats))
            return 0;
        if (!list[length])
            return 1;
        list += length + 1;
    }
}

char **behind_options(char **words)
{
    for (; *words && strcmp(*words, "--") != 0; words++)
        if (!STARTS_WITH_ONE_OF(*words, own_options)
            || (starts_with(*words, "--formats=") && !are_formats(*words + strlen("--formats=")))
            || (starts_with(*words, "--target-os=") && !IS_IN(*words + strlen("--target-os="), systems)))
            let_python_do_it();
    if (!*words || !words[1])
        let_python_do_it();
    return words + 1;
}

/* --- in the assembler's place --------------------------------------------------------------------------------------- */

/* Run the assembler, then finish its object: launch/assemble.py has the reasons. */
static _Noreturn void assemble(char **words)
{
    const char *program = find_program(words[0]), *output = NULL;
    int code, asked = 0;
    for (char **at = words + 1; *at; at++) {
        if (**at == '@')
            let_python_do_it();
        if (strcmp(*at, "-o") == 0)
            output = at[1] ? at[1] : "";
        else if (starts_with(*at, "-o"))
            output = *at + 2;
        asked = asked || IS_IN(*at, assembler_passes);
    }
    if (asked) {
        execv(program, words);
        let_python_do_it();
    }
    if (!output || is_no_file(output))
        let_python_do_it();
    hold_signals_back();
    code = run(program, words);
    if (code < 0)
        let_python_do_it();
    if (code == 0 || received)
        finish(code, output);
    end(code);
}

/* What the file `NAME.words` beside this program holds, each word ended by a NUL, and behind them our own arguments.
 *
 * That is how a compiler that runs its assembler by the path of a folder (`-B`) is given our options.
 */
static char **stored_words(const char *path, char **words, int count, int *total)
{
    size_t size = strlen(path) + sizeof ".words", stored = 0;
    char *name = allocate(size), *text;
    struct bytes content;
    char **all;
    snprintf(name, size, "%s.words", path);
    content = map_file(name);
    if (!content.start || !content.size || content.start[content.size - 1]) {
        complain("usdtbuild: ", name, content.start ? EINVAL : ENOENT);
        _exit(EXECUTE_FAILED);
    }
    text = allocate(content.size);
    memcpy(text, content.start, content.size);
    for (size_t i = 0; i < content.size; i++)
        stored += text[i] == '\0';
    all = allocate(sizeof(char *) * (stored + (size_t)count + 1));
    for (size_t i = 0; i < stored; i++, text += strlen(text) + 1)
        all[i] = text;
    for (int i = 0; i < count; i++)
        all[stored + (size_t)i] = words[i];
    all[stored + (size_t)count] = NULL;
    *total = (int)stored + count;
    return all;
}

int main(int count, char **words)
{
    const char *wish = getenv("USDTBUILD_NATIVE");
    const char *path = (const char *)getauxval(AT_EXECFN); /* argv[0] may be anything */
    int assembles = path && strcmp(base_name(path), "as") == 0;
    if (count == 2 && strcmp(words[1], "--native-door") == 0) /* whoever built it asks whether it runs here */
        return 0;
    if (path && starts_with(base_name(path), "ld"))
        link_objects(path, words + (count > 0), count - (count > 0));
    own_arguments = words + (count > 0);
    own_count = count - (count > 0);
    if (assembles)
        own_arguments = stored_words(path, own_arguments, own_count, &own_count);
    if ((wish && strcmp(wish, "0") == 0) || getenv("CCC_OVERRIDE_OPTIONS"))
        let_python_do_it();
    if (assembles) /* the first of the stored words is --assembler-step, for Python */
        assemble(behind_options(own_arguments + 1));
    compile(behind_options(own_arguments));
}
