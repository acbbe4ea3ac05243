"""See probes and functions of running programs fire: what to trace, with which engine, and what came of it.

`model` is what all of this room speaks: targets, events, refusals, the final report. `engine` is the protocol that
every engine keeps (`engines/`, one module or folder each). `selection` finds targets in processes and files; `session`
runs engines and hands events to outputs; `outputs/` turns them into lines, tables and files. Nothing here knows pytest
or click: the command `usdtbuild trace` and the pytest plugin are two users of it.
"""
