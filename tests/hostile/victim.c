/* An ordinary program with probes. */
#include "victim.h"

int main(int count, char **words)
{
  VICTIM_TICK(count);
  VICTIM_TEXT(words[0]);
  return 0;
}
