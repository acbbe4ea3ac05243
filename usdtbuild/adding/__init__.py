"""Putting a first probe into a project that exists: what `usdtbuild add` shows as a diff, or writes.

Nothing is guessed. `scratch` copies the project, `builds` builds the copy as the project's build system does, and
`recorder` notes what the compilers are asked for meanwhile; `products` makes of that which programs and libraries there
are, and of which sources. `sources` says where in a source a probe may stand. `plan` tries these places until the copy
builds with the probe in it. `undo` takes a probe back. Only scratch folders are written to here.
"""
