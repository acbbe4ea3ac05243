/* What the corpus needs of its platform: output, an entry, and the end. No C library: Linux's system calls, so that
 * machines are tested that the distribution has no library for, and a program is linked in no time.
 */
void put(const char *what, long value);
void finish(void);
void text(const char *what);
void put_number(long long value);
void start_c(void);

#if defined(__x86_64__) && !defined(__ILP32__)
#define WRITE 1
#define EXIT 60
#elif defined(__x86_64__)
#define WRITE 0x40000001
#define EXIT 0x4000003c
#elif defined(__loongarch__) || defined(__riscv) || defined(__aarch64__)
#define WRITE 64
#define EXIT 93
#elif defined(__mips__) && _MIPS_SIM == _ABIO32
#define WRITE 4004
#define EXIT 4001
#elif defined(__mips__) && _MIPS_SIM == _ABI64
#define WRITE 5001
#define EXIT 5058
#elif defined(__mips__)
#define WRITE 6001
#define EXIT 6058
#else
#define WRITE 4
#define EXIT 1
#endif

static long call3(long number, long a, long b, long c)
{
#if defined(__x86_64__)
	long result;
	__asm__ volatile ("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return result;
#elif defined(__i386__)
	long result;
	__asm__ volatile ("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
	return result;
#elif defined(__loongarch__)
	register long r7 __asm__("$a7") = number, r4 __asm__("$a0") = a, r5 __asm__("$a1") = b, r6 __asm__("$a2") = c;
	__asm__ volatile ("syscall 0" : "+r"(r4) : "r"(r7), "r"(r5), "r"(r6) : "$t0", "$t1", "$t2", "$t3", "$t4", "$t5", "$t6", "$t7", "$t8", "memory");
	return r4;
#elif defined(__riscv)
	register long r7 __asm__("a7") = number, r0 __asm__("a0") = a, r1 __asm__("a1") = b, r2 __asm__("a2") = c;
	__asm__ volatile ("ecall" : "+r"(r0) : "r"(r7), "r"(r1), "r"(r2) : "memory");
	return r0;
#elif defined(__aarch64__)
	register long r8 __asm__("x8") = number, r0 __asm__("x0") = a, r1 __asm__("x1") = b, r2 __asm__("x2") = c;
	__asm__ volatile ("svc #0" : "+r"(r0) : "r"(r8), "r"(r1), "r"(r2) : "memory");
	return r0;
#elif defined(__arm__)
	register long r0 __asm__("r0") = a, r1 __asm__("r1") = b, r2 __asm__("r2") = c;
	__asm__ volatile ("push {r7}\n\tpush {%1}\n\tpop {r7}\n\tsvc #0\n\tpop {r7}" : "+r"(r0) : "r"(number), "r"(r1), "r"(r2) : "memory");
	return r0;
#elif defined(__powerpc__)
	register long r0 __asm__("r0") = number, r3 __asm__("r3") = a, r4 __asm__("r4") = b, r5 __asm__("r5") = c;
	__asm__ volatile ("sc" : "+r"(r0), "+r"(r3), "+r"(r4), "+r"(r5) : : "r6", "r7", "r8", "r9", "r10", "r11", "r12", "cr0", "ctr", "memory");
	return r3;
#elif defined(__s390x__)
	register long r1 __asm__("r1") = number, r2 __asm__("r2") = a, r3 __asm__("r3") = b, r4 __asm__("r4") = c;
	__asm__ volatile ("svc 0" : "+d"(r2) : "d"(r1), "d"(r3), "d"(r4) : "memory");
	return r2;
#elif defined(__sparc__)
	register long g1 __asm__("g1") = number, o0 __asm__("o0") = a, o1 __asm__("o1") = b, o2 __asm__("o2") = c;
#ifdef __arch64__
	__asm__ volatile ("ta 0x6d" : "+r"(o0) : "r"(g1), "r"(o1), "r"(o2) : "memory", "cc");
#else
	__asm__ volatile ("ta 0x10" : "+r"(o0) : "r"(g1), "r"(o1), "r"(o2) : "memory", "cc");
#endif
	return o0;
#elif defined(__mips__)
	register long r2 __asm__("$2") = number, r4 __asm__("$4") = a, r5 __asm__("$5") = b, r6 __asm__("$6") = c;
	__asm__ volatile ("syscall" : "+r"(r2), "+r"(r4), "+r"(r5), "+r"(r6) : : "$1", "$3", "$7", "$8", "$9", "$10", "$11", "$12", "$13", "$14", "$15", "$24", "$25", "hi", "lo", "memory");
	return r2;
#else
#error "no system calls for this machine"
#endif
}

static void put_bytes(const char *from, unsigned long size)
{
	call3(WRITE, 1, (long)from, (long)size);
}

void finish(void)
{
	for (;;)
		call3(EXIT, 0, 0, 0);
}

/* Compilers write calls to these whatever they are told. */
void *memset(void *to, int value, __SIZE_TYPE__ size)
{
	volatile char *at = to;
	while (size--)
		*at++ = (char)value;
	return to;
}

void *memcpy(void *to, const void *from, __SIZE_TYPE__ size)
{
	volatile char *at = to;
	const char *of = from;
	while (size--)
		*at++ = *of++;
	return to;
}

typedef void hook(void);
extern hook *__init_array_start[] __attribute__((weak, visibility("hidden")));
extern hook *__init_array_end[] __attribute__((weak, visibility("hidden")));
int main(void);

void start_c(void)
{
	hook **at;
	for (at = __init_array_start; at < __init_array_end; at++)
		(*at)();
	main();
}

#if defined(__riscv)
__asm__ (".globl _start\n_start:\n.option push\n.option norelax\nla gp, __global_pointer$\n.option pop\ncall start_c");
#elif defined(__mips__)
__asm__ (".text\n.globl _start\n.type _start, @function\n.set noreorder\n.option pic0\n_start:\n"
#if __mips == 64 && _MIPS_SIM == _ABI64
	"lui $25, %highest(start_c)\ndaddiu $25, $25, %higher(start_c)\ndsll $25, $25, 16\n"
	"daddiu $25, $25, %hi(start_c)\ndsll $25, $25, 16\ndaddiu $25, $25, %lo(start_c)\n"
#else
	"lui $25, %hi(start_c)\naddiu $25, $25, %lo(start_c)\n"
#endif
	"jalr $25\nnop\n.set reorder\n"
#ifdef __PIC__
	".option pic2\n"
#endif
	);
#else
void _start(void);
#if defined(__x86_64__) || defined(__i386__)
__attribute__((force_align_arg_pointer))
#endif
void _start(void)
{
	start_c();
}
#endif

void text(const char *what)
{
	unsigned long size = 0;
	while (what[size])
		size++;
	put_bytes(what, size);
}

void put_number(long long value)
{
	/* In hexadecimal, since division of 64 bits is a library function on 32-bit machines. */
	char digits[18];
	int i;
	digits[17] = 0;
	for (i = 16; i > 0; i--) {
		digits[i] = "0123456789abcdef"[value & 15];
		value = (long long)((unsigned long long)value >> 4);
	}
	digits[0] = ' ';
	text(digits);
}

void put(const char *what, long value)
{
	text(what);
	put_number(value);
	text("\n");
}
