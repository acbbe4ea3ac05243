/* A program with every kind of C function whose entry compilers treat in a way of their own. */
#ifdef HOSTED
#include <stdio.h>
#include <stdlib.h>
#else
int printf(const char *, ...);
void abort(void) __attribute__((noreturn, cold));
#endif

int counter = 3;
int (*volatile call)(int);

__attribute__((noinline)) int leaf(int x) { return x + 1; }
__attribute__((noinline)) static int local(int x) { return x * counter; }
__attribute__((noinline)) int reads_global(int x) { return x + counter; }
__attribute__((noinline, patchable_function_entry(0, 0))) int left_out(int x) { return x - 1; }
__attribute__((noinline, cold)) int seldom(int x) { return x / 3; }
int weak_one(int x) __attribute__((weak));
int weak_one(int x) { return x ^ 5; }
int another_name(int x) __attribute__((alias("leaf")));

__attribute__((noinline)) int loops(int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) {
    if (i & counter) sum += leaf(i);
    else sum ^= i;
  }
  return sum;
}

__attribute__((noinline)) int first_thing_a_loop(volatile int *p) {
  do {
    *p = *p * 3 + 1;
  } while (*p & 7);
  return *p;
}

__attribute__((noinline)) int splits(int x) {
  if (__builtin_expect(x < 0, 0)) {
    printf("negative %d\n", x);
    abort();
  }
  return local(x) + reads_global(x);
}

__attribute__((noinline)) int recursive(int n) { return n < 2 ? 1 : recursive(n - 1) + recursive(n - 2); }

__attribute__((noinline)) int selects(int x) {
  switch (x) {
    case 0: return leaf(1);
    case 1: return local(4);
    case 2: return loops(7);
    case 3: return reads_global(9);
    case 4: return counter;
    case 5: return splits(2);
    default: return recursive(x);
  }
}

__attribute__((constructor)) static void at_start(void) { *(volatile int *)&counter += 1; }

#ifdef IFUNC
static int chosen(int x) { return x + 11; }
static int (*resolve_chosen(void))(int) { return chosen; }
int dispatched(int x) __attribute__((ifunc("resolve_chosen")));
#else
__attribute__((noinline)) int dispatched(int x) { return x + 11; }
#endif

int used_by_nobody(int x) { return x * 100; }

int main(int argc, char **argv) {
  volatile int memory = argc;
  call = leaf;
  (void)argv;
  return (selects(argc) + call(argc) + left_out(1) + seldom(2) + weak_one(3) + another_name(1) + dispatched(2) +
          first_thing_a_loop(&memory)) & 0;
}
