/* A byte-wise patcher of its own function `target`: padding first, then the entry's second byte, then its first.
 *
 * patcher LANDING NOPS FIRST [TIMES]: the bytes of the landing pad, of the entry's NOPs, and of the first of them.
 * Calls `target` in every state that a thread could meet, each in a child, and prints "STATE PLACE SIGNAL" for it:
 * at the function's symbol, and, behind a first NOP of one byte, at the second byte. With TIMES, threads call
 * `target` meanwhile, and it is patched and restored that often.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PADDING = 5, THREADS = 2 };

long target(long x);
__attribute__((noinline)) long target(long x) { return 2 * x + 1; }

/* rax is nobody's at a function's start: 1, so that whoever takes it for an address faults. */
long enter(uintptr_t place, long x);
__asm__(".text\n.type enter, @function\nenter: mov %rdi, %r11\n mov %rsi, %rdi\n mov $1, %eax\n jmp *%r11\n"
        ".type hook, @function\nhook: lock incq hits(%rip)\n jmp *resume(%rip)\n");
void hook(void);
long hits;
uintptr_t resume;
static int stop;

static void *call(void *failures) {
  while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
    for (long x = 0; x < 100; x++)
      if (enter((uintptr_t)target, x) != 2 * x + 1) __atomic_add_fetch((long *)failures, 1, __ATOMIC_RELAXED);
  return NULL;
}

static int signal_of_a_call(uintptr_t place) {
  pid_t child = fork();
  if (child == 0) _exit(enter(place, 20) != 41);
  int status;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

static void show(const char *state, uintptr_t second) {
  printf("%s symbol %d\n", state, signal_of_a_call((uintptr_t)target));
  if (second) printf("%s second %d\n", state, signal_of_a_call(second));
  fflush(stdout);
}

static void store(volatile unsigned char *at, unsigned char value) { __atomic_store_n(at, value, __ATOMIC_SEQ_CST); }

int main(int count, char **words) {
  if (count < 4) return 2;
  int landing = atoi(words[1]), nops = atoi(words[2]), first = atoi(words[3]), times = count > 4 ? atoi(words[4]) : 0;
  unsigned char *entry = (unsigned char *)target + landing, *padding = (unsigned char *)target - PADDING;
  uintptr_t page = (uintptr_t)padding & ~4095UL, second = first == 1 ? (uintptr_t)entry + 1 : 0;
  if (mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) return 3;
  unsigned char was[2] = {entry[0], entry[1]}, back = (unsigned char)-(2 + landing + PADDING);
  resume = (uintptr_t)entry + (uintptr_t)nops;
  int32_t distance = (int32_t)((uintptr_t)hook - (uintptr_t)padding - 5);
  show("bare", second);
  padding[0] = 0xe9;
  memcpy(padding + 1, &distance, 4);
  show("padding", second);
  store(entry + 1, back);
  show("half", second);
  store(entry, 0xeb);
  show("patched", second);
  if (enter((uintptr_t)target, 20) != 41 || hits != 1) return 4;
  store(entry, was[0]);
  show("half-restored", second);
  store(entry + 1, was[1]);
  if (times) {
    long failures = 0;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, call, &failures);
    for (int done = 0; done < times; done++) {
      store(entry + 1, back);
      store(entry, 0xeb);
      for (volatile int wait = 0; wait < 200; wait++) {}
      store(entry, was[0]);
      store(entry + 1, was[1]);
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("threads wrong %ld\n", failures);
  }
  return 0;
}
