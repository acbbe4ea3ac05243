/* Never the same threads for long. Without an argument: four threads start others all the while, until there is something
   to read. With one: so many children, one after the other, in each of which threads call work() until another ends the
   process; exits with 7 if each child has ended so. With two: the children load and unload a library until they are
   killed. */
#include <dlfcn.h>
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

static void *call(void *argument) {
    for (long sum = 1;;) sum += work(sum);
    return argument;
}

static void *brief(void *argument) { return argument; }

static void *start(void *argument) {
    pthread_t thread;
    for (;;) {
        pthread_create(&thread, 0, brief, 0);
        pthread_join(thread, 0);
    }
    return argument;
}

static void load_and_unload(void) {
    for (;;) {
        void *library = dlopen("libm.so.6", RTLD_NOW);
        work(1);
        if (library) dlclose(library);
    }
}

int main(int argc, char **argv) {
    pthread_t thread;
    int children = argc > 1 ? atoi(argv[1]) : 0, ended = 0;
    for (int i = 0; i < children; i++) {
        int status;
        pid_t child = fork();
        if (!child && argc > 2) load_and_unload();
        if (!child) {
            for (int j = 0; j < 3; j++) pthread_create(&thread, 0, call, 0);
            usleep(20000);
            exit(5);
        }
        if (argc > 2) {
            usleep(15000 + i * 1000);
            kill(child, SIGKILL);
        }
        waitpid(child, &status, 0);
        int killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, exited = WIFEXITED(status) && WEXITSTATUS(status) == 5;
        ended += argc > 2 ? killed : exited;
    }
    if (children) return ended == children ? 7 : 1;
    for (int i = 0; i < 4; i++) pthread_create(&thread, 0, start, 0);
    puts("ready");
    fflush(stdout);
    getchar();
    return 0;
}
