"""The remote engine: programs that a gdb server holds (gdbserver, qemu's `-g`), on any machine and of any machine.

`packets` is the wire, `registers` what a stopped thread looks like, `arguments` reads a hit's values, `server` is what
one can be asked, `files` where the program's files are and where they lie in its memory, `modules` which of them are
armed, `sites` the breakpoints in them, `plt_slots` the slots that are made to lead to breakpoints, `process` one
process with all of that, `program` what the stops of all processes mean, `interrupts` how they are stopped, `emulator`
starts programs under qemu, and `session` is a trace from beginning to end. `returns` tells who returns from a call;
`counting` counts under an emulator without its server, by a plugin.

What touches the program is the server, so what a killed trace leaves behind is the server's business: gdbserver ends
its program or holds it until somebody connects again, and a program under qemu ends at the next breakpoint.
"""
