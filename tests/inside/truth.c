/*
 * What calls what, as a program compiled with -finstrument-functions says: `depth offset calls` a line, into the file that TRUTH names.
 *
 * What longjmp left goes when another call is made above its frame. A forked child begins with an empty stack, in the same tree.
 */

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PLAIN __attribute__((no_instrument_function))
enum { DEEPEST = 1000, NODES = 4096, NEAR = 1 << 20 };

extern char __executable_start;

typedef struct node {
	void *function;
	int child, sibling;
	unsigned long calls;
} node;

static struct tree {
	int used;
	node nodes[NODES];
} *tree;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread struct {
	int node;
	char *frame;
	void *function;
} stack[DEEPEST];
static __thread int depth;

static PLAIN void in_child(void)
{
	depth = 0;
}

static PLAIN __attribute__((constructor(101))) void begin(void)
{
	tree = mmap(NULL, sizeof *tree, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	tree->used = 1;
	pthread_atfork(NULL, NULL, in_child);
}

static PLAIN void print(int fd, int below, int level)
{
	int at;

	for (at = tree->nodes[below].child; at; at = tree->nodes[at].sibling) {
		dprintf(fd, "%d %zx %lu\n", level, (size_t)((char *)tree->nodes[at].function - &__executable_start), tree->nodes[at].calls);
		print(fd, at, level + 1);
	}
}

static PLAIN __attribute__((destructor)) void end(void)
{
	int fd = creat(getenv("TRUTH"), 0644);

	print(fd, 0, 0);
	close(fd);
}

PLAIN void __cyg_profile_func_enter(void *function, void *site)
{
	char *frame = __builtin_frame_address(1);
	int *at, parent, made;

	(void)site;
	while (depth && stack[depth - 1].frame <= frame && frame - stack[depth - 1].frame < NEAR)
		depth--;
	parent = depth ? stack[depth - 1].node : 0;
	pthread_mutex_lock(&lock);
	for (at = &tree->nodes[parent].child; *at && tree->nodes[*at].function != function; at = &tree->nodes[*at].sibling)
		;
	made = *at ? *at : tree->used++;
	*at = made;
	tree->nodes[made].function = function;
	tree->nodes[made].calls++;
	pthread_mutex_unlock(&lock);
	stack[depth].node = made;
	stack[depth].frame = frame;
	stack[depth++].function = function;
}

PLAIN void __cyg_profile_func_exit(void *function, void *site)
{
	char *frame = __builtin_frame_address(1);
	int at;

	(void)site;
	for (at = depth; at-- > 0;)
		if (stack[at].function == function && stack[at].frame == frame) {
			depth = at;
			return;
		}
}
