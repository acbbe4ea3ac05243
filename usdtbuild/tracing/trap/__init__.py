"""The trap engine (machines with a `host`): a breakpoint at each site, and ptrace to look at whoever runs into it.

Any site works, whatever its bytes and however the process was built or confined. A hit costs tens of microseconds,
because the thread stops and this process looks at it. `breakpoints` arms sites and goes on behind a hit; `operands`
reads arguments from registers and memory.
"""
