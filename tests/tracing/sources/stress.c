/* Threads run through 64 leaf functions, whose probe sites begin at all 64 offsets of a cache line, with data alive in
   registers and in the red zone around each, until the time is over. Whatever is done to the sites, results stay right. */
#include "stress.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define PLACE(k)                                                                                     \
    __attribute__((noinline, aligned(64))) static double place##k(long n, double a, double b, double c) { \
        volatile long zone[6];                                                                       \
        double d = a * b, e = b * c, f = a * c, g = a + b + c;                                       \
        for (int i = 0; i < 6; i++) zone[i] = n + i;                                                 \
        __asm__ volatile(".skip %c0, 0x90" : : "i"(k));                                              \
        STRESS_PASS(k, n, 3 * n, ~n, (char *)"stress" + k % 6);                                      \
        long sum = 0;                                                                                \
        for (int i = 0; i < 6; i++) sum += zone[i];                                                  \
        return d + e + f + g + (double)(sum - 6 * n - 15);                                           \
    }
#define EIGHT(a) PLACE(a##0) PLACE(a##1) PLACE(a##2) PLACE(a##3) PLACE(a##4) PLACE(a##5) PLACE(a##6) PLACE(a##7)
EIGHT(00) EIGHT(01) EIGHT(02) EIGHT(03) EIGHT(04) EIGHT(05) EIGHT(06) EIGHT(07)
#define ROW(a) place##a##0, place##a##1, place##a##2, place##a##3, place##a##4, place##a##5, place##a##6, place##a##7
static double (*const places[64])(long, double, double, double) = {
    ROW(00), ROW(01), ROW(02), ROW(03), ROW(04), ROW(05), ROW(06), ROW(07)};

static volatile int over;
static long wrong, passes, in_handler;

static void handler(int number) {
    (void)number;
    in_handler++;
    places[in_handler % 64](in_handler, 1, 2, 3);
}

static void *work(void *argument) {
    long n = (long)argument;
    while (!over) {
        for (int k = 0; k < 64; k++) {
            double a = n % 97, b = k, c = 2;
            double got = places[k](n, a, b, c);
            if (got != a * b + b * c + a * c + a + b + c) __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
        }
        n += 1000;
        __atomic_add_fetch(&passes, 64, __ATOMIC_RELAXED);
    }
    return 0;
}

static void *brief(void *argument) {
    places[(long)argument % 64](3, 1, 2, 3);
    return 0;
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    int threads = argc > 2 ? atoi(argv[2]) : 2;
    pthread_t thread[16], other;
    struct itimerval often = {{0, 500}, {0, 500}};
    struct timeval start, now;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, 0);
    for (long i = 0; i < threads; i++) pthread_create(&thread[i], 0, work, (void *)i);
    setitimer(ITIMER_REAL, &often, 0);
    puts("ready");
    fflush(stdout);
    gettimeofday(&start, 0);
    for (long i = 0;; i++) { /* threads that come and go all the while */
        pthread_create(&other, 0, brief, (void *)i);
        pthread_join(other, 0);
        gettimeofday(&now, 0);
        if ((double)(now.tv_sec - start.tv_sec) + (double)(now.tv_usec - start.tv_usec) / 1e6 > seconds) break;
    }
    over = 1;
    for (int i = 0; i < threads; i++) pthread_join(thread[i], 0);
    printf("wrong=%ld passes=%ld signals=%d\n", wrong, passes, in_handler > 0);
    return wrong != 0;
}
