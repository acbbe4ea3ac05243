/* Opens a library, puts another file in its place, and only then asks for its probes. Usage: replaced LIBRARY OTHER */
#include <dlfcn.h>
#include <stdio.h>

#include "usdt_live.h"

int main(int argc, char **argv)
{
	static char text[8192];

	if (argc != 3 || !dlopen(argv[1], RTLD_NOW) || rename(argv[2], argv[1]))
		return 1;
	printf("on %d\n", usdt_live_probe_on("module:*", NULL, NULL));
	usdt_live_report(text, sizeof text);
	puts(text);
	return 0;
}
