"""Fire probes in a test and see the hits, without root where that is possible.

The pytest plugin is the public face of this room (docs/pytest.md). `user` is what tests see, and alone knows pytest;
`declared` compares a binary with its provider files; `watch` picks the probes and the tracer; `hits` is what comes out;
`with_session` is our own tracer, `with_gdb` and `with_bpftrace` drive one each.
"""
