/* Four processes fork argv[1] children each, which get the same few numbers again and again, in a namespace of their own.
 * Each child hits three times. Says how many there were, and how many have ended by anything else than their own will. */
#include "reused.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int forks(int children)
{
  int bad = 0;
  for (int i = 0; i < children; i++) {
    if (i % 20 == 0) {
      FILE *last = fopen("/proc/sys/kernel/ns_last_pid", "w");
      if (!last || fputs("300", last) < 0 || fclose(last)) return 255;
    }
    pid_t child = fork();
    if (!child) {
      for (int hit = 0; hit < 3; hit++) REUSED_HIT(hit);
      _exit(7);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7) bad++;
  }
  return bad < 254 ? bad : 254;
}

int main(int count, char **words)
{
  int children = count > 1 ? atoi(words[1]) : 0, bad = 0, status;
  for (int i = 0; i < 4; i++)
    if (!fork()) _exit(forks(children));
  for (int i = 0; i < 4 && wait(&status) > 0; i++) bad += WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
  printf("%d children, %d killed\n", 4 * children, bad);
  return 0;
}
