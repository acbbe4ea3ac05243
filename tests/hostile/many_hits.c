/* Threads that hit probes as fast as they can, with a value that is always the same; the program ends amid that. */
#include <pthread.h>
#include <unistd.h>

#include "victim.h"

static void *work(void *nothing)
{
  for (;;) {
    VICTIM_TICK(4096);
    VICTIM_TEXT("a text");
  }
  return nothing;
}

int main(void)
{
  pthread_t thread;
  for (int i = 0; i < 16; i++) pthread_create(&thread, NULL, work, NULL);
  usleep(100000);
  return 0;
}
