/* A traced program that looks for a table of the tracer's among its own memory, hits until there are some hits in it,
 * changes one thing there, and then hits no more. argv[1] is what it changes. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "victim.h"

/* A table's cell (usdtbuild/tracing/patch/tables.py), and the classes of one that is alone. */
struct cell {
  uint64_t key, count, sum, high, most, least, unused[2], classes[1024];
};

enum { HITS = 1000, STACK = 2048, STACKS = 1024, SHARD = 63, COUNTERS = 64, OF_2000 = 71, OF_2_TO_62 = 480 };
static const uint64_t sign = UINT64_C(1) << 63;

/* Whether it looks like a cell of some values, which are signed if they are all 2000. Where it has classes, they say how
 * many values there were. */
static int is_cell(const struct cell *one, const char *end)
{
  uint64_t least = ~one->least, turned = least ^ sign, count = one->count;
  if (one->most == one->least || !one->sum || one->high || one->key >> 32) return 0;
  for (int i = 0; !one->count && i < 1024 && (const char *)&one->classes[i] < end; i++) count += one->classes[i];
  if (count < HITS || count > 1 << 24) return 0;
  return least == one->most ? turned == 2000 : least < one->most && one->sum / count <= one->most;
}

/* The stack of this thread, on which one begin waits for its end. Where it is, relative to the counters of what was not
 * paired, its number says; or the thread has the first shard, and its stack is behind all of those. */
static uint64_t thread, place;
static uint64_t *stack_of_this_thread(char *start, char *end)
{
  thread = (uint64_t)syscall(SYS_gettid) << 32;
  place = ((thread * UINT64_C(0x9e3779b97f4a7c15)) >> 54) * STACK;
  for (char *one = start + COUNTERS + place; one + STACK <= end; one += 64)
    if (*(uint64_t *)one == (thread | 1)) return (uint64_t *)one;
  thread = 0, place = (STACKS + SHARD) * STACK;
  for (char *one = start + COUNTERS + place; one + STACK <= end; one += 64)
    if (((uint64_t *)one)[0] == 1 && !((uint64_t *)one)[1] && ((uint64_t *)one)[2]) return (uint64_t *)one;
  return NULL;
}

static void forge(const char *what, struct cell *one, uint64_t *stack)
{
  if (!strcmp(what, "sum")) one->sum *= 1000;
  if (!strcmp(what, "negative")) one->high = UINT64_MAX;
  if (!strcmp(what, "extremes")) one->most = ~one->least - 1;
  if (!strcmp(what, "count") && one->count) one->count += 1000;
  if (!strcmp(what, "count"))
    for (int i = 0; !one->count && i < 512; i++)
      if (one->classes[i]) {
        one->classes[i] += 1000;
        break;
      }
  if (!strcmp(what, "more")) one->classes[OF_2000] += 1000;
  if (!strcmp(what, "fewer")) one->classes[OF_2000] -= 500;
  if (!strcmp(what, "elsewhere")) {
    one->classes[OF_2000] -= 500;
    one->classes[OF_2000 + 9] += 500;
  }
  if (!strcmp(what, "long"))
    for (int i = 0; i < 512; i++)
      if (one->classes[i]) {  /* one duration becomes 2^62 ticks, and all but the clock agrees */
        one->classes[i]--;
        one->classes[OF_2_TO_62]++;
        one->most = UINT64_C(1) << 62;
        one->sum += one->most;
        break;
      }
  if (!strcmp(what, "ends")) *(uint64_t *)((char *)stack - place - COUNTERS) = 1000000;
  if (!strcmp(what, "open")) *stack = thread | 63;
}

int main(int count, char **words)
{
  static char line[4096];
  if (count != 2) return 2;
  printf("%d\n", (int)getpid());
  fflush(stdout);
  for (;;) {
    for (int hit = 0; hit < 200; hit++) {
      VICTIM_TICK(2000);
      VICTIM_TEXT("a text");
    }
    usleep(500);
    VICTIM_TICK(2000);  /* this begin waits while its stack is looked for */
    FILE *maps = fopen("/proc/self/maps", "r");
    struct cell *found = NULL;
    uint64_t *stack = NULL;
    while (fgets(line, sizeof line, maps)) {
      unsigned long start, end;
      char flags[5];
      if (sscanf(line, "%lx-%lx %4s", &start, &end, flags) != 3 || strcmp(flags, "rw-s")) continue;
      if (!strstr(line, "/memfd:usdtbuild")) continue;
      for (char *one = (char *)start; one < (char *)end && !found; one += 64)
        if (is_cell((struct cell *)one, (char *)end)) found = (struct cell *)one;
      if (!stack) stack = stack_of_this_thread((char *)start, (char *)end);
    }
    fclose(maps);
    VICTIM_TEXT("a text");
    if (!found || (!stack && (!strcmp(words[1], "ends") || !strcmp(words[1], "open")))) continue;
    forge(words[1], found, stack);
    for (;;) pause();
  }
}
