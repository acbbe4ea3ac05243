/* Maps a file as code under a name of its choice and swaps it for a FIFO and back, as fast as it can.
 * argv[1]: the name; argv[2]: an ELF file to copy there. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **words)
{
  char kept[4096];
  if (count != 3) return 2;
  snprintf(kept, sizeof kept, "%s.kept", words[1]);
  static char buffer[1 << 16];
  int from = open(words[2], O_RDONLY), to = open(words[1], O_RDWR | O_CREAT | O_TRUNC, 0755);
  ssize_t size;
  if (from < 0 || to < 0) return 3;
  while ((size = read(from, buffer, sizeof buffer)) > 0)
    if (write(to, buffer, (size_t)size) != size) return 4;
  if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, to, 0) == MAP_FAILED) return 5;
  printf("%d\n", (int)getpid());
  fflush(stdout);
  for (;;) {
    if (rename(words[1], kept) || mkfifo(words[1], 0777)) return 6;
    usleep(200);
    if (rename(kept, words[1])) return 7;
    usleep(200);
  }
}
