"""Programs in gdbserver that start others, become others, and get signals: all of them are traced and none is harmed.

A child has its parent's breakpoints and raised semaphores in its memory, and a server stops a program by a signal to
its whole process group: whatever a trace leaves in there ends somebody.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import SOURCES

TRACE = (sys.executable, "-m", "usdtbuild", "trace")
# Forks a child that fires, and one by vfork that fires in its parent's memory and becomes another program.
FAMILY = r"""
#include "scene.h"
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int status, i;
    for (i = 0; i < 3; i++) {
        pid_t child = fork();
        SCENE_LAST(i, child ? 1 : 2);
        if (!child) _exit(SCENE_GUARDED_ENABLED() ? 9 : 7);
        waitpid(child, &status, 0);
        printf("%d ", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
        child = vfork();
        if (!child) { SCENE_LAST(i, 4); execl("/bin/true", "true", (char *)0); }
        waitpid(child, &status, 0);
        SCENE_LAST(i, 3);
        if (SCENE_GUARDED_ENABLED()) SCENE_GUARDED(i);
        printf("%d ", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    fflush(stdout);
    return 5;
}
"""
# Becomes itself again, at the same addresses, and so do its children; a thread of it does so in the end.
AGAIN = r"""
#include "scene.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static char number[12], *words[] = {"again", number, 0};
static void become(int n) { snprintf(number, sizeof number, "%d", n); execv("/proc/self/exe", words); _exit(99); }
static void *from_thread(void *it) { become(2); return it; }
int main(int argc, char **argv) {
    int status, n = argc > 1 ? atoi(argv[1]) : 0;
    SCENE_LAST(n, 0);
    if (SCENE_GUARDED_ENABLED()) SCENE_GUARDED(n);
    if (n == 0) become(1);
    if (n == 1) {
        if (!fork()) become(10);
        wait(&status);
        printf("%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
        if (!vfork()) become(11);
        wait(&status);
        printf("%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
        fflush(stdout);
        pthread_t thread;
        pthread_create(&thread, 0, from_thread, 0);
        pthread_join(thread, 0);
    }
    return n + 3;
}
"""
# Its children run in other groups and in its own, some with threads; they go on until the input ends, and so does it.
GROUP = r"""
#include "scene.h"
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static struct pollfd input = {0, POLLIN | POLLHUP, 0};
static void *work(void *it) { while (!poll(&input, 1, 2)) SCENE_LAST(7, 7); return it; }
int main(void) {
    int status;
    pthread_t thread;
    for (int i = 0; i < 4; i++)
        if (!fork()) {
            if (i == 1) setpgid(0, 0);
            if (i == 2) pthread_create(&thread, 0, work, 0);
            while (!poll(&input, 1, i == 3 ? -1 : 3)) SCENE_LAST(i, 1);
            for (int n = 0; n < 20; n++) SCENE_LAST(i, 2);
            _exit(10 + i + 10 * !!SCENE_GUARDED_ENABLED());
        }
    while (!poll(&input, 1, 1)) SCENE_LAST(9, 0);
    while (wait(&status) > 0)
        printf("%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    return 4;
}
"""
# Ends before its child, which tells later how it is.
ORPHAN = r"""
#include "scene.h"
#include <stdio.h>
#include <unistd.h>
/* Return once a process waits, so that it isn't stopped when its parent ends. */
static void sleeps(int process) {
    char path[64], state = 0;
    sprintf(path, "/proc/%d/stat", process);
    while (state != 'S') {
        FILE *file = fopen(path, "r");
        (void)!fscanf(file, "%*d (orphan) %c", &state);
        fclose(file);
        usleep(1000);
    }
}
int main(int argc, char **argv) {
    int ends[2], child;
    char byte;
    (void)!pipe(ends);
    SCENE_LAST(1, 0);
    if (!(child = fork())) {
        SCENE_LAST(2, 0);
        close(ends[1]);
        (void)!read(ends[0], &byte, 1);
        while (getppid() != 1 && getchar() != EOF) ;
        for (int n = 0; n < 20; n++) SCENE_LAST(3, 0);
        printf("the child is well, enabled=%d\n", !!SCENE_GUARDED_ENABLED());
        return 0;
    }
    sleeps(child);
    return 6;
}
"""
# Sends signals to one of its threads at a time, and counts how many came.
SIGNALS = r"""
#include "scene.h"
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
static int came;
static sem_t got, stop;
static void handler(int number) { came++; sem_post(&got); }
static void *work(void *it) { while (sem_wait(&stop)) ; return it; }
int main(void) {
    pthread_t threads[4];
    signal(SIGUSR1, handler);
    sem_init(&got, 0, 0);
    sem_init(&stop, 0, 0);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 20; i++) {
        pthread_kill(threads[i % 4], SIGUSR1);
        while (sem_wait(&got)) ;
        SCENE_LAST(i, came);
    }
    for (int i = 0; i < 4; i++) sem_post(&stop);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    printf("%d\n", came);
    return 0;
}
"""
SOURCES_BY_NAME = {"family": FAMILY, "again": AGAIN, "group": GROUP, "orphan": ORPHAN, "signals": SIGNALS}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, run: Any, header_of: Any) -> Callable[[str], Path]:
    """Build one of the programs above, at fixed addresses."""
    folder = tmp_path_factory.mktemp("processes")
    declared = (SOURCES / "scene.d").read_text()
    header_of(folder, "scene.d", declared, "--formats=dof")

    def build(name: str) -> Path:
        if not (folder / name).exists():
            (folder / f"{name}.c").write_text(SOURCES_BY_NAME[name])
            words = ["gcc", "-O2", "-fno-pie", "-c", f"{name}.c"]
            run(sys.executable, "-m", "usdtbuild", "cc", "--", *words, cwd=folder)
            run("gcc", "-no-pie", "-pthread", f"{name}.o", "-o", name, cwd=folder)
        return folder / name

    return build


def hits(text: str) -> Counter[tuple[str, ...]]:
    """Count hits by their arguments."""
    return Counter(re.findall(r"scene:last round=(\d+) sum=(\d+)", text))


def test_children_are_traced_also_in_their_parents_memory(program: Any, run: Any, served: Any) -> None:
    where, server = served(program("family"))
    done = run(*TRACE, "--remote", where, "-P", "scene:*")
    assert hits(done.stdout) == {(str(i), str(n)): 1 for i in range(3) for n in (1, 2, 3, 4)}
    assert done.stdout.count("scene:guarded") == 3
    assert server.communicate(timeout=60)[0] == "9 0 9 0 9 0 "


def test_children_that_nobody_asked_for_go_on_unharmed(program: Any, run: Any, served: Any) -> None:
    """Breakpoints and raised semaphores are copied by fork and shared by vfork; neither is seen by a child."""
    where, server = served(program("family"))
    done = run(*TRACE, "--remote", where, "-P", "scene:*", "--no-children")
    assert hits(done.stdout) == {(str(i), str(n)): 1 for i in range(3) for n in (1, 3)}
    assert server.communicate(timeout=60)[0] == "7 0 7 0 7 0 "


@pytest.mark.parametrize("option", ["--string-size=64", "--no-children"])
def test_programs_that_processes_become_are_traced(
    program: Any, run: Any, served: Any, tmp_path: Path, option: str
) -> None:
    """All that was armed is gone then, and comes again; the first process' programs are always meant."""
    where, server = served(program("again"))
    done = run(*TRACE, "-v", "--remote", where, "-P", "scene:*", option)
    seen = [0, 1, 2] if option == "--no-children" else [0, 1, 2, 10, 11]
    assert hits(done.stdout) == {(str(n), "0"): 1 for n in seen}
    assert sorted(re.findall(r"guarded round=(\d+)", done.stdout), key=int) == [str(n) for n in seen]
    assert server.communicate(timeout=60)[0].split() == ["13", "14"]
    assert "Child exited with status 5" in (tmp_path / "gdbserver").read_text()


@pytest.mark.parametrize("option", ["--string-size=64", "--no-children"])
def test_end_of_a_trace_harms_no_process_of_the_group(program: Any, run: Any, served: Any, option: str) -> None:
    """The interrupt that stops the program is a signal to all of them, which would end whom nobody holds."""
    where, server = served(program("group"))
    run(*TRACE, "--remote", where, "-P", "scene:*", "--limit", 40, option)
    assert sorted(server.communicate(timeout=60)[0].split()) == ["10", "11", "12", "13"]


def test_child_that_outlives_the_program_goes_on(program: Any, run: Any, served: Any) -> None:
    where, server = served(program("orphan"))
    done = run(*TRACE, "--remote", where, "-P", "scene:*")
    # What the child does while its parent ends is seen or not.
    assert hits(done.stdout)["1", "0"] == 1
    assert server.communicate(timeout=60)[0] == "the child is well, enabled=0\n"


def test_signals_come_to_the_thread_that_they_are_for(program: Any, run: Any, served: Any) -> None:
    where, server = served(program("signals"))
    done = run(*TRACE, "--remote", where, "-P", "scene:*")
    assert hits(done.stdout) == {(str(i), str(i + 1)): 1 for i in range(20)}
    assert server.communicate(timeout=60)[0] == "20\n"
