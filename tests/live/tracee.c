/* Fires every probe of live.d ROUNDS times with values the tests know. Built as a program, and, with -DMODULE, as a
   library whose `live_run` another program calls. Prints how often a guarded site was passed. */
#include <stdint.h>
#include <stdio.h>
#include "live.h"

enum { ROUNDS = 3 };
static char greeting[] = "hello, probe";
static char tail_text[] = "from a tail call";
static volatile int guarded;

__attribute__((noinline)) void tail_caller(int a, int b, int c, int d, int e, int f, int g, const char *h)
{
    LIVE_TAIL_CALL(a, b, c, d, e, f, g, h);
}

int live_run(void)
{
    int i;
    greeting[0] = 'H'; /* touched, so that its page is there when a tracer reads it */
    tail_text[0] = 'F';
    for (i = 0; i < ROUNDS; i++) {
        LIVE_INTS(-1 - i, 255 - i, -300, 65535, -70000, 4000000000u, -5000000000, 18446744073709551615u);
        LIVE_TEXT(greeting, tail_text);
        LIVE_TWELVE(1, 2, 3, 4, 5, -6, -7, 60000, -9, -1099511627776, 11, -12);
        tail_caller(1, 2, 3, 4, 5, 6, -7, tail_text);
        if (LIVE_GUARDED_ENABLED()) {
            guarded++;
            LIVE_GUARDED(i);
        }
        LIVE_REAL(1.5 + i, -0.25f, i != 1);
    }
    printf("guarded %d, at %p\n", guarded, (void *)&guarded);
    return 0;
}

#ifndef MODULE
int main(void)
{
    return live_run();
}
#endif
