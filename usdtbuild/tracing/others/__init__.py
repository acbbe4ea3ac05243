"""Tracers of others as engines of a trace: gdb, which holds a process, and bpftrace, to which the kernel reports hits.

What is traced is found by `selection` as for our own engines, and what these tools print becomes the same events.
`gdb` is a tracer with the script that runs inside it, `gdb_script`; `bpftrace` watches files for the worker, which
follows the processes, and `watching` is what it is told to do.
"""
