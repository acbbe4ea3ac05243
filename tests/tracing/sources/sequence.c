/* Spends nearly all of its time in a restartable sequence, which finds at its end the value that it found at the start. */
#include "stress.h"
#include <poll.h>
#include <stdio.h>
#include <sys/rseq.h>

static volatile unsigned char value;
static long done, again, wrong;

int main(void) {
    struct pollfd end = {0, POLLIN, 0};
    if (!__rseq_size) return puts("none 0"), 0;
    struct rseq *mine = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
    printf("at %p\n", (void *)&value);
    fflush(stdout);
    STRESS_PASS(1, 2, 3, 4, (char *)"sequence");
    while (!poll(&end, 1, 0)) {
        __asm__ volatile goto(
            ".pushsection __rseq_cs, \"aw\"\n.balign 32\n9: .long 0, 0\n.quad 1f, 2f - 1f, 4f\n.popsection\n"
            "lea 9b(%%rip), %%rax\nmov %%rax, %[cs]\n"
            "1: movzbl %[value], %%edx\nmov $3000000, %%ecx\n3: loop 3b\ncmp %[value], %%dl\n"
            "2: setne %%al\nadd %%al, %[wrong]\njmp 5f\n"
            ".byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n4: jmp %l[aborted]\n5:\n"
            : : [cs] "m"(mine->rseq_cs), [value] "m"(value), [wrong] "m"(wrong)
            : "rax", "rcx", "rdx", "memory", "cc" : aborted);
        done++;
        continue;
    aborted:
        again++;
    }
    printf("wrong=%ld done=%ld again=%ld\n", wrong, done, again);
    return 0;
}
