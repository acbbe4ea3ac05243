/* consumer WORD... counts its words. */
#include <stdio.h>
#include <tally/tally.h>

int main(int count, char **words)
{
    for (int i = 1; i < count; i++)
        printf("%s %ld\n", words[i], tally_add(words[i], 1));
    return 0;
}
