/* A program of which several run at once. For each line that it reads it does something and answers with a line:
 * "go" fires each probe `rounds` times, "fork" lets a child do so, "keep" starts a child that reads lines of its own
 * from a pipe, "tell" lets the youngest such child fire, "exec" runs the program anew, and "end" ends it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "several.h"

/* Behind a probe: where these bytes make a jump lead there is memory to be had, wherever the program is. */
#define ROOM __asm__ volatile(".byte 0x66,0x0f,0x1f,0x44,0,0" ::: "memory")

static long rounds;

__attribute__((noinline)) static void fire(void)
{
    for (long i = 0; i < rounds; i++) {
        SEVERAL_BEGIN(i % 4, i * rounds);
        ROOM;
        SEVERAL_END(i % 4);
        ROOM;
    }
}

int main(int argc, char **argv)
{
    char line[16];
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    rounds = atol(argv[1]);
    printf("ready\n");
    for (fflush(stdout); fgets(line, sizeof line, stdin); fflush(stdout)) {
        if (!strcmp(line, "go\n")) {
            fire();
        } else if (!strcmp(line, "fork\n")) {
            if (!fork()) {
                fire();
                _exit(0);
            }
            wait(NULL);
        } else if (!strcmp(line, "keep\n")) {
            if (pipe(to) || pipe(from)) return 2;
            pid_t child = fork();
            if (!child) {
                char byte;
                close(to[1]);
                while (read(to[0], &byte, 1) == 1) {
                    fire();
                    if (write(from[1], &byte, 1) != 1) break;
                }
                _exit(0);
            }
            close(to[0]);
            printf("%d\n", (int)child);
            continue;
        } else if (!strcmp(line, "tell\n")) {
            char byte = 0;
            if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1) return 2;
        } else if (!strcmp(line, "exec\n")) {
            printf("again ");
            fflush(stdout);
            execv(argv[0], argv);
        } else {
            break;
        }
        printf("%ld\n", rounds);
    }
    return argc > 2 ? atoi(argv[2]) : 0;
}
