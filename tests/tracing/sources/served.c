/* A service: at each SIGHUP two threads fire so many pairs each, and the first is called "done" then; SIGTERM ends it.
 * Of 0 pairs it fires all the while. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "served.h"

static pthread_barrier_t turn;
static int rounds;

__attribute__((noinline)) static void fire(int thread, int number)
{
    SERVED_BEGIN(thread, number);
    __asm__ volatile(".byte 0x66,0x0f,0x1f,0x44,0,0" ::: "memory");
    SERVED_DONE(thread, number);
    __asm__ volatile(".byte 0x66,0x0f,0x1f,0x44,0,0" ::: "memory");
}

static void *work(void *thread)
{
    for (;;) {
        pthread_barrier_wait(&turn);
        for (int i = 0; i < rounds; i++) fire((int)(long)thread, i);
        pthread_barrier_wait(&turn);
    }
}

int main(int argc, char **argv)
{
    int number;
    sigset_t set;
    pthread_t made;
    rounds = argc > 1 ? atoi(argv[1]) : 0;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_barrier_init(&turn, NULL, 3);
    for (long i = 0; i < 2; i++) pthread_create(&made, NULL, work, (void *)i);
    puts("ready");
    fflush(stdout);
    for (; !rounds; usleep(1000)) fire(0, 0);
    while (!sigwait(&set, &number) && number == SIGHUP) {
        prctl(PR_SET_NAME, "fires");
        pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
        prctl(PR_SET_NAME, "done");
    }
    return 0;
}
