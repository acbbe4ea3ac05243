/* Fires probes with strings, one at no readable address; then as a forked child, too. Ends with exit code 3. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tracee.h"

static const char *const names[] = {"first", NULL, (const char *)16, "last"};

__attribute__((noinline)) int run(int id)
{
	TRACEE_BEGIN(id, names[id]);
	TRACEE_END(id, id / 4.0, -id);
	return id;
}

int main(void)
{
	int i;

	for (i = 0; i < 4; i++)
		run(i);
	if (fork() == 0) {
		run(3);
		_exit(0);
	}
	wait(NULL);
	puts("end");
	return 3;
}
