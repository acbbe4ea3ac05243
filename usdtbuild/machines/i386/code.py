"""Machine code, made by tools/templates.py from code.S: change that, and run the tool."""

# (bytes, offset of a place in them)
# fmt: off
CODE = {
    "enabled_call_classic": (b"\x33\xc0\x90\x90\x90", 2),
    "enabled_tail_classic": (b"\x33\xc0\xc3\x90\x90", 2),
    "enabled_got_call_classic": (b"\x33\xc0\x90\x90\x90\x90", 2),
    "enabled_got_tail_classic": (b"\x33\xc0\xc3\x90\x90\x90", 2),
    "landing_pad": (b"\xf3\x0f\x1e\xfb", 0),
    "read_semaphore": (b"\xe8\x00\x00\x00\x00\x59\x0f\xb7\x81\x00\x00\x00\x00", 9),
    "return": (b"\xc3", 0),
    "nop_return": (b"\x90\xc3", 0),
}
