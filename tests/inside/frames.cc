/*
 * Functions whose entry and return are watched, left in every way there is. Prints one line a case: name, enters, leaves, and
 * whether the program's own result was right.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <stdexcept>
#include <string>

#include "usdt_live.h"

#define KEEP extern "C" __attribute__((noinline, noclone))
#if defined(__clang__)
#undef KEEP
#define KEEP extern "C" __attribute__((noinline))
#endif

/* Called through a pointer, or compilers compute the result themselves. What stands in f_tail is f_tail(int)::..., if it's compiled apart. */
#define CALL(f) ([]() __attribute__((patchable_function_entry(0, 0))) { decltype(&f) volatile pointer = f; return pointer; }())

static long enters, leaves;
static char trail[100000];

static void enter(const usdt_live_hit *hit, void *)
{
	enters++;
	if (strlen(trail) < 90000)
		strcat(strcat(trail, "+"), hit->point->name + 2);
}

static void leave(const usdt_live_return *ret, void *)
{
	leaves++;
	if (strlen(trail) < 90000)
		strcat(strcat(trail, "-"), ret->point->name + 2);
}

static void report(const char *name, bool right)
{
	printf("%s enters=%ld leaves=%ld %s %s\n", name, enters, leaves, right ? "right" : "WRONG", strlen(trail) < 200 ? trail : "");
	enters = leaves = 0;
	*trail = 0;
}

/* Through a pointer, or compilers make loops of recursions. */
extern long (*volatile recurse)(long);
KEEP long f_recurse(long n) { return n ? n + recurse(n - 1) : 0; }
long (*volatile recurse)(long) = f_recurse;

struct many { long a, b, c; };
KEEP many f_struct(long a, double d, long b, long c, long e, long f, long g, long on_stack, double more)
{
	return {a + on_stack, b + c + e + f + g, (long)(d + more)};
}
KEEP double f_double(double a, float b, double c) { return a * 2 + b + c; }
KEEP long double f_long_double(long double a) { return a * 2; }
#if defined(__SIZEOF_INT128__)
typedef __int128 wide;
#else
typedef long long wide;
#endif
enum { HALF = 8 * sizeof(wide) / 2 };
KEEP wide f_wide(long a) { return (wide)a << HALF | 5; }

/* A function that an exception stops in. GCC's tables of these are off by the entry's NOPs on 32-bit Arm, hooks or not: there another has the NOPs. */
#if defined(__arm__)
#define HANDLES(result, name, type, parameter) \
	static result name##_inside(type parameter); \
	KEEP result name(type parameter) \
	{ \
		result value = name##_inside(parameter); \
\
		__asm__ volatile("" : "+r"(value)); \
		return value; \
	} \
	static __attribute__((noinline, patchable_function_entry(0, 0))) result name##_inside(type parameter)
#else
#define HANDLES(result, name, type, parameter) KEEP result name(type parameter)
#endif

HANDLES(int, f_throws, int, depth)
{
	std::string owned = "destroyed on the way";

	if (depth == 0)
		throw std::runtime_error("thrown");
	int value = f_throws(depth - 1);
	return value + (int)owned.size();
}
HANDLES(int, f_catches, int, depth)
{
	try {
		return f_throws(depth);
	} catch (const std::runtime_error &error) {
		return strcmp(error.what(), "thrown") == 0 ? 42 : 0;
	}
}
/* Exceptions that leave two functions whose returns were one: the second was entered by a jump. */
KEEP int f_jumps_to_throw(int depth) { return CALL(f_throws)(depth); }
KEEP int f_jumps_on(int depth) { return CALL(f_jumps_to_throw)(depth); }
HANDLES(int, f_catches_of_jump, int, depth)
{
	try {
		return CALL(f_jumps_on)(depth);
	} catch (const std::runtime_error &error) {
		return strcmp(error.what(), "thrown") == 0 ? 42 : 0;
	}
}
KEEP int f_after(int x) { return x + 1; }

static jmp_buf place;
extern int (*volatile jumps)(int);
KEEP int f_jumps(int depth)
{
	if (depth == 0)
		longjmp(place, 7);
	return jumps(depth - 1) + 1;
}
int (*volatile jumps)(int) = f_jumps;
KEEP int f_sets(int depth)
{
	int value = setjmp(place);

	return value ? value : f_jumps(depth);
}

KEEP int f_last(int x) { return x * 2; }
KEEP int f_tail(int x) { return CALL(f_last)(x + 1); }
KEEP int f_tails(int x) { return CALL(f_tail)(x + 1); }

static ucontext_t one, two;
static int steps[16], step_count;
KEEP void f_yield(void) { swapcontext(&two, &one); }
KEEP void f_coroutine(void)
{
	for (int i = 0; i < 3; i++) {
		steps[step_count++] = i;
		f_yield();
	}
}
KEEP void f_resume(void) { swapcontext(&one, &two); }

static void *resume_elsewhere(void *)
{
	f_resume();
	return nullptr;
}

static volatile int signalled;
KEEP int f_in_handler(int x) { return x + 100; }
static void on_signal(int) { signalled += f_in_handler(1); }
KEEP int f_raises(int x)
{
	raise(SIGUSR1);
	return x;
}
static char other_stack[65536];

KEEP void *f_thread(void *data)
{
	for (long i = 0; i < 1000; i++)
		if (f_recurse(10) != 55)
			return nullptr;
	return data;
}
KEEP void *f_exits(void *data)
{
	f_after(1);
	pthread_exit(data);
}
static volatile bool cleaned, started;
struct cleaner { ~cleaner() { cleaned = true; } };
HANDLES(void *, f_cancelled, void *, data)
{
	cleaner c;
	(void)data;
	started = true;
	for (;;)
		pthread_testcancel();
}

static USDT_LIVE_FAST_HANDLER void fast_enter(const usdt_live_hit *, void *) { enters++; }
static USDT_LIVE_FAST_HANDLER void fast_leave(const usdt_live_return *, void *) { leaves++; }

/* A thread's first frame, with arguments in vector registers, which nobody saves. */
static void *doubles(void *data)
{
	bool right = CALL(f_double)(1.5, 2.5f, 3) == 8.5;
	many m = CALL(f_struct)(1, 2.5, 3, 4, 5, 6, 7, 8, 0.5);

	for (int i = 0; i < 200; i++)
		right = right && CALL(f_double)(i, 2.5f, 3) == 2 * i + 5.5;
	return right && m.a == 9 && m.b == 25 && m.c == 3 ? data : nullptr;
}

/* Usage: frames [TIMES], how often exceptions and longjmps are repeated. */
int main(int argc, char **argv)
{
	const int times = argc > 1 ? atoi(argv[1]) : 3000;
	pthread_t thread;
	void *result, *token = &leaves;
	bool right;

	if (usdt_live_function_on("f_*", enter, leave, nullptr) < 10) {
		char text[4096];

		usdt_live_report(text, sizeof text);
		printf("not on\n%s", text);
		return 1;
	}
	report("recursion", CALL(f_recurse)(10) == 55);
	many m = CALL(f_struct)(1, 2.5, 3, 4, 5, 6, 7, 8, 0.5);
	report("struct", m.a == 9 && m.b == 25 && m.c == 3);
	report("double", CALL(f_double)(1.5, 2.5f, 3) == 8.5);
	report("long-double", CALL(f_long_double)(1.25L) == 2.5L);
	report("wide", CALL(f_wide)(3) == ((wide)3 << HALF | 5));
	report("exception", CALL(f_catches)(3) == 42);
	report("after-exception", CALL(f_catches)(0) == 42 && CALL(f_after)(1) == 2);
	report("exception-of-jump", CALL(f_catches_of_jump)(0) == 42 && CALL(f_catches_of_jump)(1) == 42 && CALL(f_after)(1) == 2);
	right = true;
	for (int i = 0; i < times; i++)
		right = right && CALL(f_catches)(20) == 42 && CALL(f_after)(i) == i + 1;
	report("many-exceptions", right);
	report("longjmp", CALL(f_sets)(3) == 7 && CALL(f_after)(1) == 2);
	right = true;
	for (int i = 0; i < times; i++)
		right = right && CALL(f_sets)(20) == 7 && CALL(f_after)(i) == i + 1;
	report("many-longjmps", right);
	report("tail", CALL(f_tails)(1) == 6);

	static char stack[65536];
	getcontext(&two);
	two.uc_stack.ss_sp = stack;
	two.uc_stack.ss_size = sizeof stack;
	two.uc_link = &one;
	makecontext(&two, f_coroutine, 0);
	f_resume();
	CALL(f_after)(1);
	f_resume();
	f_resume();
	f_resume();
	report("coroutine", step_count == 3 && steps[2] == 2);
	step_count = 0;
	getcontext(&two);
	two.uc_stack.ss_sp = stack;
	two.uc_stack.ss_size = sizeof stack;
	two.uc_link = &one;
	makecontext(&two, f_coroutine, 0);
	f_resume();
	for (int i = 0; i < 3; i++) {
		pthread_create(&thread, nullptr, resume_elsewhere, nullptr);
		pthread_join(thread, nullptr);
	}
	report("coroutine-moves", step_count == 3 && CALL(f_after)(3) == 4);

	signal(SIGUSR1, on_signal);
	report("signal", CALL(f_raises)(5) == 5 && signalled == 101);
	stack_t alternate = {};
	alternate.ss_sp = other_stack;
	alternate.ss_size = sizeof other_stack;
	sigaltstack(&alternate, nullptr);
	struct sigaction action = {};
	action.sa_handler = on_signal;
	action.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR1, &action, nullptr);
	report("signal-stack", CALL(f_raises)(5) == 5 && signalled == 202);

	pthread_create(&thread, nullptr, f_thread, token);
	pthread_join(thread, &result);
	report("thread", result == token);
	pthread_create(&thread, nullptr, f_exits, token);
	pthread_join(thread, &result);
	report("thread-exit", result == token);
	pthread_create(&thread, nullptr, f_cancelled, nullptr);
	while (!started)
		;
	pthread_cancel(thread);
	pthread_join(thread, &result);
	report("thread-cancel", result == PTHREAD_CANCELED && cleaned);

	report("deep", CALL(f_recurse)(20000) == 20000L * 20001 / 2);
	report("after-deep", CALL(f_recurse)(10) == 55);
	usdt_live_function_off("*");
	usdt_live_function_on_with("f_*", fast_enter, fast_leave, nullptr, USDT_LIVE_FAST, 0);
	pthread_create(&thread, nullptr, doubles, token);
	pthread_join(thread, &result);
	report("fast", result == token);
	usdt_live_statistics s;
	usdt_live_get_statistics(&s);
	printf("skipped=%llu too-deep=%llu\n", (unsigned long long)s.skipped, (unsigned long long)s.too_deep);
	return 0;
}
