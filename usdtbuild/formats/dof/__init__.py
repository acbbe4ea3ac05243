"""DOF, the DTrace Object Format, as far as statically defined probes go: FreeBSD, illumos, Oracle DTrace to 2.0.2.

`types` has the records, `layout` the numbers, `encode` and `decode` turn records into bytes and back, `check` applies
everything that the three consumers check. None of them knows where in an object the bytes go.
"""
