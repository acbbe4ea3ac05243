/* What a process does while somebody attaches to it: `changing LIBRARY load|fork|map`. It says "ready", does so until there
   is something to read, then does it ROUNDS times more, each with a number, and says "done".

   load: opens the library, calls its `fire` with the number, and closes it. fork: a child calls `fire`, and the parent
   calls `fired` with the child's number. map: maps memory here and there, and fires. */
#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "changing.h"
#ifdef LIBRARY
void fire(int number) { CHANGING_FIRE(number, getpid()); }
#else
enum { ROUNDS = 40 };

static void load(const char *path, int number) {
    void *library = dlopen(path, RTLD_NOW);
    void (*fire)(int) = (void (*)(int))dlsym(library, "fire");
    fire(number);
    dlclose(library);
}

static void spawn(int number) {
    pid_t child = fork();
    if (!child) {
        CHANGING_FIRE(number, getpid());
        _exit(0);
    }
    CHANGING_FIRED(number, child);
    waitpid(child, 0, 0);
}

static void map(int number) {
    static void *places[64];
    for (int i = 0; i < 64; i++) {
        size_t size = (size_t)(i % 7 + 1) << (12 + i % 12);
        if (places[i]) munmap(places[i], (size_t)(i % 7 + 1) << (12 + i % 12));
        places[i] = mmap(0, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    CHANGING_FIRE(number, getpid());
}

int main(int argc, char **argv) {
    struct pollfd input = {0, POLLIN, 0};
    if (argc < 3) return 1;
    puts("ready");
    fflush(stdout);
    for (int i = -1, left = ROUNDS; left; left -= i >= 0) {
        if (i >= 0 || poll(&input, 1, 0) == 1) i++;
        if (!strcmp(argv[2], "load")) load(argv[1], i);
        else if (!strcmp(argv[2], "fork")) spawn(i);
        else map(i);
    }
    puts("done");
    return 0;
}
#endif
