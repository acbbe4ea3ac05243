/* Its first thread holds known values in all registers, the flags and the red zone, sleeps, reads, polls and waits for
   signals, in turns, while another one keeps it supplied; until a line comes. Says what was not as it should be. */
#define _GNU_SOURCE
#include "stress.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* rbx, rdx, rsi, rdi, rbp, r8 to r15; xmm0 to xmm15; 16 words of red zone; flags; the rest of the count */
unsigned long seen[13 + 16 + 16 + 2];
void registers(void);
__asm__(
    ".text\n.globl registers\n.type registers, @function\nregisters:\n"
    "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n"
    ".set n, 0\n.irp r, rbx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15\n"
    ".set n, n + 1\nmovabs $0x0101010101010101 * n, %\\r\n.endr\n"
    ".irp k, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
    "movabs $0x0101010101010101 * (\\k + 14), %rax\nmovq %rax, %xmm\\k\n"
    "movabs $0x0101010101010101 * (\\k + 30), %rax\nmov %rax, -8 * (\\k + 1)(%rsp)\n.endr\n"
    "mov $0x7f, %al\nadd $1, %al\nmov $0xd5, %ah\nsahf\n" /* OF, and SF ZF AF PF CF */
    "mov $20000, %ecx\n1: loop 1b\n"
    "seto %al\nlahf\nmov %rcx, seen + 8 * 46(%rip)\nmovzwl %ax, %eax\nmov %rax, seen + 8 * 45(%rip)\n"
    ".set n, 0\n.irp r, rbx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15\n"
    "mov %\\r, seen + 8 * n(%rip)\n.set n, n + 1\n.endr\n"
    ".irp k, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
    "movq %xmm\\k, seen + 8 * (13 + \\k)(%rip)\n"
    "mov -8 * (\\k + 1)(%rsp), %rax\nmov %rax, seen + 8 * (29 + \\k)(%rip)\n.endr\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\n"
    ".size registers, . - registers\n");

static int pipes[2], wrong[6], over;
static volatile sig_atomic_t queued, usual;
static long sent;

static void handle(int number) {
    if (number == SIGUSR1) usual++;
    else queued++;
}

static void *other(void *first) {
    unsigned char byte = 0;
    struct timespec pause = {0, 700000};
    struct pollfd end = {0, POLLIN, 0};
    while (!poll(&end, 1, 0)) {
        write(pipes[1], &byte, 1);
        byte++;
        pthread_kill(*(pthread_t *)first, SIGUSR1);
        while (pthread_kill(*(pthread_t *)first, SIGRTMIN) == EAGAIN) nanosleep(&pause, 0);
        sent++;
        nanosleep(&pause, 0);
    }
    over = 1;
    write(pipes[1], &byte, 1);
    pthread_kill(*(pthread_t *)first, SIGUSR1);
    return 0;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void turn(sigset_t *waiting) {
    static unsigned char next;
    unsigned char bytes[256];
    sigset_t mask;
    STRESS_PASS(1, 2, 3, 4, (char *)"turn");
    registers();
    for (int k = 0; k < 45; k++) wrong[0] += seen[k] != 0x0101010101010101UL * (unsigned long)(k + 1);
    wrong[0] += (seen[45] & 0xd501) != 0xd501 || seen[46];
    /* Signals that come interrupt what sleeps or polls; without them nothing does. */
    pthread_sigmask(SIG_BLOCK, waiting, 0);
    struct timespec pause = {0, 1500000};
    double before = now();
    if (nanosleep(&pause, 0) || now() - before < 0.0015) wrong[1]++;
    struct pollfd one = {-1, POLLIN, 0};
    if (poll(&one, 1, 2) < 0) wrong[2]++;
    ssize_t length = read(pipes[0], bytes, sizeof bytes);
    if (length <= 0) wrong[3]++;
    for (ssize_t at = 0; at < length; at++) wrong[3] += bytes[at] != next++;
    sigset_t open = *waiting;
    sigemptyset(&open);
    if (!over && (sigsuspend(&open) != -1 || errno != EINTR)) wrong[4]++;
    pthread_sigmask(SIG_BLOCK, 0, &mask);
    if (!sigismember(&mask, SIGUSR1) || !sigismember(&mask, SIGRTMIN) || sigismember(&mask, SIGTERM)) wrong[5]++;
    pthread_sigmask(SIG_UNBLOCK, waiting, 0);
}

int main(void) {
    struct sigaction action = {0};
    sigset_t waiting;
    pthread_t first = pthread_self(), thread;
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, 0);
    sigaction(SIGRTMIN, &action, 0);
    sigemptyset(&waiting);
    sigaddset(&waiting, SIGUSR1);
    sigaddset(&waiting, SIGRTMIN);
    pipe(pipes);
    puts("ready");
    fflush(stdout);
    pthread_create(&thread, 0, other, &first);
    long turns = 0;
    for (; !over; turns++) turn(&waiting);
    pthread_join(thread, 0);
    printf("wrong=%d,%d,%d,%d,%d,%d lost=%ld turned=%d\n", wrong[0], wrong[1], wrong[2], wrong[3], wrong[4], wrong[5],
           sent - queued, turns > 0 && usual > 0);
    return 0;
}
