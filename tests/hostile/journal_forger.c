/* A process whose memory looks as if tracers had left a hundred journals in it, each as large as is taken at all.
 * argv[1]: how many entries each claims; argv[2]: 1, and some of them can be read and not be written. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "victim.h"

struct header { char magic[8]; uint32_t owner, entries; uint64_t started, rings, cell; uint32_t control, parts; };
struct entry { uint64_t address, mirror; char before[8], after[8]; uint64_t flags; };

int main(int count, char **words)
{
  uint64_t entries = strtoull(words[1], NULL, 0), i;
  size_t size = 64 + (entries < 1 << 20 ? entries : 1 << 20) * sizeof(struct entry);
  int file = memfd_create("usdtbuild-trace", 0), code = open("/proc/self/exe", 0);
  void *fixed = mmap(NULL, 4096, PROT_READ, MAP_SHARED, code, 0);

  if (count != 3 || ftruncate(file, size) || fixed == MAP_FAILED) return 2;
  char *first = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  struct header *header = (struct header *)first;
  memcpy(header->magic, "usdtbld2", 8);
  header->owner = 1 << 30;
  header->entries = entries;
  struct entry *at = (struct entry *)(first + 64);
  for (i = 0; i < (size - 64) / sizeof *at; i++)
    at[i] = (struct entry){0x1000 + i, 0x1000 + i, "", "", 0};
  if (atoi(words[2])) { /* the file's first bytes, as if they were ours */
    at[0] = (struct entry){(uintptr_t)fixed, 0, "xxxxx", "\177ELF\2", 1};
    at[1] = (struct entry){(uintptr_t)fixed, 0, "", "", 3};
  }
  for (i = 0; i < 100; i++)
    if (mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) == MAP_FAILED) return 3;
  printf("%d\n", (int)getpid());
  fflush(stdout);
  for (;;) {
    VICTIM_TICK(1);
    usleep(1000);
  }
}
