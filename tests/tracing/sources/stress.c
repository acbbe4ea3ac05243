/* Threads run through 64 leaf functions, whose probe sites begin at all 64 offsets of a cache line, with data alive in
   registers and in the red zone around each, until the time is over. Whatever is done to the sites, results stay right. */
#include "stress.h"

#ifdef JUMPS /* back, right behind each site, whose four bytes leave no jump anywhere to lead */
#define AROUND __asm__ volatile("jmp 7772f\n7771:\tjmp 7773f\n7772:")
#define BEHIND __asm__ volatile("{disp32} jmp 7771b\n7773:")
#else
#define AROUND
#define BEHIND
#endif

#define PLACE(k)                                                                                     \
    __attribute__((noinline, aligned(64))) static double place##k(long n, double a, double b, double c) { \
        volatile long zone[6];                                                                       \
        double d = a * b, e = b * c, f = a * c, g = a + b + c;                                       \
        for (int i = 0; i < 6; i++) zone[i] = n + i;                                                 \
        AROUND;                                                                                      \
        APART(k);                                                                                    \
        STRESS_PASS(k, n, 3 * n, ~n, (char *)"stress" + k % 6);                                      \
        BEHIND;                                                                                      \
        long sum = 0;                                                                                \
        for (int i = 0; i < 6; i++) sum += zone[i];                                                  \
        return d + e + f + g + (double)(sum - 6 * n - 15);                                           \
    }
#define RIGHT(a, b, c) (a * b + b * c + a * c + a + b + c)
#include "places.h"

static void *brief(void *argument) {
    places[(long)argument % 64](3, 1, 2, 3);
    return 0;
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    int threads = argc > 2 ? atoi(argv[2]) : 2;
    pthread_t other;
    struct timeval began, now;
    start(threads);
    gettimeofday(&began, 0);
    for (long i = 0;; i++) { /* threads that come and go all the while */
        pthread_create(&other, 0, brief, (void *)i);
        pthread_join(other, 0);
        gettimeofday(&now, 0);
        if ((double)(now.tv_sec - began.tv_sec) + (double)(now.tv_usec - began.tv_usec) / 1e6 > seconds) break;
    }
    return finish(threads);
}
