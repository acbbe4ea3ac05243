/* A thread kills each child of the process as soon as it is there; the process has so many, one after the other. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) long work(long n) {
    __asm__ volatile("" : "+r"(n));
    return n * 3;
}

static void *kill_them(void *path) {
    char text[64];
    for (int list = open(path, O_RDONLY);;) {
        ssize_t size = pread(list, text, sizeof text - 1, 0);
        if (size <= 0) continue;
        text[size] = 0;
        kill(atoi(text), SIGKILL);
    }
    return path;
}

int main(int argc, char **argv) {
    char path[64];
    int children = argc > 1 ? atoi(argv[1]) : 1, killed = 0;
    pthread_t thread;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    if (access(path, R_OK)) return 3;
    pthread_create(&thread, 0, kill_them, path);
    for (int i = 0; i < children; i++) {
        int status;
        pid_t child = fork();
        if (!child)
            for (;;) work(1);
        waitpid(child, &status, 0);
        killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    }
    return killed == children ? 7 : 1;
}
