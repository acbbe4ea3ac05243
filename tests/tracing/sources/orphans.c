/* argv[1] processes fork children all the time, each of which hits for some 20 ms. Ends with the first of its input. */
#include "orphans.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static void forks(void)
{
  for (;;) {
    if (!fork()) {
      for (int hit = 0; hit < 20; hit++) {
        ORPHANS_HIT(hit);
        usleep(1000);
      }
      _exit(7);
    }
    usleep(500);
  }
}

int main(int count, char **words)
{
  signal(SIGCHLD, SIG_IGN);
  for (int i = 0; i < (count > 1 ? atoi(words[1]) : 1); i++)
    if (!fork()) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      forks();
    }
  getchar();
  return 0;
}
