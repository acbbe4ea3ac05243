/* Static probes (USDT). Providers: counter.
   Written by usdtbuild header (usdtbuild 0.2.0, digest a798bdcd6fe6705a); change the provider file, not this one.

   A program that counts lines.

   COUNTER_LINE(long number)
       A line ended; so many have been read.

   COUNTER_DONE(long lines)
       The input ended.

   if (COUNTER_LINE_ENABLED()) ... tells whether a tracer watches; every probe has such a macro.
   Arguments are evaluated once, and converted to these types.
   To list and trace the probes of a program:
       bpftrace -l 'usdt:PROGRAM:counter:*'    perf buildid-cache --add PROGRAM && perf list sdt
       bpftrace -e 'usdt:PROGRAM:counter:line { printf("line number=%lld\n", arg0); }'
       usdtbuild list PROGRAM    usdtbuild trace -- PROGRAM    gdb PROGRAM: info probes stap
   -DUSDT_DISABLE compiles the probes away: the macros then only check their arguments. */
#if defined(__clang__) && defined(__cplusplus)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunknown-warning-option"
#pragma clang diagnostic ignored "-Wreserved-identifier"
#endif
#ifndef	USDTBUILD_HEADER_1_counter_a798bdc
#define	USDTBUILD_HEADER_1_counter_a798bdc
#ifndef __ASSEMBLER__
#ifndef USDTBUILD_INLINE
#if defined(__cplusplus) && defined(__GNUC__)
#define USDTBUILD_INLINE inline __attribute__((__always_inline__, __no_instrument_function__))
#elif defined(__GNUC__)
#define USDTBUILD_INLINE extern __inline__ \
	__attribute__((__gnu_inline__, __always_inline__, __no_instrument_function__))
#elif defined(__cplusplus) || defined(__STDC_VERSION__)
#define USDTBUILD_INLINE static inline
#elif defined(_MSC_VER)
#define USDTBUILD_INLINE static __inline
#else
#define USDTBUILD_INLINE static
#endif
#endif

/* What all headers of usdtbuild share. */
#ifndef USDTBUILD_COMPLETE
#define USDTBUILD_COMPLETE 1
#if !defined(USDT_DISABLE) && !defined(USDT_DISABLED) && defined(__GNUC__) && defined(__ELF__) && defined(__linux__)
#define USDTBUILD_LINUX
#if defined(__x86_64__)
#define USDTBUILD_REGISTER(i) "{%q[usdt_" #i "]|\"; usdtbuild_place %q[usdt_" #i "]; .ascii \"}"
#define USDTBUILD_CELL(offset) #offset "(%%rax)"
#define USDTBUILD_BASE "a"
#if defined(USDT_LIVE)
#define USDTBUILD_REGISTERS 5
#define USDTBUILD_ANYWHERE(letter) #letter "n"
#define USDTBUILD_NOP "nop; .byte 15,31,64,0"
#else
#define USDTBUILD_REGISTERS 10
#if defined(USDT_NOP10)
#define USDTBUILD_NOP "nop; .byte 102,46,15,31,132,0,0,0,0,0"
#endif
#endif
#elif defined(__i386__)
#define USDTBUILD_CELL(offset) #offset "(%%eax)"
#define USDTBUILD_BASE "a"
#define USDTBUILD_REGISTERS 0
#elif defined(__aarch64__) && defined(__clang__)
#define USDTBUILD_REGISTER(i) "%x[usdt_" #i "]"
#define USDTBUILD_CELL(offset) "[%[usdt_b], " #offset "]"
#define USDTBUILD_ANYWHERE(letter) "r"
#define USDTBUILD_REGISTERS 12
#elif defined(__aarch64__)
#define USDTBUILD_CELL(offset) "[%[usdt_b], " #offset "]"
#define USDTBUILD_REGISTERS 12
#elif defined(__arm__)
#define USDTBUILD_CELL(offset) "[%[usdt_b], #" #offset "]"
#define USDTBUILD_REGISTERS 0
#elif defined(__riscv) && defined(__LP64__)
#define USDTBUILD_REGISTERS 12
#elif defined(__s390x__)
#define USDTBUILD_BASE "a"
#define USDTBUILD_REGISTERS 8
#elif defined(__powerpc64__)
#define USDTBUILD_REGISTER(i) "%I[usdt_" #i "]%[usdt_" #i "]"
#define USDTBUILD_BASE "b"
#define USDTBUILD_REGISTERS 12
#endif
#ifndef USDTBUILD_REGISTER
#define USDTBUILD_REGISTER(i) "%[usdt_" #i "]"
#endif
#ifndef USDTBUILD_CELL
#define USDTBUILD_CELL(offset) #offset "(%[usdt_b])"
#endif
#ifndef USDTBUILD_BASE
#define USDTBUILD_BASE "r"
#endif
#if defined(USDT_OPERANDS_IN_MEMORY) && !defined(USDTBUILD_ANYWHERE) && !defined(__clang__)
#define USDTBUILD_ANYWHERE(letter) "nor"
#elif !defined(USDTBUILD_ANYWHERE)
#define USDTBUILD_ANYWHERE(letter) "nr"
#endif
#ifndef USDTBUILD_NOP
#define USDTBUILD_NOP "nop"
#endif
#define USDTBUILD_SEMAPHORE __attribute__((__visibility__("hidden"), __section__(".probes")))
/* Unlike other expressions, a call may stand anywhere without effect and without a warning. */
USDTBUILD_INLINE int usdtbuild_is_on(int usdt_on) { return __builtin_expect(usdt_on, 0) != 0; }
#endif
#if defined(__LP64__)
#define USDTBUILD_WORD ".8byte"
#define USDTBUILD_P "8@"
#else
#define USDTBUILD_WORD ".4byte"
#define USDTBUILD_P "4@"
#endif
/* Assemblers that link a section to another (GNU's from 2.35 on, with retained sections from 2.36 on). */
#if defined(USDT_LINKED_SECTIONS) ? USDT_LINKED_SECTIONS : defined(__clang__) ? __clang_major__ >= 13 : __GNUC__ >= 11
#define USDTBUILD_NOTE_SECTION ".note.stapsdt,\"?o\",\"note\",.Lusdt%="
#define USDTBUILD_BASE_FLAGS "axGR"
#else
#define USDTBUILD_NOTE_SECTION ".note.stapsdt,\"?\",\"note\""
#define USDTBUILD_BASE_FLAGS "axG"
#endif
#if defined(__x86_64__) && defined(__clang__) && __clang_major__ < 14
#define USDTBUILD_INTEL "{|.ifndef .Lusdtbuild_place; .set .Lusdtbuild_place,1; .macro usdtbuild_place x:vararg; " \
	".ascii \"\\x\"; .endm; .endif;}"
#elif defined(__x86_64__)
#define USDTBUILD_INTEL "{|.ifndef .Lusdtbuild_place; .set .Lusdtbuild_place,1; .macro usdtbuild_place x; " \
	".set .Lusdtbuild_name,0; .irp r,rax,rbx,rcx,rdx,rsi,rdi,rbp,r8,r9,r10,r11,r12,r13,r14,r15; .ifc \\r,\\x; " \
	".set .Lusdtbuild_name,1; .endif; .endr; .if .Lusdtbuild_name; .ascii \"%%\"; .else; .ascii \"\\044\"; .endif; " \
	".ascii \"\\x\"; .endm; .endif;}"
#else
#define USDTBUILD_INTEL
#endif
/* Compilers copy what they take for small: GCC counts lines, Clang statements. Debuggers show the caller's line. */
#if defined(__clang__)
#define USDTBUILD_ONCE __asm__ __volatile__("");
#define USDTBUILD_LINES
#define USDTBUILD_SITE USDTBUILD_INLINE __attribute__((__nothrow__, __nodebug__)) void
#else
#define USDTBUILD_ONCE
#define USDTBUILD_LINES "\n\n\n\n\n\n\n"
#define USDTBUILD_SITE USDTBUILD_INLINE __attribute__((__nothrow__, __artificial__)) void
#endif
#define USDTBUILD_NOTE(provider, probe, semaphore, operands) USDTBUILD_INTEL \
	".Lusdt%=:\t" USDTBUILD_NOP "\n" \
	"\t.pushsection " USDTBUILD_NOTE_SECTION "\n\t.balign 4\n\t.4byte 992f-991f,994f-993f,3\n" \
	"991:\t.asciz \"stapsdt\"\n992:\t.balign 4\n993:\t" USDTBUILD_WORD " .Lusdt%=,_.stapsdt.base," semaphore "\n" \
	"\t.weak " semaphore "\n\t.hidden " semaphore "\n\t.asciz \"" provider "\"\n" \
	"\t.asciz \"" probe "\"\n\t.ascii \"" operands "\\0\"\n" \
	"994:\t.balign 4\n\t.popsection\n\t.reloc .Lusdt%=,BFD_RELOC_NONE," semaphore "\n\t.ifndef _.stapsdt.base\n" \
	"\t.pushsection .stapsdt.base,\"" USDTBUILD_BASE_FLAGS "\",%%progbits,.stapsdt.base,comdat\n" \
	"\t.weak _.stapsdt.base\n\t.hidden _.stapsdt.base\n" \
	"_.stapsdt.base:\t.zero 1\n\t.size _.stapsdt.base,1\n\t.popsection\n\t.endif\n" USDTBUILD_LINES
/* One page for all semaphores of a program or library; what else lies there would be written by tracers too. */
#define USDTBUILD_OBJECT(name, align, more) \
	"\t.ifndef " name "\n\t.pushsection .probes,\"awG\",%%progbits," name ",comdat\n" \
	"\t.balign " align "\n" more "\t.weak " name "\n\t.hidden " name "\n" \
	"\t.type " name ",%%object\n\t.size " name ",2\n" name ":\t.zero 2\n\t.popsection\n\t.endif\n"
#define USDTBUILD_TEST(semaphore) (__extension__ ({ \
	__asm__ __volatile__(USDTBUILD_OBJECT("usdtbuild.probes.page", "4096", "") \
	USDTBUILD_OBJECT(#semaphore, "2", "\t.reloc .,BFD_RELOC_NONE,usdtbuild.probes.page\n") : :); \
	usdtbuild_is_on(semaphore); }))
/* A probe may show freed memory and variables without a value: compilers have nothing to warn of. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define USDTBUILD_SILENT _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wuse-after-free\"") \
	_Pragma("GCC diagnostic ignored \"-Wmaybe-uninitialized\"")
#define USDTBUILD_END_SILENT _Pragma("GCC diagnostic pop")
#define USDTBUILD_SHOWN(number) __attribute__((__access__(__none__, number)))
#define USDTBUILD_SILENT_CALL(call) (__extension__ ({ USDTBUILD_SILENT call; USDTBUILD_END_SILENT (void)0; }))
#else
#define USDTBUILD_SILENT
#define USDTBUILD_END_SILENT
#define USDTBUILD_SHOWN(number)
#endif
/* What a statement says of memory: compilers may leave out or put off stores that it doesn't read. */
#define USDTBUILD_MEMORY : "memory"
#define USDTBUILD_NONE
#define USDTBUILD_IN_CELL(T) union { T usdt_value; double usdt_cell; }
#if !defined(__cplusplus)
#define USDTBUILD_VALUE(T, x) ((T){ (x) })
#else
#define USDTBUILD_VALUE(T, x) (x)
#endif
#elif USDTBUILD_COMPLETE != 1
#error "two headers were written by different versions of usdtbuild; write both with the same one"
#endif
#if defined(USDTBUILD_LINUX) && !defined(USDTBUILD_REGISTERS)
#error "no probes on this machine: compile with -DUSDT_DISABLE"
#elif defined(USDTBUILD_LINUX) && defined(USDT_ENABLED_BY_CALL)
#error "this header's probes have SDT notes; for DOF or .note.usdt make it with usdtbuild header --formats"
#endif
#if defined(USDTBUILD_AT_1)
#elif defined(USDTBUILD_REGISTERS) && USDTBUILD_REGISTERS >= 1
#define USDTBUILD_OPERAND_1(i, offset) USDTBUILD_REGISTER(i)
#define USDTBUILD_AT_1(text, memory, numbers, T0, x0) \
	__asm__ __volatile__(text : : numbers [usdt_0] USDTBUILD_ANYWHERE(D)(USDTBUILD_VALUE(T0, x0)) memory); USDTBUILD_ONCE
#else
#define USDTBUILD_OPERAND_1(i, offset) USDTBUILD_CELL(offset)
#if defined(__cplusplus)
#define USDTBUILD_AT_1(text, memory, numbers, T0, x0) \
	struct { USDTBUILD_IN_CELL(T0) usdt_v0; } const usdt_cells = { { x0 } }; \
	__asm__ __volatile__(text : : numbers [usdt_b] USDTBUILD_BASE(&usdt_cells) : "memory"); USDTBUILD_ONCE
#else
#define USDTBUILD_AT_1(text, memory, numbers, T0, x0) \
	__asm__ __volatile__(text : : numbers [usdt_b] USDTBUILD_BASE(&(struct { USDTBUILD_IN_CELL(T0) usdt_v0; }){ { x0 } }) : "memory"); USDTBUILD_ONCE
#endif
#endif
#ifdef __cplusplus
extern "C" {
#endif
/* provider counter */
#ifndef USDTBUILD_PROVIDER_counter
#define USDTBUILD_PROVIDER_counter 0xa798bdc
#if !defined(USDTBUILD_REGISTERS)
#define	COUNTER_LINE(arg0) \
	(0 ? usdtbuild_off_counter___line(arg0) : (void)0)
#define	COUNTER_LINE_ENABLED() \
	(0)
USDTBUILD_INLINE void usdtbuild_off_counter___line(long usdt_arg0) { (void)usdt_arg0; }
#define	COUNTER_DONE(arg0) \
	(0 ? usdtbuild_off_counter___done(arg0) : (void)0)
#define	COUNTER_DONE_ENABLED() \
	(0)
USDTBUILD_INLINE void usdtbuild_off_counter___done(long usdt_arg0) { (void)usdt_arg0; }
#else
#define	COUNTER_LINE(arg0) \
	usdtbuild_on_counter___line(arg0)
#define	COUNTER_LINE_ENABLED() \
	USDTBUILD_TEST(counter_line_semaphore)
#define	COUNTER_DONE(arg0) \
	usdtbuild_on_counter___done(arg0)
#define	COUNTER_DONE_ENABLED() \
	USDTBUILD_TEST(counter_done_semaphore)
extern volatile unsigned short counter_line_semaphore USDTBUILD_SEMAPHORE;
#if defined(__cplusplus)
USDTBUILD_SITE usdtbuild_on_counter___line(long usdt_arg0)
{
	USDTBUILD_SILENT USDTBUILD_AT_1(USDTBUILD_NOTE("counter", "line", "counter_line_semaphore", "-" USDTBUILD_P USDTBUILD_OPERAND_1(0, 0)), USDTBUILD_NONE, USDTBUILD_NONE, long, usdt_arg0)
	USDTBUILD_END_SILENT
}
#else
#define usdtbuild_on_counter___line(usdt_arg0) (__extension__ ({ USDTBUILD_SILENT \
	USDTBUILD_AT_1(USDTBUILD_NOTE("counter", "line", "counter_line_semaphore", "-" USDTBUILD_P USDTBUILD_OPERAND_1(0, 0)), USDTBUILD_NONE, USDTBUILD_NONE, long, usdt_arg0) USDTBUILD_END_SILENT (void)0; }))
#endif
extern volatile unsigned short counter_done_semaphore USDTBUILD_SEMAPHORE;
#if defined(__cplusplus)
USDTBUILD_SITE usdtbuild_on_counter___done(long usdt_arg0)
{
	USDTBUILD_SILENT USDTBUILD_AT_1(USDTBUILD_NOTE("counter", "done", "counter_done_semaphore", "-" USDTBUILD_P USDTBUILD_OPERAND_1(0, 0)), USDTBUILD_NONE, USDTBUILD_NONE, long, usdt_arg0)
	USDTBUILD_END_SILENT
}
#else
#define usdtbuild_on_counter___done(usdt_arg0) (__extension__ ({ USDTBUILD_SILENT \
	USDTBUILD_AT_1(USDTBUILD_NOTE("counter", "done", "counter_done_semaphore", "-" USDTBUILD_P USDTBUILD_OPERAND_1(0, 0)), USDTBUILD_NONE, USDTBUILD_NONE, long, usdt_arg0) USDTBUILD_END_SILENT (void)0; }))
#endif
__extension__ __asm__(".pushsection .usdtbuild.provider,\"G\",%progbits,usdtbuild.provider.counter.a798bdcd6fe6705a,comdat\n"
	"\t.ascii \"provider\\t1\\tcounter\\ta798bdcd6fe6705a\\t04040500,04040500,04040500,04040500,04040500\\n\"\n"
	"\t.ascii \"probe\\tline\\ts8/4|long|number\\t-\\n\"\n"
	"\t.ascii \"probe\\tdone\\ts8/4|long|lines\\t-\\n\"\n"
	"\t.popsection");
#endif
#elif USDTBUILD_PROVIDER_counter != 0xa798bdc
#error "two headers describe provider counter differently; make both from the same provider file"
#endif
#ifdef __cplusplus
}
#endif
#endif /* __ASSEMBLER__ */
#endif /* USDTBUILD_HEADER_1_counter_a798bdc */
#if defined(__clang__) && defined(__cplusplus)
#pragma clang diagnostic pop
#endif
