# The machine code that usdtbuild writes into i386 objects, where it isn't x86-64's. tools/templates.py makes code.py
# of it; ../code.inc says how it is written.

        .include "code.inc"
        .macro  clear                   # xor %eax,%eax, as illumos' and FreeBSD's tools encode it, without a REX prefix
        .byte   0x33, 0xc0
        .endm

code    enabled_call_classic, 2, "clear; nop; nop; nop"
code    enabled_tail_classic, 2, "clear; ret; nop; nop"
code    enabled_got_call_classic, 2, "clear; nop; nop; nop; nop"
code    enabled_got_tail_classic, 2, "clear; ret; nop; nop; nop"

# Pieces of stand-ins. The semaphore's displacement counts from the pop, 5 bytes behind the beginning.
code    landing_pad, 0, "endbr32"
code    read_semaphore, 9, "call . + 5; pop %ecx; {disp32} movzwl (%ecx), %eax"
code    return, 0, "ret"
code    nop_return, 0, "nop; ret"
