"""Machine code templates, made by tools/templates.py from aarch64.S: change that, and run the tool."""

# fmt: off
from . import Hole, Template

TEMPLATES = {
    "jump": Template(
        b"\x00\x00\x00\x14",
        (Hole(0, "jump26", "target", 0),)),
    "return": Template(
        b"\xc0\x03\x5f\xd6"),
    "count_atomic": Template(
        b"\xf0\x47\xbe\xa9\xef\x0b\x00\xf9\x10\x00\x00\x90\x10\x02\x00\x91\x31\x00\x80\xd2\x1f\x02\x31\xf8"
        b"\xef\x0b\x40\xf9\xf0\x47\xc2\xa8",
        (Hole(8, "adr_prel_pg_hi21", "counter", 0),
         Hole(12, "add_abs_lo12", "counter", 0),)),
    "count_exclusive": Template(
        b"\xf0\x47\xbe\xa9\xef\x0b\x00\xf9\x10\x00\x00\x90\x10\x02\x00\x91\x11\x7e\x5f\xc8\x31\x06\x00\x91"
        b"\x11\x7e\x0f\xc8\xaf\xff\xff\x35\xef\x0b\x40\xf9\xf0\x47\xc2\xa8",
        (Hole(8, "adr_prel_pg_hi21", "counter", 0),
         Hole(12, "add_abs_lo12", "counter", 0),)),
    "claim_process": Template(
        b"\x04\x00\xe0\xd2\x04\x00\xc0\xf2\x04\x00\xa0\xf2\x04\x00\x80\xf2\x85\x00\x40\xb9\xa5\x00\x00\xb5"
        b"\x08\x00\x80\xd2\x01\x00\x00\xd4\xe5\x03\x00\xaa\x85\x00\x00\xb9",
        (Hole(0, "movw_uabs_g3", "pid_cell", 0),
         Hole(4, "movw_uabs_g2_nc", "pid_cell", 0),
         Hole(8, "movw_uabs_g1_nc", "pid_cell", 0),
         Hole(12, "movw_uabs_g0_nc", "pid_cell", 0),
         Hole(24, "movw_uabs_g0", "getpid", 0),)),
    "thread_at_offset": Template(
        b"\x40\xd0\x3b\xd5\x01\x00\xe0\xd2\x01\x00\xc0\xf2\x01\x00\xa0\xf2\x01\x00\x80\xf2\x00\x00\x01\x8b"
        b"\x03\x00\x40\xb9",
        (Hole(4, "movw_uabs_g3", "tid_offset", 0),
         Hole(8, "movw_uabs_g2_nc", "tid_offset", 0),
         Hole(12, "movw_uabs_g1_nc", "tid_offset", 0),
         Hole(16, "movw_uabs_g0_nc", "tid_offset", 0),)),
    "thread_by_call": Template(
        b"\x08\x00\x80\xd2\x01\x00\x00\xd4\xe3\x03\x00\xaa",
        (Hole(0, "movw_uabs_g0", "gettid", 0),)),
    "claim_atomic": Template(
        b"\x64\x0c\x40\xd3\x02\x00\x80\xd2\x84\x20\xc2\x9a\x02\x00\xe0\xd2\x02\x00\xc0\xf2\x02\x00\xa0\xf2"
        b"\x02\x00\x80\xf2\x84\x00\x02\x8b\x08\x00\xa0\xd2\x08\x00\x80\xf2\x80\x00\x40\xf9\x82\x20\x40\xf9"
        b"\x02\x00\x02\xcb\x5f\x00\x08\xeb\xaa\x02\x00\x54\x02\x00\xa0\xd2\x02\x00\x80\xf2\x06\x00\x02\x8a"
        b"\x82\x24\x40\xf9\xdf\x00\x02\xeb\xea\x01\x00\x54\x07\x04\x00\x91\xe2\x03\x00\xaa\x87\xfc\xe2\xc8"
        b"\x5f\x00\x00\xeb\x21\xfe\xff\x54\x02\x00\xa0\xd2\x02\x00\x80\xf2\xc6\x10\x02\x9b\xc6\x04\x40\x91"
        b"\xc3\x10\x00\xb9\xc5\x0c\x00\xf9\x40\xe0\x3b\xd5\xc0\x04\x00\xf9\xc0\x03\x5f\xd6\x06\x00\x80\xd2"
        b"\xc0\x03\x5f\xd6",
        (Hole(4, "movw_uabs_g0", "stride_bits", 0),
         Hole(12, "movw_uabs_g3", "rings", 0),
         Hole(16, "movw_uabs_g2_nc", "rings", 0),
         Hole(20, "movw_uabs_g1_nc", "rings", 0),
         Hole(24, "movw_uabs_g0_nc", "rings", 0),
         Hole(32, "movw_uabs_g1", "slots", 0),
         Hole(36, "movw_uabs_g0_nc", "slots", 0),
         Hole(60, "movw_uabs_g1", "slots_mask", 0),
         Hole(64, "movw_uabs_g0_nc", "slots_mask", 0),
         Hole(104, "movw_uabs_g1", "slot_size", 0),
         Hole(108, "movw_uabs_g0_nc", "slot_size", 0),)),
    "claim_exclusive": Template(
        b"\x64\x0c\x40\xd3\x02\x00\x80\xd2\x84\x20\xc2\x9a\x02\x00\xe0\xd2\x02\x00\xc0\xf2\x02\x00\xa0\xf2"
        b"\x02\x00\x80\xf2\x84\x00\x02\x8b\x08\x00\xa0\xd2\x08\x00\x80\xf2\x80\x00\x40\xf9\x82\x20\x40\xf9"
        b"\x02\x00\x02\xcb\x5f\x00\x08\xeb\xca\x02\x00\x54\x02\x00\xa0\xd2\x02\x00\x80\xf2\x06\x00\x02\x8a"
        b"\x82\x24\x40\xf9\xdf\x00\x02\xeb\x0a\x02\x00\x54\x07\x04\x00\x91\x82\xfc\x5f\xc8\x5f\x00\x00\xeb"
        b"\x41\xfe\xff\x54\x87\xfc\x02\xc8\x02\xfe\xff\x35\x02\x00\xa0\xd2\x02\x00\x80\xf2\xc6\x10\x02\x9b"
        b"\xc6\x04\x40\x91\xc3\x10\x00\xb9\xc5\x0c\x00\xf9\x40\xe0\x3b\xd5\xc0\x04\x00\xf9\xc0\x03\x5f\xd6"
        b"\x06\x00\x80\xd2\xc0\x03\x5f\xd6",
        (Hole(4, "movw_uabs_g0", "stride_bits", 0),
         Hole(12, "movw_uabs_g3", "rings", 0),
         Hole(16, "movw_uabs_g2_nc", "rings", 0),
         Hole(20, "movw_uabs_g1_nc", "rings", 0),
         Hole(24, "movw_uabs_g0_nc", "rings", 0),
         Hole(32, "movw_uabs_g1", "slots", 0),
         Hole(36, "movw_uabs_g0_nc", "slots", 0),
         Hole(60, "movw_uabs_g1", "slots_mask", 0),
         Hole(64, "movw_uabs_g0_nc", "slots_mask", 0),
         Hole(108, "movw_uabs_g1", "slot_size", 0),
         Hole(112, "movw_uabs_g0_nc", "slot_size", 0),)),
    "copy": Template(
        b"\x09\x00\x80\xd2\x20\x05\x00\xd1\xa0\x00\x00\xf9\x81\xf0\x7d\x92\x81\x02\x00\xb4\x60\x0c\x80\xd2"
        b"\x02\x00\x80\xd2\x03\x01\x80\xd2\x08\x00\x80\xd2\x01\x00\x00\xd4\x1f\x38\x00\xb1\xa0\x01\x00\x54"
        b"\x08\x00\xa0\xd2\x08\x00\x80\xf2\x80\x14\x40\x38\xa1\x00\x09\x8b\x20\x20\x00\x39\x20\x01\x00\xb4"
        b"\x29\x05\x00\x91\x3f\x01\x08\xeb\xc0\x00\x00\x54\x9f\x2c\x40\xf2\x01\xff\xff\x54\xec\xff\xff\x17"
        b"\x69\x00\x00\xb4\x01\x00\x00\x14\xa9\x00\x00\xf9\xc0\x03\x5f\xd6",
        (Hole(32, "movw_uabs_g0", "rt_sigprocmask", 0),
         Hole(48, "movw_uabs_g1", "string_size", 0),
         Hole(52, "movw_uabs_g0_nc", "string_size", 0),)),
    "copy_tagged": Template(
        b"\x09\x00\x80\xd2\x20\x05\x00\xd1\xa0\x00\x00\xf9\x81\xf0\x7d\x92\xe1\x02\x00\xb4\x60\x0c\x80\xd2"
        b"\x02\x00\x80\xd2\x03\x01\x80\xd2\x08\x00\x80\xd2\x01\x00\x00\xd4\x1f\x38\x00\xb1\x00\x02\x00\x54"
        b"\xe3\x42\x3b\xd5\x9f\x41\x03\xd5\x08\x00\xa0\xd2\x08\x00\x80\xf2\x80\x14\x40\x38\xa1\x00\x09\x8b"
        b"\x20\x20\x00\x39\x40\x01\x00\xb4\x29\x05\x00\x91\x3f\x01\x08\xeb\xe0\x00\x00\x54\x9f\x2c\x40\xf2"
        b"\x01\xff\xff\x54\xe3\x42\x1b\xd5\xe9\xff\xff\x17\x89\x00\x00\xb4\x02\x00\x00\x14\xe3\x42\x1b\xd5"
        b"\xa9\x00\x00\xf9\xc0\x03\x5f\xd6",
        (Hole(32, "movw_uabs_g0", "rt_sigprocmask", 0),
         Hole(56, "movw_uabs_g1", "string_size", 0),
         Hole(60, "movw_uabs_g0_nc", "string_size", 0),)),
    "probe": Template(
        b"\x81\xf0\x7d\x92\x81\x02\x00\xb4\x60\x0c\x80\xd2\x02\x00\x80\xd2\x03\x01\x80\xd2\x08\x00\x80\xd2"
        b"\x01\x00\x00\xd4\x1f\x38\x00\xb1\xa0\x01\x00\x54\x81\x1c\x00\x91\x21\xf0\x7d\x92\x41\x01\x00\xb4"
        b"\x60\x0c\x80\xd2\x02\x00\x80\xd2\x03\x01\x80\xd2\x08\x00\x80\xd2\x01\x00\x00\xd4\x1f\x38\x00\xb1"
        b"\x60\x00\x00\x54\x20\x00\x80\xd2\xc0\x03\x5f\xd6\x00\x00\x80\xd2\xc0\x03\x5f\xd6",
        (Hole(20, "movw_uabs_g0", "rt_sigprocmask", 0),
         Hole(60, "movw_uabs_g0", "rt_sigprocmask", 0),)),
    "save_all": Template(
        b"\xe0\x07\xba\xa9\xe2\x0f\x01\xa9\xe4\x17\x02\xa9\xe6\x1f\x03\xa9\xe8\x27\x04\xa9\x00\x42\x3b\xd5"
        b"\xfe\x03\x05\xa9"),
    "record_begin": Template(
        b"\x00\x00\x00\x94\x06\x00\x00\xb4\x00\x00\xa0\xd2\x00\x00\x80\xf2\xc0\x14\x00\xb9",
        (Hole(0, "jump26", "claim", 0),
         Hole(4, "condbr19", "full", 0),
         Hole(8, "movw_uabs_g1", "site", 0),
         Hole(12, "movw_uabs_g0_nc", "site", 0),)),
    "record_end": Template(
        b"\xc7\xfc\x9f\xc8"),
    "restore_all": Template(
        b"\xfe\x03\x45\xa9\x00\x42\x1b\xd5\xe2\x0f\x41\xa9\xe4\x17\x42\xa9\xe6\x1f\x43\xa9\xe8\x27\x44\xa9"
        b"\xe0\x07\xc6\xa8"),
    "record_lost_atomic": Template(
        b"\x04\x00\x00\x90\x84\x00\x00\x91\x25\x00\x80\xd2\x9f\x00\x25\xf8\x00\x00\x00\x14",
        (Hole(0, "adr_prel_pg_hi21", "counter", 0),
         Hole(4, "add_abs_lo12", "counter", 0),
         Hole(16, "jump26", "out", 0),)),
    "record_lost_exclusive": Template(
        b"\x04\x00\x00\x90\x84\x00\x00\x91\x85\x7c\x5f\xc8\xa5\x04\x00\x91\x85\x7c\x03\xc8\xa3\xff\xff\x35"
        b"\x00\x00\x00\x14",
        (Hole(0, "adr_prel_pg_hi21", "counter", 0),
         Hole(4, "add_abs_lo12", "counter", 0),
         Hole(24, "jump26", "out", 0),)),
    "store": Template(
        b"\xc0\x00\x00\xf9",
        (Hole(0, "ldst64_abs_lo12", "at", 0),)),
    "constant": Template(
        b"\x00\x00\xe0\xd2\x00\x00\xc0\xf2\x00\x00\xa0\xf2\x00\x00\x80\xf2",
        (Hole(0, "movw_uabs_g3", "value", 0),
         Hole(4, "movw_uabs_g2_nc", "value", 0),
         Hole(8, "movw_uabs_g1_nc", "value", 0),
         Hole(12, "movw_uabs_g0_nc", "value", 0),)),
    "missing": Template(
        b"\xc0\x1c\x40\xb9\x01\x00\xa0\xd2\x01\x00\x80\xf2\x00\x00\x01\x2a\xc0\x1c\x00\xb9",
        (Hole(4, "movw_uabs_g1", "bit", 0),
         Hole(8, "movw_uabs_g0_nc", "bit", 0),)),
    "string": Template(
        b"\xc4\x00\x40\xf9\x05\x00\xa0\xd2\x05\x00\x80\xf2\xa5\x00\x06\x8b\x00\x00\x00\x94",
        (Hole(0, "ldst64_abs_lo12", "at", 0),
         Hole(4, "movw_uabs_g1", "string_at", 0),
         Hole(8, "movw_uabs_g0_nc", "string_at", 0),
         Hole(16, "jump26", "copy", 0),)),
    "load_x0_from_x0": Template(
        b"\xe0\x03\x40\xf9"),
    "load_x0_from_x1": Template(
        b"\xe0\x07\x40\xf9"),
    "load_x0_from_x2": Template(
        b"\xe0\x0b\x40\xf9"),
    "load_x0_from_x3": Template(
        b"\xe0\x0f\x40\xf9"),
    "load_x0_from_x4": Template(
        b"\xe0\x13\x40\xf9"),
    "load_x0_from_x5": Template(
        b"\xe0\x17\x40\xf9"),
    "load_x0_from_x6": Template(
        b"\xe0\x1b\x40\xf9"),
    "load_x0_from_x7": Template(
        b"\xe0\x1f\x40\xf9"),
    "load_x0_from_x8": Template(
        b"\xe0\x23\x40\xf9"),
    "load_x0_from_x9": Template(
        b"\xe0\x27\x40\xf9"),
    "load_x0_from_x10": Template(
        b"\xe0\x03\x0a\xaa"),
    "load_x0_from_x11": Template(
        b"\xe0\x03\x0b\xaa"),
    "load_x0_from_x12": Template(
        b"\xe0\x03\x0c\xaa"),
    "load_x0_from_x13": Template(
        b"\xe0\x03\x0d\xaa"),
    "load_x0_from_x14": Template(
        b"\xe0\x03\x0e\xaa"),
    "load_x0_from_x15": Template(
        b"\xe0\x03\x0f\xaa"),
    "load_x0_from_x16": Template(
        b"\xe0\x03\x10\xaa"),
    "load_x0_from_x17": Template(
        b"\xe0\x03\x11\xaa"),
    "load_x0_from_x18": Template(
        b"\xe0\x03\x12\xaa"),
    "load_x0_from_x19": Template(
        b"\xe0\x03\x13\xaa"),
    "load_x0_from_x20": Template(
        b"\xe0\x03\x14\xaa"),
    "load_x0_from_x21": Template(
        b"\xe0\x03\x15\xaa"),
    "load_x0_from_x22": Template(
        b"\xe0\x03\x16\xaa"),
    "load_x0_from_x23": Template(
        b"\xe0\x03\x17\xaa"),
    "load_x0_from_x24": Template(
        b"\xe0\x03\x18\xaa"),
    "load_x0_from_x25": Template(
        b"\xe0\x03\x19\xaa"),
    "load_x0_from_x26": Template(
        b"\xe0\x03\x1a\xaa"),
    "load_x0_from_x27": Template(
        b"\xe0\x03\x1b\xaa"),
    "load_x0_from_x28": Template(
        b"\xe0\x03\x1c\xaa"),
    "load_x0_from_x29": Template(
        b"\xe0\x03\x1d\xaa"),
    "load_x0_from_x30": Template(
        b"\xe0\x2b\x40\xf9"),
    "load_x0_from_sp": Template(
        b"\xe0\x83\x01\x91"),
    "load_x4_from_x0": Template(
        b"\xe4\x03\x40\xf9"),
    "load_x4_from_x1": Template(
        b"\xe4\x07\x40\xf9"),
    "load_x4_from_x2": Template(
        b"\xe4\x0b\x40\xf9"),
    "load_x4_from_x3": Template(
        b"\xe4\x0f\x40\xf9"),
    "load_x4_from_x4": Template(
        b"\xe4\x13\x40\xf9"),
    "load_x4_from_x5": Template(
        b"\xe4\x17\x40\xf9"),
    "load_x4_from_x6": Template(
        b"\xe4\x1b\x40\xf9"),
    "load_x4_from_x7": Template(
        b"\xe4\x1f\x40\xf9"),
    "load_x4_from_x8": Template(
        b"\xe4\x23\x40\xf9"),
    "load_x4_from_x9": Template(
        b"\xe4\x27\x40\xf9"),
    "load_x4_from_x10": Template(
        b"\xe4\x03\x0a\xaa"),
    "load_x4_from_x11": Template(
        b"\xe4\x03\x0b\xaa"),
    "load_x4_from_x12": Template(
        b"\xe4\x03\x0c\xaa"),
    "load_x4_from_x13": Template(
        b"\xe4\x03\x0d\xaa"),
    "load_x4_from_x14": Template(
        b"\xe4\x03\x0e\xaa"),
    "load_x4_from_x15": Template(
        b"\xe4\x03\x0f\xaa"),
    "load_x4_from_x16": Template(
        b"\xe4\x03\x10\xaa"),
    "load_x4_from_x17": Template(
        b"\xe4\x03\x11\xaa"),
    "load_x4_from_x18": Template(
        b"\xe4\x03\x12\xaa"),
    "load_x4_from_x19": Template(
        b"\xe4\x03\x13\xaa"),
    "load_x4_from_x20": Template(
        b"\xe4\x03\x14\xaa"),
    "load_x4_from_x21": Template(
        b"\xe4\x03\x15\xaa"),
    "load_x4_from_x22": Template(
        b"\xe4\x03\x16\xaa"),
    "load_x4_from_x23": Template(
        b"\xe4\x03\x17\xaa"),
    "load_x4_from_x24": Template(
        b"\xe4\x03\x18\xaa"),
    "load_x4_from_x25": Template(
        b"\xe4\x03\x19\xaa"),
    "load_x4_from_x26": Template(
        b"\xe4\x03\x1a\xaa"),
    "load_x4_from_x27": Template(
        b"\xe4\x03\x1b\xaa"),
    "load_x4_from_x28": Template(
        b"\xe4\x03\x1c\xaa"),
    "load_x4_from_x29": Template(
        b"\xe4\x03\x1d\xaa"),
    "load_x4_from_x30": Template(
        b"\xe4\x2b\x40\xf9"),
    "load_x4_from_sp": Template(
        b"\xe4\x83\x01\x91"),
    "zero": Template(
        b"\xe0\x03\x1f\xaa"),
    "load_x0_from_v0": Template(
        b"\x00\x00\x66\x9e"),
    "load_x0_from_v1": Template(
        b"\x20\x00\x66\x9e"),
    "load_x0_from_v2": Template(
        b"\x40\x00\x66\x9e"),
    "load_x0_from_v3": Template(
        b"\x60\x00\x66\x9e"),
    "load_x0_from_v4": Template(
        b"\x80\x00\x66\x9e"),
    "load_x0_from_v5": Template(
        b"\xa0\x00\x66\x9e"),
    "load_x0_from_v6": Template(
        b"\xc0\x00\x66\x9e"),
    "load_x0_from_v7": Template(
        b"\xe0\x00\x66\x9e"),
    "load_x0_from_v8": Template(
        b"\x00\x01\x66\x9e"),
    "load_x0_from_v9": Template(
        b"\x20\x01\x66\x9e"),
    "load_x0_from_v10": Template(
        b"\x40\x01\x66\x9e"),
    "load_x0_from_v11": Template(
        b"\x60\x01\x66\x9e"),
    "load_x0_from_v12": Template(
        b"\x80\x01\x66\x9e"),
    "load_x0_from_v13": Template(
        b"\xa0\x01\x66\x9e"),
    "load_x0_from_v14": Template(
        b"\xc0\x01\x66\x9e"),
    "load_x0_from_v15": Template(
        b"\xe0\x01\x66\x9e"),
    "load_x0_from_v16": Template(
        b"\x00\x02\x66\x9e"),
    "load_x0_from_v17": Template(
        b"\x20\x02\x66\x9e"),
    "load_x0_from_v18": Template(
        b"\x40\x02\x66\x9e"),
    "load_x0_from_v19": Template(
        b"\x60\x02\x66\x9e"),
    "load_x0_from_v20": Template(
        b"\x80\x02\x66\x9e"),
    "load_x0_from_v21": Template(
        b"\xa0\x02\x66\x9e"),
    "load_x0_from_v22": Template(
        b"\xc0\x02\x66\x9e"),
    "load_x0_from_v23": Template(
        b"\xe0\x02\x66\x9e"),
    "load_x0_from_v24": Template(
        b"\x00\x03\x66\x9e"),
    "load_x0_from_v25": Template(
        b"\x20\x03\x66\x9e"),
    "load_x0_from_v26": Template(
        b"\x40\x03\x66\x9e"),
    "load_x0_from_v27": Template(
        b"\x60\x03\x66\x9e"),
    "load_x0_from_v28": Template(
        b"\x80\x03\x66\x9e"),
    "load_x0_from_v29": Template(
        b"\xa0\x03\x66\x9e"),
    "load_x0_from_v30": Template(
        b"\xc0\x03\x66\x9e"),
    "load_x0_from_v31": Template(
        b"\xe0\x03\x66\x9e"),
    "add_displacement": Template(
        b"\x00\x00\xe0\xd2\x00\x00\xc0\xf2\x00\x00\xa0\xf2\x00\x00\x80\xf2\x84\x00\x00\x8b",
        (Hole(0, "movw_uabs_g3", "displacement", 0),
         Hole(4, "movw_uabs_g2_nc", "displacement", 0),
         Hole(8, "movw_uabs_g1_nc", "displacement", 0),
         Hole(12, "movw_uabs_g0_nc", "displacement", 0),)),
    "try_memory": Template(
        b"\x00\x00\x00\x94\x00\x00\x00\xb4",
        (Hole(0, "jump26", "probe", 0),
         Hole(4, "condbr19", "unreadable", 0),)),
    "memory_signed_1": Template(
        b"\x80\x00\x80\x39"),
    "read_signed_1": Template(
        b"\x80\x00\x80\x39\xc0\x00\x00\xf9",
        (Hole(4, "ldst64_abs_lo12", "at", 0),)),
    "try_signed_1": Template(
        b"\x00\x00\x00\x94\x80\x00\x00\xb4\x80\x00\x80\x39\xc0\x00\x00\xf9\x06\x00\x00\x14\xc0\x1c\x40\xb9"
        b"\x01\x00\xa0\xd2\x01\x00\x80\xf2\x00\x00\x01\x2a\xc0\x1c\x00\xb9",
        (Hole(0, "jump26", "probe", 0),
         Hole(12, "ldst64_abs_lo12", "at", 0),
         Hole(24, "movw_uabs_g1", "bit", 0),
         Hole(28, "movw_uabs_g0_nc", "bit", 0),)),
    "memory_signed_2": Template(
        b"\x80\x00\x80\x79"),
    "read_signed_2": Template(
        b"\x80\x00\x80\x79\xc0\x00\x00\xf9",
        (Hole(4, "ldst64_abs_lo12", "at", 0),)),
    "try_signed_2": Template(
        b"\x00\x00\x00\x94\x80\x00\x00\xb4\x80\x00\x80\x79\xc0\x00\x00\xf9\x06\x00\x00\x14\xc0\x1c\x40\xb9"
        b"\x01\x00\xa0\xd2\x01\x00\x80\xf2\x00\x00\x01\x2a\xc0\x1c\x00\xb9",
        (Hole(0, "jump26", "probe", 0),
         Hole(12, "ldst64_abs_lo12", "at", 0),
         Hole(24, "movw_uabs_g1", "bit", 0),
         Hole(28, "movw_uabs_g0_nc", "bit", 0),)),
    "memory_signed_4": Template(
        b"\x80\x00\x80\xb9"),
    "read_signed_4": Template(
        b"\x80\x00\x80\xb9\xc0\x00\x00\xf9",
        (Hole(4, "ldst64_abs_lo12", "at", 0),)),
    "try_signed_4": Template(
        b"\x00\x00\x00\x94\x80\x00\x00\xb4\x80\x00\x80\xb9\xc0\x00\x00\xf9\x06\x00\x00\x14\xc0\x1c\x40\xb9"
        b"\x01\x00\xa0\xd2\x01\x00\x80\xf2\x00\x00\x01\x2a\xc0\x1c\x00\xb9",
        (Hole(0, "jump26", "probe", 0),
         Hole(12, "ldst64_abs_lo12", "at", 0),
         Hole(24, "movw_uabs_g1", "bit", 0),
         Hole(28, "movw_uabs_g0_nc", "bit", 0),)),
    "memory_signed_8": Template(
        b"\x80\x00\x40\xf9"),
    "read_signed_8": Template(
        b"\x80\x00\x40\xf9\xc0\x00\x00\xf9",
        (Hole(4, "ldst64_abs_lo12", "at", 0),)),
    "try_signed_8": Template(
        b"\x00\x00\x00\x94\x80\x00\x00\xb4\x80\x00\x40\xf9\xc0\x00\x00\xf9\x06\x00\x00\x14\xc0\x1c\x40\xb9"
        b"\x01\x00\xa0\xd2\x01\x00\x80\xf2\x00\x00\x01\x2a\xc0\x1c\x00\xb9",
        (Hole(0, "jump26", "probe", 0),
         Hole(12, "ldst64_abs_lo12", "at", 0),
         Hole(24, "movw_uabs_g1", "bit", 0),
         Hole(28, "movw_uabs_g0_nc", "bit", 0),)),
    "memory_unsigned_1": Template(
        b"\x80\x00\x40\x39"),
    "read_unsigned_1": Template(
        b"\x80\x00\x40\x39\xc0\x00\x00\xf9",
        (Hole(4, "ldst64_abs_lo12", "at", 0),)),
    "try_unsigned_1": Template(
        b"\x00\x00\x00\x94\x80\x00\x00\xb4\x80\x00\x40\x39\xc0\x00\x00\xf9\x06\x00\x00\x14\xc0\x1c\x40\xb9"
        b"\x01\x00\xa0\xd2\x01\x00\x80\xf2\x00\x00\x01\x2a\xc0\x1c\x00\xb9",
        (Hole(0, "jump26", "probe", 0),
         Hole(12, "ldst64_abs_lo12", "at", 0),
         Hole(24, "movw_uabs_g1", "bit", 0),
         Hole(28, "movw_uabs_g0_nc", "bit", 0),)),
    "memory_unsigned_2": Template(
        b"\x80\x00\x40\x79"),
    "read_unsigned_2": Template(
        b"\x80\x00\x40\x79\xc0\x00\x00\xf9",
        (Hole(4, "ldst64_abs_lo12", "at", 0),)),
    "try_unsigned_2": Template(
        b"\x00\x00\x00\x94\x80\x00\x00\xb4\x80\x00\x40\x79\xc0\x00\x00\xf9\x06\x00\x00\x14\xc0\x1c\x40\xb9"
        b"\x01\x00\xa0\xd2\x01\x00\x80\xf2\x00\x00\x01\x2a\xc0\x1c\x00\xb9",
        (Hole(0, "jump26", "probe", 0),
         Hole(12, "ldst64_abs_lo12", "at", 0),
         Hole(24, "movw_uabs_g1", "bit", 0),
         Hole(28, "movw_uabs_g0_nc", "bit", 0),)),
    "memory_unsigned_4": Template(
        b"\x80\x00\x40\xb9"),
    "read_unsigned_4": Template(
        b"\x80\x00\x40\xb9\xc0\x00\x00\xf9",
        (Hole(4, "ldst64_abs_lo12", "at", 0),)),
    "try_unsigned_4": Template(
        b"\x00\x00\x00\x94\x80\x00\x00\xb4\x80\x00\x40\xb9\xc0\x00\x00\xf9\x06\x00\x00\x14\xc0\x1c\x40\xb9"
        b"\x01\x00\xa0\xd2\x01\x00\x80\xf2\x00\x00\x01\x2a\xc0\x1c\x00\xb9",
        (Hole(0, "jump26", "probe", 0),
         Hole(12, "ldst64_abs_lo12", "at", 0),
         Hole(24, "movw_uabs_g1", "bit", 0),
         Hole(28, "movw_uabs_g0_nc", "bit", 0),)),
    "memory_unsigned_8": Template(
        b"\x80\x00\x40\xf9"),
    "read_unsigned_8": Template(
        b"\x80\x00\x40\xf9\xc0\x00\x00\xf9",
        (Hole(4, "ldst64_abs_lo12", "at", 0),)),
    "try_unsigned_8": Template(
        b"\x00\x00\x00\x94\x80\x00\x00\xb4\x80\x00\x40\xf9\xc0\x00\x00\xf9\x06\x00\x00\x14\xc0\x1c\x40\xb9"
        b"\x01\x00\xa0\xd2\x01\x00\x80\xf2\x00\x00\x01\x2a\xc0\x1c\x00\xb9",
        (Hole(0, "jump26", "probe", 0),
         Hole(12, "ldst64_abs_lo12", "at", 0),
         Hole(24, "movw_uabs_g1", "bit", 0),
         Hole(28, "movw_uabs_g0_nc", "bit", 0),)),
    "extend_signed_1": Template(
        b"\x00\x1c\x40\x93"),
    "extend_signed_2": Template(
        b"\x00\x3c\x40\x93"),
    "extend_signed_4": Template(
        b"\x00\x7c\x40\x93"),
    "extend_unsigned_1": Template(
        b"\x00\x1c\x00\x53"),
    "extend_unsigned_2": Template(
        b"\x00\x3c\x00\x53"),
    "extend_unsigned_4": Template(
        b"\xe0\x03\x00\x2a"),
    "compare_constant": Template(
        b"\x01\x00\xe0\xd2\x01\x00\xc0\xf2\x01\x00\xa0\xf2\x01\x00\x80\xf2\x1f\x00\x01\xeb",
        (Hole(0, "movw_uabs_g3", "constant", 0),
         Hole(4, "movw_uabs_g2_nc", "constant", 0),
         Hole(8, "movw_uabs_g1_nc", "constant", 0),
         Hole(12, "movw_uabs_g0_nc", "constant", 0),)),
    "keep_first": Template(
        b"\xe9\x03\x00\xaa"),
    "compare_two": Template(
        b"\x3f\x01\x00\xeb"),
    "jump_eq": Template(
        b"\x00\x00\x00\x54",
        (Hole(0, "condbr19", "target", 0),)),
    "jump_ne": Template(
        b"\x01\x00\x00\x54",
        (Hole(0, "condbr19", "target", 0),)),
    "jump_lt": Template(
        b"\x0b\x00\x00\x54",
        (Hole(0, "condbr19", "target", 0),)),
    "jump_le": Template(
        b"\x0d\x00\x00\x54",
        (Hole(0, "condbr19", "target", 0),)),
    "jump_gt": Template(
        b"\x0c\x00\x00\x54",
        (Hole(0, "condbr19", "target", 0),)),
    "jump_ge": Template(
        b"\x0a\x00\x00\x54",
        (Hole(0, "condbr19", "target", 0),)),
    "jump_lo": Template(
        b"\x03\x00\x00\x54",
        (Hole(0, "condbr19", "target", 0),)),
    "jump_ls": Template(
        b"\x09\x00\x00\x54",
        (Hole(0, "condbr19", "target", 0),)),
    "jump_hi": Template(
        b"\x08\x00\x00\x54",
        (Hole(0, "condbr19", "target", 0),)),
    "jump_hs": Template(
        b"\x02\x00\x00\x54",
        (Hole(0, "condbr19", "target", 0),)),
    "count_key": Template(
        b"\x01\x00\xe0\xd2\x01\x00\xc0\xf2\x01\x00\xa0\xf2\x01\x00\x80\xf2\x00\x00\x00\x94",
        (Hole(0, "movw_uabs_g3", "table", 0),
         Hole(4, "movw_uabs_g2_nc", "table", 0),
         Hole(8, "movw_uabs_g1_nc", "table", 0),
         Hole(12, "movw_uabs_g0_nc", "table", 0),
         Hole(16, "jump26", "by", 0),)),
    "by_atomic": Template(
        b"\x21\x40\x40\x91\xe4\x03\x01\xaa\x00\x03\x00\xb4\x21\x40\x40\xd1\xe2\xc6\xf3\xd2\x22\x37\xcf\xf2"
        b"\x42\xe9\xaf\xf2\xa2\x82\x8f\xf2\x42\x7c\x00\x9b\x42\xfc\x74\xd3\x03\x20\x80\x52\x44\x2c\x40\x92"
        b"\x24\x10\x04\x8b\x85\x00\x40\xf9\xbf\x00\x00\xeb\x60\x01\x00\x54\xa5\x00\x00\xb5\x05\x00\x80\xd2"
        b"\x80\xfc\xe5\xc8\xe5\x00\x00\xb4\xf9\xff\xff\x17\x42\x04\x00\x91\x63\x04\x00\x71\x81\xfe\xff\x54"
        b"\x24\x40\x40\x91\x84\x40\x00\x91\x84\x20\x00\x91\x25\x00\x80\xd2\x9f\x00\x25\xf8\xc0\x03\x5f\xd6"),
    "by_exclusive": Template(
        b"\x21\x40\x40\x91\xe4\x03\x01\xaa\x20\x03\x00\xb4\x21\x40\x40\xd1\xe2\xc6\xf3\xd2\x22\x37\xcf\xf2"
        b"\x42\xe9\xaf\xf2\xa2\x82\x8f\xf2\x42\x7c\x00\x9b\x42\xfc\x74\xd3\x03\x20\x80\x52\x44\x2c\x40\x92"
        b"\x24\x10\x04\x8b\x85\x00\x40\xf9\xbf\x00\x00\xeb\x80\x01\x00\x54\xc5\x00\x00\xb5\x85\xfc\x5f\xc8"
        b"\x65\xff\xff\xb5\x80\xfc\x08\xc8\xe8\x00\x00\x34\xf8\xff\xff\x17\x42\x04\x00\x91\x63\x04\x00\x71"
        b"\x61\xfe\xff\x54\x24\x40\x40\x91\x84\x40\x00\x91\x84\x20\x00\x91\x85\x7c\x5f\xc8\xa5\x04\x00\x91"
        b"\x85\x7c\x08\xc8\xa8\xff\xff\x35\xc0\x03\x5f\xd6"),
    "call_loop": Template(
        b"\x54\x01\x00\xb4\x68\x02\x40\xf9\x60\x86\x40\xa9\x62\x8e\x41\xa9\x64\x96\x42\xa9\x01\x00\x00\xd4"
        b"\xa0\x86\x00\xf8\x73\xe2\x00\x91\x94\x06\x00\xd1\xf7\xff\xff\x17\x20\x00\x80\xd2\xc0\xfe\x9f\xc8"
        b"\x3f\x20\x03\xd5\xff\xff\xff\x17"),
    "ticks": Template(
        b"\x40\xe0\x3b\xd5\xc0\x03\x5f\xd6"),
    "ticks_a_second": Template(
        b"\x00\xe0\x3b\xd5\xc0\x03\x5f\xd6"),
    "fence": Template(
        b"\xbf\x3b\x03\xd5\xc0\x03\x5f\xd6"),
    "skip": Template(
        b"\x04\xfc\x5f\xc8\x9f\x00\x01\xeb\xc1\x00\x00\x54\x02\xfc\x05\xc8\x85\xff\xff\x35\x62\xfc\x9f\xc8"
        b"\x20\x00\x80\x52\xc0\x03\x5f\xd6\x5f\x3f\x03\xd5\x00\x00\x80\x52\xc0\x03\x5f\xd6"),
}
