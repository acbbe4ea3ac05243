/* Counts the lines of its input. */
#include <stdio.h>

#include "counter.h" /* made from counter.d, and committed */

int main(void)
{
	long lines = 0;
	int sign;

	while ((sign = getchar()) != EOF)
		if (sign == '\n')
			COUNTER_LINE(++lines);
	COUNTER_DONE(lines);
	printf("%ld\n", lines);
	return 0;
}
