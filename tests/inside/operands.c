/* What the runtime makes of operands of this machine: each word of the command line, and where its argument is. */
#include <stdio.h>
#include <string.h>

#include "internal.h"

int main(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++) {
		usdt_live_argument_place place = {0};

		if (!live_machine_operand(argv[i], strlen(argv[i]), &place))
			printf("%s: no\n", argv[i]);
		else if (place.kind == 0)
			printf("%s: register %d\n", argv[i], place.reg);
		else if (place.kind == 1)
			printf("%s: register %d + %lld\n", argv[i], place.reg, (long long)place.offset);
		else if (place.kind == 2)
			printf("%s: %lld\n", argv[i], (long long)place.offset);
		else
			printf("%s: stack\n", argv[i]);
	}
	return 0;
}
