"""See probes and functions of running programs fire: what to trace, with which engine, and what came of it.

`model` is what all of this room speaks: targets, events, refusals, the final report. `selection` finds targets in
processes and files. `tracer` says what every tracer can be asked, and chooses one. A `session` has a `worker`, the
process that traces: `processes` is what happens there, `arming` which engine takes a site (`patch/`, a jump; `trap/`, a
breakpoint). `inside` reads what a program with the runtime of usdt_live.h says itself, `remote/` what a server says,
`others/` what gdb and bpftrace see. `outputs/` turn events into lines, tables and files, `testing` into hits for a
project's tests. Nothing here knows pytest or click; the plugin and the command are its users.
"""
