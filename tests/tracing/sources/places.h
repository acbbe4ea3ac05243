/* Threads, and a signal's handler in one of them, run through 64 functions until it is over, and count wrong results.

   Who includes it has defined PLACE(k), which defines a function place##k with a site that begins k bytes (an octal number)
   behind the start of a cache line, and RIGHT(a, b, c), what such a function returns of its last three arguments. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#ifdef __aarch64__ /* where instructions begin at multiples of four */
#define APART(k) __asm__ volatile(".rept %c0 / 4\n\tnop\n\t.endr" : : "i"(k))
#else
#define APART(k) __asm__ volatile(".skip %c0, 0x90" : : "i"(k))
#endif

#define EIGHT(a) PLACE(a##0) PLACE(a##1) PLACE(a##2) PLACE(a##3) PLACE(a##4) PLACE(a##5) PLACE(a##6) PLACE(a##7)
EIGHT(00) EIGHT(01) EIGHT(02) EIGHT(03) EIGHT(04) EIGHT(05) EIGHT(06) EIGHT(07)
#define ROW(a) place##a##0, place##a##1, place##a##2, place##a##3, place##a##4, place##a##5, place##a##6, place##a##7
static double (*const places[64])(long, double, double, double) = {ROW(00), ROW(01), ROW(02), ROW(03),
                                                                   ROW(04), ROW(05), ROW(06), ROW(07)};

static volatile int over;
static long wrong, passes, in_handler;
static pthread_t thread[16];

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
            if (places[k](n, a, b, c) != RIGHT(a, b, c)) __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
        }
        n += 1000;
        __atomic_add_fetch(&passes, 64, __ATOMIC_RELAXED);
    }
    return 0;
}

/* Begin; whoever reads the output may come now. */
static void start(int threads) {
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
}

/* End, and say how it went. */
static int finish(int threads) {
    over = 1;
    for (int i = 0; i < threads; i++) pthread_join(thread[i], 0);
    printf("wrong=%ld passes=%ld signals=%d\n", wrong, passes, in_handler > 0);
    return wrong != 0;
}

/* A whole program: so many threads as the first argument says, or two, until something comes on standard input. */
static inline int until_told(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    char end;
    start(threads);
    while (read(0, &end, 1) < 0) {}
    return finish(threads);
}
