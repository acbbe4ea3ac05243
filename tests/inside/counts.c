/*
 * Every hit is counted: by threads that start and end, in their signal handlers, in what they run when they end, in children. Usage: counts CASE ROUNDS.
 *
 *     threads    waves of threads, with signals, and destructors that hit, too; many living at a time
 *     children   fork, fork by the bare system call, and vfork, of a process that has threads
 *     many       one thread after the other: what they leave is used again (prints by how many MB the process has grown)
 *     seccomp    with a filter that forbids nothing
 *     later      with a filter that comes after the switch, and ends a process that asks for memory or its number
 *
 * Prints `hits N counted N entries N locked N failed N`, and the runtime's words about locked additions.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stress.h"
#include "usdt_live.h"

enum { THREADS = 44 };

static unsigned long long hits, failed, handled;
static volatile int go, there, signals;
static long rounds;
static pthread_key_t early, late;

__attribute__((noinline)) static void entered(int i)
{
	__asm__ volatile("" : : "r"(i));
}

__attribute__((noinline)) static void both(int i)
{
	STRESS_HIT(i, i);
	entered(i);
	__atomic_fetch_add(&hits, 1, __ATOMIC_RELAXED);
}

static void on_signal(int number)
{
	both(number);
	signals++;
}

/* Twice: the second time around other destructors have run. */
static void ends(void *data)
{
	both(1);
	if (data == (void *)1)
		pthread_setspecific(late, (void *)2);
}

static void *work(void *data)
{
	long i, n = (long)data;

	pthread_setspecific(early, (void *)2);
	pthread_setspecific(late, (void *)1);
	both(0);
	__atomic_fetch_add(&there, 1, __ATOMIC_RELAXED);
	for (i = 1; !go || i < n; i++) {
		both(0);
		if (i % 64 == 0)
			sched_yield(); /* so that each runs beside each other */
	}
	if (n % 3 == 0)
		pthread_exit(NULL);
	return NULL;
}

static USDT_LIVE_FAST_HANDLER void fast(const usdt_live_hit *hit, void *data)
{
	(void)hit;
	__atomic_fetch_add((unsigned long long *)data, 1, __ATOMIC_RELAXED);
}

/* Threads that all live, and hit, until all have been there and have had their signals. */
static void wave(int how_many)
{
	pthread_t threads[THREADS];
	int made = 0;
	long i;

	go = there = 0;
	for (i = 0; i < how_many; i++)
		if (pthread_create(&threads[made], NULL, work, (void *)(rounds + i)) == 0)
			made++;
	while (there < made)
		sched_yield();
	for (i = 0; made && i < rounds; i++) {
		both(0);
		if (i % 64 == 0) {
			pthread_kill(threads[i / 64 % made], SIGUSR1);
			sched_yield();
		}
	}
	go = 1;
	for (i = 0; i < made; i++)
		pthread_join(threads[i], NULL);
}

/* Signals that come anywhere in a loop of hits. */
static void interrupted(void)
{
	const struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};

	setitimer(ITIMER_REAL, &often, NULL);
	for (signals = 0; signals < 2000;)
		both(0);
	setitimer(ITIMER_REAL, &never, NULL);
}

static unsigned long long counted(void)
{
	return usdt_live_count(USDT_LIVE_PROBES, "stress:hit");
}

static void check(void)
{
	unsigned long long probes = counted(), entries = usdt_live_count(USDT_LIVE_FUNCTIONS, "entered");

	if (probes != hits || entries != hits) {
		fprintf(stderr, "%d: %llu hits, %llu counted, %llu entries\n", (int)getpid(), hits, probes, entries);
		failed++;
	}
}

static void *child(void *data)
{
	long how = (long)data;
	int status = 1;
	pid_t pid = how == 2 ? vfork() : how ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();

	if (pid == 0 && how == 2) {
		both(0);
		_exit(0);
	}
	if (pid == 0) {
		both(0);
		rounds *= 20; /* long enough for threads to run beside each other */
		wave(2);
		check();
		_exit(failed != 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		__atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED);
	both(0);
	return NULL;
}

static void children(void)
{
	pthread_t thread;
	long how;

	both(0); /* or this thread had nothing to keep */
	child((void *)0);
	wave(THREADS);
	for (how = 0; how < 3; how++) { /* in a thread that has hit before, and in one that hasn't */
		child((void *)how);
		if (pthread_create(&thread, NULL, child, (void *)how))
			exit(1);
		pthread_join(thread, NULL);
		wave(2);
	}
}

static long megabytes(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long pages = 0;

	if (!file || fscanf(file, "%ld", &pages) != 1)
		failed++;
	if (file)
		fclose(file);
	return pages * sysconf(_SC_PAGESIZE) >> 20;
}

static void filter(void)
{
	struct sock_filter all = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
	struct sock_fprog program = {1, &all};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0))
		exit(77);
}

/* End the process at the system calls that a thread's first hit makes, but gettid, which the runtime's lock is told who has it with. */
static void strict_filter(void)
{
	struct sock_filter calls[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
	};
	struct sock_fprog program = {sizeof calls / sizeof *calls, calls};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0))
		exit(77);
}

int main(int argc, char **argv)
{
	struct sigaction action;
	usdt_live_statistics s;
	char text[4000], *line;
	long before, many, i;

	rounds = argc > 2 ? atol(argv[2]) : 1;
	if (argc > 1 && !strcmp(argv[1], "seccomp"))
		filter();
	memset(&action, 0, sizeof action);
	action.sa_handler = on_signal;
	action.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGALRM, &action, NULL);
	pthread_key_create(&early, ends);
	if (usdt_live_probe_on("stress:hit", NULL, NULL) < 1 || usdt_live_function_on("entered", NULL, NULL, NULL) < 1)
		return 1;
	pthread_key_create(&late, ends);
	if (argc > 1 && !strcmp(argv[1], "children")) {
		children();
	} else if (argc > 1 && !strcmp(argv[1], "many")) {
		for (i = 0; i < 2; i++)
			wave(THREADS);
		before = megabytes();
		many = rounds;
		for (rounds = i = 0; i < many; i++)
			wave(1);
		printf("grown %ld ", megabytes() - before);
	} else if (argc > 1 && !strcmp(argv[1], "later")) {
		strict_filter();
		for (i = 0; i < rounds; i++)
			both(0);
		check();
		printf("hits %llu counted %llu\n", hits, counted());
		return failed != 0;
	} else {
		wave(THREADS);
		interrupted();
		check();
		usdt_live_probe_on_with("stress:hit", fast, &handled, USDT_LIVE_FAST);
		usdt_live_function_on_with("entered", fast, NULL, &handled, USDT_LIVE_FAST, 0);
		wave(THREADS);
		interrupted();
	}
	check();
	usdt_live_refresh();
	usdt_live_get_statistics(&s);
	printf("hits %llu counted %llu entries %llu locked %u failed %llu\n", hits, counted(),
		usdt_live_count(USDT_LIVE_FUNCTIONS, "entered"), s.locked, failed);
	usdt_live_report(text, sizeof text);
	line = strstr(text, " counted with");
	printf("%s", line ? line + 1 : "");
	return failed != 0;
}
