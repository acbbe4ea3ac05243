# The machine code that usdtbuild writes into s390x objects. tools/templates.py makes code.py of it;
# ../code.inc says how it is written.

        .include "code.inc"

code    probe_call, 0, "jgnop ."
code    probe_tail, 0, "nop 0; br %r14"
code    enabled_call, 4, "lghi %r2, 0; nopr"
code    enabled_tail, 4, "lghi %r2, 0; br %r14"
code    no, 0, "lghi %r2, 0"
code    read_semaphore, 2, "larl %r1, .; llgh %r2, 0(%r1)"
code    nop, 0, "nopr"
code    return, 0, "br %r14"
