/* With a second argument it waits for a byte first. Starts a child in its own memory (vfork), which waits for a byte,
   calls a function of the library so many times, and ends; then it waits for a byte itself, and calls it five times. Says
   "ready" first and "done" last. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void wait_for_byte(void) {
    char byte;
    if (read(0, &byte, 1) != 1) _exit(3);
}

int main(int argc, char **argv) {
    long times = argc > 1 ? atol(argv[1]) : 1;
    int status = 1;
    puts("ready");
    fflush(stdout);
    if (argc > 2) wait_for_byte();
    pid_t child = vfork();
    if (!child) {
        wait_for_byte();
        for (long i = 0; i < times; i++) srand(i);
        /* So the parent has a signal before it has its memory back: it stops on its way out of vfork. */
        kill(getppid(), SIGURG);
        _exit(0);
    }
    waitpid(child, &status, 0);
    wait_for_byte();
    for (int i = 0; i < 5; i++) srand(i);
    puts(status ? "killed" : "done");
    return status != 0;
}
