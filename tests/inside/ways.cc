// Ways to enter and leave functions that a call tree has to follow; the first argument says which.
#include <coroutine>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <pthread.h>
#include <stdexcept>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

volatile int closed;

int leaf(int x) { return x + 1; }

// -- exceptions, with destructors on the way

struct Guard {
	int number;
	explicit Guard(int n) : number(n) {}
	~Guard() { closed = closed + leaf(number); }
};

int deep(int n)
{
	Guard guard(n);
	if (!n)
		throw std::runtime_error("deep");
	return deep(n - 1) + 1;
}

int passes_on(int n)
{
	try {
		return deep(n);
	} catch (const std::logic_error &) {
		return 0;
	} catch (const std::runtime_error &) {
		leaf(n);
		throw;
	}
}

int catches(int n)
{
	try {
		return passes_on(n);
	} catch (const std::exception &) {
		return leaf(n);
	}
}

void exceptions()
{
	for (int i = 0; i < 4; i++)
		catches(i);
}

// -- longjmp out of several functions

static jmp_buf place;

void jumps(int n)
{
	if (n)
		jumps(n - 1);
	leaf(n);
	longjmp(place, 1);
}

void long_jumps()
{
	for (volatile int i = 0; i < 3; i = i + 1) {
		if (!setjmp(place))
			jumps(i);
		leaf(i);
	}
}

// -- coroutines of C++20, and of ucontext

struct Numbers {
	struct promise_type {
		int value;
		Numbers get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
		std::suspend_always initial_suspend() { return {}; }
		std::suspend_always final_suspend() noexcept { return {}; }
		std::suspend_always yield_value(int x)
		{
			value = leaf(x);
			return {};
		}
		void return_void() {}
		void unhandled_exception() { std::terminate(); }
	};
	std::coroutine_handle<promise_type> handle;
};

Numbers numbers(int n)
{
	for (int i = 0; i < n; i++)
		co_yield leaf(i);
}

void coroutines()
{
	Numbers one = numbers(5), two = numbers(3);
	for (int i = 0; i < 4; i++) {
		one.handle.resume();
		two.handle.resume();
	}
	one.handle.destroy();
	two.handle.destroy();
}

static ucontext_t whole, left_side, right_side;

void left_part()
{
	for (int i = 0; i < 3; i++) {
		leaf(i);
		swapcontext(&left_side, &whole);
	}
}

void right_part()
{
	leaf(7);
	swapcontext(&right_side, &whole);
	leaf(8);
}

void make(ucontext_t *context, void (*function)())
{
	getcontext(context);
	context->uc_stack.ss_sp = malloc(1 << 16);
	context->uc_stack.ss_size = 1 << 16;
	context->uc_link = &whole;
	makecontext(context, function, 0);
}

void contexts()
{
	make(&left_side, left_part);
	swapcontext(&whole, &left_side);
	leaf(1);
	make(&right_side, right_part);
	swapcontext(&whole, &right_side);
	leaf(2);
}

// -- threads, signals, forks

void *works(void *)
{
	for (int i = 0; i < 50; i++)
		leaf(i);
	return nullptr;
}

void threads()
{
	pthread_t all[200];
	for (pthread_t &one : all)
		pthread_create(&one, nullptr, works, nullptr);
	for (pthread_t one : all)
		pthread_join(one, nullptr);
}

void handler(int number) { closed = leaf(number); }

void signals()
{
	signal(SIGUSR1, handler);
	for (int i = 0; i < 3; i++)
		raise(SIGUSR1);
}

void forks()
{
	if (!fork()) {
		works(nullptr);
		_exit(0);
	}
	wait(nullptr);
	leaf(1);
}

int recursion(int n)
{
	volatile int below = n ? recursion(n - 1) : 0;
	return below + 1;
}

const struct {
	const char *name;
	void (*function)();
} all_ways[] = {
	{"exceptions", exceptions}, {"longjmp", long_jumps}, {"coroutines", coroutines}, {"contexts", contexts},
	{"threads", threads}, {"signals", signals}, {"forks", forks},
};

int main(int, char **argv)
{
	for (auto &way : all_ways)
		if (!strcmp(argv[1], way.name))
			way.function();
	if (int depth = atoi(argv[1]))
		recursion(depth);
}
