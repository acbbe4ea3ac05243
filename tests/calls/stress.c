/* Threads call a library's functions through stubs, and from call sites that begin at all 64 offsets of a cache line, with
   data alive in registers all the while, until there is something to read. Whatever is done to the sites, results stay
   right. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#ifdef LIBRARY
#define WORK(k) long work_##k(long n, long thrice, long inverse) { return n * k + thrice + inverse; }
WORK(0) WORK(1) WORK(2) WORK(3)
#else
#define WORK(k) long work_##k(long n, long thrice, long inverse);
WORK(0) WORK(1) WORK(2) WORK(3)

#define PLACE(k)                                                                             \
    __attribute__((noinline, aligned(64))) static double place##k(long n, double a, double b) { \
        double d = a * b, e = a + b;                                                         \
        __asm__ volatile(".skip %c0, 0x90" : : "i"(k));                                      \
        long got = k % 4 == 0   ? work_0(n, 3 * n, ~n)                                       \
                   : k % 4 == 1 ? work_1(n, 3 * n, ~n)                                       \
                   : k % 4 == 2 ? work_2(n, 3 * n, ~n)                                       \
                                : work_3(n, 3 * n, ~n);                                      \
        return d + e + (double)(got - n * (k % 4) - 3 * n - ~n);                             \
    }
#define EIGHT(a) PLACE(a##0) PLACE(a##1) PLACE(a##2) PLACE(a##3) PLACE(a##4) PLACE(a##5) PLACE(a##6) PLACE(a##7)
EIGHT(00) EIGHT(01) EIGHT(02) EIGHT(03) EIGHT(04) EIGHT(05) EIGHT(06) EIGHT(07)
#define ROW(a) place##a##0, place##a##1, place##a##2, place##a##3, place##a##4, place##a##5, place##a##6, place##a##7
static double (*const places[64])(long, double, double) = {ROW(00), ROW(01), ROW(02), ROW(03),
                                                           ROW(04), ROW(05), ROW(06), ROW(07)};

static volatile int over;
static long wrong, passes, in_handler;

static void handler(int number) {
    (void)number;
    in_handler++;
    places[in_handler % 64](in_handler, 1, 2);
}

static void *work(void *argument) {
    long n = (long)argument;
    while (!over) {
        for (int k = 0; k < 64; k++) {
            double a = n % 97, b = k;
            if (places[k](n, a, b) != a * b + a + b) __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
        }
        n += 1000;
        __atomic_add_fetch(&passes, 64, __ATOMIC_RELAXED);
    }
    return 0;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    char end;
    pthread_t thread[16];
    struct itimerval often = {{0, 500}, {0, 500}};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, 0);
    for (long i = 0; i < threads; i++) pthread_create(&thread[i], 0, work, (void *)i);
    setitimer(ITIMER_REAL, &often, 0);
    puts("ready");
    fflush(stdout);
    while (read(0, &end, 1) < 0) {}
    over = 1;
    for (int i = 0; i < threads; i++) pthread_join(thread[i], 0);
    printf("wrong=%ld passes=%ld signals=%d\n", wrong, passes, in_handler > 0);
    return wrong != 0;
}
#endif
