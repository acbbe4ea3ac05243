"""Putting first probes into a project that exists: what `usdtbuild add` shows as a diff, or writes.

`plan` looks at what is there and returns changed texts; one module for each kind of build file knows how such a file is
read and where lines go; `sources` finds a function to put a probe into. Nothing here writes, and nothing is built.
"""
