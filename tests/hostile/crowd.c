/* Sixteen threads that hit a probe as fast as they can, for argv[1] seconds, once a line has come; then it waits for
 * another line. So each ring of a tracer is filled. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "victim.h"

static volatile int over;

static void *work(void *nothing)
{
  while (!over) VICTIM_TEXT("a text of some length, so that a record takes room");
  return nothing;
}

int main(int count, char **words)
{
  pthread_t threads[16];
  char line[8];
  struct timespec pause = {count > 1 ? atoi(words[1]) : 1, 0};
  if (!fgets(line, sizeof line, stdin)) return 2;
  for (int i = 0; i < 16; i++) pthread_create(&threads[i], NULL, work, NULL);
  nanosleep(&pause, NULL);
  over = 1;
  for (int i = 0; i < 16; i++) pthread_join(threads[i], NULL);
  puts("over");
  fflush(stdout);
  return !fgets(line, sizeof line, stdin);
}
