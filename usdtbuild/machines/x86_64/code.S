# The machine code that usdtbuild writes into x86-64 objects. tools/templates.py makes code.py of it;
# ../code.inc says how it is written.
#
# Of what replaces branches, "safe" has a one-byte NOP first: every kernel emulates it under a uprobe, while longer NOPs
# are single-stepped before Linux 6.16. "nop5" is what Linux 6.18 turns into a call, up to 1.3 times cheaper a hit.
# "classic" is what illumos and FreeBSD tools write. What follows a ret is never executed: a tracer in the program may
# write any distance there before it makes a jump (`e9`) of the NOP, and all states between are valid code.

        .include "code.inc"
        .macro  nop4
        {disp8} nopl (%rax)
        .endm
        .macro  nop5
        {disp8} nopl (%rax,%rax,1)
        .endm
        .macro  clear                   # xor %rax,%rax, as illumos' and FreeBSD's tools encode it
        .byte   0x48, 0x33, 0xc0
        .endm

code    probe_call_safe, 0, "nop; nop4"
code    probe_call_nop5, 0, "nop5"
code    probe_call_classic, 0, "nop; nop; nop; nop; nop"
code    probe_tail_safe, 0, "nop; ret; nopl (%rax)"
code    probe_tail_nop5, 0, "nop; ret; nopl (%rax)"     # five bytes hold no five-byte NOP and a ret
code    probe_tail_classic, 0, "ret; nop; nop; nop; nop"
code    probe_got_call_safe, 0, "nop; nop5"
code    probe_got_call_nop5, 0, "nop5; nop"
code    probe_got_call_classic, 0, "nop; nop; nop; nop; nop; nop"
code    probe_got_tail_safe, 0, "nop; ret; nop4"
code    probe_got_tail_nop5, 0, "nop5; ret"
code    probe_got_tail_classic, 0, "ret; nop; nop; nop; nop; nop"

code    enabled_call_safe, 2, "xor %eax, %eax; nopl (%rax)"
code    enabled_call_nop5, 2, "xor %eax, %eax; nopl (%rax)"
code    enabled_call_classic, 3, "clear; nop; nop"
code    enabled_tail_safe, 2, "xor %eax, %eax; nop; ret; nop"
code    enabled_tail_nop5, 2, "xor %eax, %eax; nop; ret; nop"
code    enabled_tail_classic, 3, "clear; ret; nop"
code    enabled_got_call_safe, 2, "xor %eax, %eax; nop4"
code    enabled_got_call_nop5, 2, "xor %eax, %eax; nop4"
code    enabled_got_call_classic, 3, "clear; nop; nop; nop"
code    enabled_got_tail_safe, 2, "xor %eax, %eax; nop; ret; xchg %ax, %ax"
code    enabled_got_tail_nop5, 2, "xor %eax, %eax; nop; ret; xchg %ax, %ax"
code    enabled_got_tail_classic, 3, "clear; ret; nop; nop"

# A conditional tail call becomes a short jump on the opposite condition, over these. Places count from that jump.
code    probe_conditional, 2, "nop; ret; xchg %ax, %ax"
code    enabled_conditional, 4, "xor %eax, %eax; nop; ret"

# Pieces of stand-ins.
code    landing_pad, 0, "endbr64"
code    no, 0, "xor %eax, %eax"
code    read_semaphore, 3, "movzwl 0(%rip), %eax"
code    ask, 0, "push %rax; mov %rsp, %rdi"
code    answer, 0, "pop %rax"
code    nop, 0, "nop"
code    nop5, 0, "nop5"
code    return, 0, "ret"
