/* Half of a program (PART 1 or 2) whose other half shares its stubs; with functions that nobody calls. */
#include "corpus.h"

void put(const char *what, long value);
void finish(void);

typedef __typeof__(__dtrace_corpus___by__pointer) by_pointer; /* i386's names its calling convention */

#define PASTE(a, b) a##b
#define NAME(a, part) PASTE(a, part)

__attribute__((noinline)) int NAME(used, PART)(int a)
{
	by_pointer *volatile found = __dtrace_corpus___by__pointer;
	CORPUS_ONE(a + PART);
	found(a);
	return a;
}

/* Nothing refers to this one, so --gc-sections drops it and its records. */
__attribute__((noinline)) int NAME(unused, PART)(int a)
{
	CORPUS_ARGS2(a, PART);
	CORPUS_ARGS3(a, PART, 3);
	return a;
}

#if PART == 1
int used2(int a);

int main(void)
{
	put("sum", used1(10) + used2(20));
	finish();
	return 0;
}
#endif
