"""Machine code, made by tools/templates.py from code.S: change that, and run the tool."""

# (bytes, offset of a place in them)
# fmt: off
CODE = {
    "probe_call": (b"\xc0\x04\x00\x00\x00\x00", 0),
    "probe_tail": (b"\x47\x00\x00\x00\x07\xfe", 0),
    "enabled_call": (b"\xa7\x29\x00\x00\x07\x00", 4),
    "enabled_tail": (b"\xa7\x29\x00\x00\x07\xfe", 4),
    "no": (b"\xa7\x29\x00\x00", 0),
    "read_semaphore": (b"\xc0\x10\x00\x00\x00\x00\xe3\x20\x10\x00\x00\x91", 2),
    "nop": (b"\x07\x00", 0),
    "return": (b"\x07\xfe", 0),
}
