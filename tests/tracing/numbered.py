"""A program whose threads number their hits, and a trace of it that a test talks to while both run."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

from tests.started import Started

PROVIDER = """provider last {
    probe tick(int thread, long number, long check);
    probe error(int thread, long number, int code);
    probe say(char *what);
};
"""
# `last THREADS COMMANDS...`: "fire N" by all threads, "wait" for a line, "error CODE" by the first, "kill" the program.
PROGRAM = r"""
#include "last.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define ROOM __asm__ volatile("nop; nop; nop; nop; nop")
__attribute__((noipa)) static void tick(int thread, long number) { LAST_TICK(thread, number, ~number * 3); ROOM; }
__attribute__((noipa)) static void error(int thread, long number, int code) { LAST_ERROR(thread, number, code); ROOM; }
__attribute__((noipa)) static void say(const char *what) { LAST_SAY((char *)what); ROOM; }
static int threads, command_count;
static volatile int over;
static void end(int signal) { (void)signal; over = 1; }
static char **commands;
static long done[64];
static pthread_barrier_t barrier;
static void *work(void *data) {
    int thread = (int)(long)data;
    char line[8];
    for (int i = 0; i < command_count; i++) {
        char *word = commands[i];
        pthread_barrier_wait(&barrier);
        if (!strcmp(word, "fire"))
            for (long end = done[thread] + atol(commands[i + 1]); done[thread] < end; done[thread]++)
                tick(thread, done[thread]);
        if (!strcmp(word, "forever"))  /* until SIGALRM, and 20 seconds at most */
            for (; !over; done[thread]++)
                tick(thread, done[thread]);
        if (!strcmp(word, "error") && !thread)
            error(thread, done[0], atoi(commands[i + 1]));
        if (!strcmp(word, "say") && !thread)
            say(commands[i + 1]);
        if (!strcmp(word, "wait") && !thread) {
            printf("%d\nwaiting\n", (int)getpid()), fflush(stdout);
            if (!fgets(line, sizeof line, stdin)) exit(3);
        }
        if (!strcmp(word, "kill") && !thread) {
            for (int t = 0; t < threads; t++) printf("%ld ", done[t]);
            puts(""), fflush(stdout);
            raise(SIGKILL);
        }
    }
    return NULL;
}
int main(int argc, char **argv) {
    pthread_t made[64];
    alarm(20);
    signal(SIGALRM, end);
    threads = atoi(argv[1]), commands = argv + 2, command_count = argc - 2;
    pthread_barrier_init(&barrier, NULL, threads);
    for (long i = 1; i < threads; i++) pthread_create(made + i, NULL, work, (void *)i);
    work(NULL);
    for (int i = 1; i < threads; i++) pthread_join(made[i], NULL);
    return 0;
}
"""


def of_its_own(words: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return words of a trace that is about the program's own probes: libc has some, too."""
    return words if "-P" in words else ("-P", "last:*", *words)


class Running:
    """A trace that runs, of a program that waits for lines."""

    def __init__(self, unprivileged: list[str], *words: Any) -> None:
        command = [*unprivileged, sys.executable, "-um", "usdtbuild", "trace", *of_its_own(words)]
        self._process = Started(*command, stderr=subprocess.PIPE)

    def waits(self) -> int:
        """Wait until the program waits, of which there were no hits before; return its number."""
        pid, _ = self.lines(2)
        return int(pid)

    def go_on(self) -> None:
        self._process.tell()

    def lines(self, count: int) -> list[str]:
        return [self._process.line() for _ in range(count)]

    def dump(self) -> None:
        self._process.send_signal(signal.SIGUSR1)

    def end(self, code: int = 0) -> str:
        out, self.errors = self._process.communicate(timeout=100)
        assert self._process.returncode == code, self.errors
        return str(out)
