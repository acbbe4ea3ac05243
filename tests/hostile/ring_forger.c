/* A traced program that looks for the tracer's rings among its own memory and writes into them.
 * argv[1]: head (a head beyond all slots), back (a head before the tail), site, process (argv[2]), thread, time, length, cut, rest;
 * quiet does nothing; without
 * rings: many (what is counted becomes 2^63), fewer (it becomes 0). */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "victim.h"

enum { RING_HEADER = 4096, MOST = 16, LEAST = 1 << 20 };

static char *rings(size_t *size)
{
  static char line[4096];
  char *best = NULL;
  FILE *maps = fopen("/proc/self/maps", "r");
  *size = LEAST;  /* what is smaller is no ring */
  while (fgets(line, sizeof line, maps)) {
    unsigned long start, end;
    char flags[5];
    if (sscanf(line, "%lx-%lx %4s", &start, &end, flags) == 3 && !strcmp(flags, "rw-s")
        && strstr(line, "/memfd:usdtbuild") && end - start > *size) {
      best = (char *)start;
      *size = end - start;
    }
  }
  fclose(maps);
  return best;
}

/* Write a number over all that is shared with the tracer and not 0. */
static void recount(uint64_t number)
{
  static char line[4096];
  FILE *maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps)) {
    unsigned long start, end;
    char flags[5];
    if (sscanf(line, "%lx-%lx %4s", &start, &end, flags) == 3 && !strcmp(flags, "rw-s")
        && strstr(line, "/memfd:usdtbuild"))
      for (volatile uint64_t *word = (void *)start; word < (uint64_t *)end; word++)
        if (*word > 1000 && *word < UINT64_C(1) << 32) *word = number;
  }
  fclose(maps);
}

int main(int count, char **words)
{
  if (count < 2) return 2;
  const char *mode = words[1];
  printf("%d\n", (int)getpid());
  fflush(stdout);
  if (!strcmp(mode, "quiet")) pause();
  char *start = NULL;
  size_t size = 0;
  for (int i = 0;; i++) {
    for (int hit = 0; hit < 200; hit++) VICTIM_TEXT("a text");
    if (!strcmp(mode, "many") || !strcmp(mode, "fewer")) {
      for (int hit = 0; hit < 200; hit++) VICTIM_TICK(2000);
      if (i % 64 == 63) recount(*mode == 'm' ? UINT64_C(1) << 63 : 0);
      usleep(500);
      continue;
    }
    if (!start && i % 16 == 0) start = rings(&size);
    usleep(500);
    if (!start) continue;
    size_t stride = size / MOST;
    for (int ring = 0; ring < MOST; ring++) {
      volatile uint64_t *head = (volatile uint64_t *)(start + ring * stride);
      if (!*head) continue;
      if (!strcmp(mode, "head")) *head = UINT64_C(1) << 62;
      else if (!strcmp(mode, "back")) *head = 0;
      else
        for (int slot = 0; slot < 64; slot++) {
          char *record = start + ring * stride + RING_HEADER + slot * SLOT;
          if (!strcmp(mode, "site")) *(uint32_t *)(record + 20) = 0x7fffffff;
          if (!strcmp(mode, "process")) *(uint32_t *)(record + 24) = count > 2 ? atoi(words[2]) : 1;
          if (!strcmp(mode, "thread")) *(uint32_t *)(record + 16) = 0xffffffff;
          if (!strcmp(mode, "time")) *(uint64_t *)(record + 8) = UINT64_MAX;
          if (!strcmp(mode, "length")) *(uint64_t *)(record + 40) = UINT64_C(1) << 61;
          if (!strcmp(mode, "cut")) *(uint64_t *)(record + 40) = UINT64_C(1) << 62; /* and nothing of it */
          if (!strcmp(mode, "rest")) *(uint64_t *)(record + 40) = UINT64_C(1) << 62 | 4096;
        }
    }
  }
}
