/* A process that shares its descriptors with the one that is traced, and is no thread of it: it puts another file in
 * the place of each descriptor that appears. argv[1] is the file to be destroyed, which this user may not write.
 * The traced process prints its number and then hits a probe until its standard input ends. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "victim.h"

enum { FIRST = 5, LAST = 12, STACK = 1 << 16 };
static int target;

static int swap(void *unused)
{
  (void)unused;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;)
    for (int number = FIRST; number < LAST; number++)
      if (fcntl(number, F_GETFD) >= 0) dup2(target, number);
      else close(number);
  return 0;
}

int main(int count, char **words)
{
  if (count != 2 || (target = open(words[1], O_PATH)) < 0) return 2;
  dup2(target, FIRST - 1);
  target = FIRST - 1;
  char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (clone(swap, stack + STACK, CLONE_FILES | SIGCHLD, NULL) < 0) return 3;
  printf("%d\n", (int)getpid());
  fflush(stdout);
  for (int i = 0;; i++) {
    VICTIM_TICK(i);
    usleep(1000);
  }
}
