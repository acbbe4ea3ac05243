"""Machine code templates, made by tools/templates.py from x86_64.S: change that, and run the tool."""

# fmt: off
from . import Hole, Template

TEMPLATES = {
    "jump": Template(
        b"\xe9\x00\x00\x00\x00",
        (Hole(1, "distance", "target", -4),)),
    "jump_through": Template(
        b"\xff\x25\x00\x00\x00\x00",
        (Hole(2, "distance", "slot", -4),)),
    "return": Template(
        b"\xc3"),
    "count": Template(
        b"\xf0\x48\xff\x05\x00\x00\x00\x00",
        (Hole(4, "distance", "counter", -4),)),
    "tell": Template(
        b"\x48\x8d\x64\x24\x80\x50\x51\x52\x56\x57\x41\x52\x41\x53\x50\xb8\x00\x00\x00\x00\x31\xff\x31\xf6"
        b"\x48\x89\xe2\x41\xba\x08\x00\x00\x00\x0f\x05\xf7\x04\x24\xff\xff\x7f\x00\x75\x24\xb8\x00\x00\x00"
        b"\x00\x0f\x05\x89\x04\x24\xb8\x00\x00\x00\x00\x0f\x05\x8b\x3c\x24\x89\xc6\xba\x17\x00\x00\x00\xb8"
        b"\x00\x00\x00\x00\x0f\x05\xeb\x0d\x48\x8d\x05\x00\x00\x00\x00\xc7\x00\x01\x00\x00\x00\x58\x41\x5b"
        b"\x41\x5a\x5f\x5e\x5a\x59\x58\x48\x8d\xa4\x24\x80\x00\x00\x00",
        (Hole(16, "32", "rt_sigprocmask", 0),
         Hole(45, "32", "getpid", 0),
         Hole(55, "32", "gettid", 0),
         Hole(72, "32", "tgkill", 0),
         Hole(83, "distance", "flag", -4),),
        {"told": 78, "on": 93}),
    "claim_process": Template(
        b"\xa1\x00\x00\x00\x00\x00\x00\x00\x00\x85\xc0\x75\x14\x41\x53\xb8\x00\x00\x00\x00\x0f\x05\x41\x5b"
        b"\xa3\x00\x00\x00\x00\x00\x00\x00\x00\x89\xc7",
        (Hole(1, "64", "pid_cell", 0),
         Hole(16, "32", "getpid", 0),
         Hole(25, "64", "pid_cell", 0),)),
    "thread_at_offset": Template(
        b"\x64\x8b\x14\x25\x00\x00\x00\x00",
        (Hole(4, "signed 32", "tid_offset", 0),)),
    "thread_by_call": Template(
        b"\x41\x53\xb8\x00\x00\x00\x00\x0f\x05\x41\x5b\x89\xc2",
        (Hole(3, "32", "gettid", 0),)),
    "claim_slot": Template(
        b"\x89\xd1\x83\xe1\x0f\x48\xc1\xe1\x00\x48\xbe\x00\x00\x00\x00\x00\x00\x00\x00\x48\x01\xf1\x48\x8b"
        b"\x01\x48\x89\xc6\x48\x2b\x71\x40\x48\x81\xfe\x00\x00\x00\x00\x7d\x47\x89\xc6\x81\xe6\x00\x00\x00"
        b"\x00\x3b\x71\x48\x73\x3a\x48\x8d\x70\x01\xf0\x48\x0f\xb1\x31\x75\xd5\x25\x00\x00\x00\x00\x48\x69"
        b"\xc0\x00\x00\x00\x00\x48\x8d\x8c\x01\x00\x10\x00\x00\x89\x51\x10\x48\x89\x79\x18\x48\x89\xf7\x48"
        b"\x89\xce\x0f\x31\x48\xc1\xe2\x20\x48\x09\xd0\x48\x89\x46\x08\xc3\x31\xf6\xc3",
        (Hole(8, "8", "stride_bits", 0),
         Hole(11, "64", "rings", 0),
         Hole(35, "signed 32", "slots", 0),
         Hole(45, "32", "slots_mask", 0),
         Hole(66, "32", "slots_mask", 0),
         Hole(73, "signed 32", "slot_size", 0),)),
    "copy": Template(
        b"\x56\x57\x53\x41\x50\x41\x51\x41\x52\x41\x53\x48\x89\xd3\x49\x89\xc8\x45\x31\xc9\x49\xc7\x00\xff"
        b"\xff\xff\xff\xb8\x00\x00\x00\x00\xbf\x63\x00\x00\x00\x48\x89\xde\x48\x83\xe6\xf8\x74\x0e\x31\xd2"
        b"\x41\xba\x08\x00\x00\x00\x0f\x05\x48\x83\xf8\xf2\x74\x24\x8a\x03\x43\x88\x44\x08\x08\x84\xc0\x74"
        b"\x1e\x49\xff\xc1\x48\xff\xc3\x49\x81\xf9\x00\x00\x00\x00\x74\x0f\xf7\xc3\xff\x0f\x00\x00\x75\xde"
        b"\xeb\xb9\x4d\x85\xc9\x74\x03\x4d\x89\x08\x41\x5b\x41\x5a\x41\x59\x41\x58\x5b\x5f\x5e\xc3",
        (Hole(28, "32", "rt_sigprocmask", 0),
         Hole(82, "signed 32", "string_size", 0),)),
    "probe": Template(
        b"\x56\x57\x53\x51\x52\x41\x52\x41\x53\x48\x89\xd3\xb8\x00\x00\x00\x00\xbf\x63\x00\x00\x00\x48\x89"
        b"\xde\x48\x83\xe6\xf8\x74\x0e\x31\xd2\x41\xba\x08\x00\x00\x00\x0f\x05\x48\x83\xf8\xf2\x74\x25\x48"
        b"\x83\xc3\x07\xb8\x00\x00\x00\x00\xbf\x63\x00\x00\x00\x48\x89\xde\x48\x83\xe6\xf8\x74\x0e\x31\xd2"
        b"\x41\xba\x08\x00\x00\x00\x0f\x05\x48\x83\xf8\xf2\x41\x5b\x41\x5a\x5a\x59\x5b\x5f\x5e\xc3",
        (Hole(13, "32", "rt_sigprocmask", 0),
         Hole(52, "32", "rt_sigprocmask", 0),)),
    "save_all": Template(
        b"\x48\x8d\x64\x24\x80\x50\x51\x52\x56\x57"),
    "restore_all": Template(
        b"\x5f\x5e\x5a\x59\x58\x48\x8d\xa4\x24\x80\x00\x00\x00"),
    "record_begin": Template(
        b"\xe8\x00\x00\x00\x00\x48\x85\xf6\x0f\x84\x00\x00\x00\x00\xc7\x46\x14\x00\x00\x00\x00",
        (Hole(1, "distance", "claim", -4),
         Hole(10, "distance", "full", -4),
         Hole(17, "32", "site", 0),)),
    "record_end": Template(
        b"\x48\x89\x3e"),
    "store": Template(
        b"\x48\x89\x86\x00\x00\x00\x00",
        (Hole(3, "signed 32", "at", 0),)),
    "constant": Template(
        b"\x48\xb8\x00\x00\x00\x00\x00\x00\x00\x00",
        (Hole(2, "64", "value", 0),)),
    "missing": Template(
        b"\x81\x4e\x1c\x00\x00\x00\x00",
        (Hole(3, "32", "bit", 0),)),
    "string": Template(
        b"\x48\x8b\x96\x00\x00\x00\x00\x48\x8d\x8e\x00\x00\x00\x00\xe8\x00\x00\x00\x00",
        (Hole(3, "signed 32", "at", 0),
         Hole(10, "signed 32", "string_at", 0),
         Hole(15, "distance", "copy", -4),)),
    "second_byte": Template(
        b"\x48\xc1\xe8\x08"),
    "load_rax_from_rbx": Template(
        b"\x48\x89\xd8"),
    "load_rax_from_rbp": Template(
        b"\x48\x89\xe8"),
    "load_rax_from_r8": Template(
        b"\x4c\x89\xc0"),
    "load_rax_from_r9": Template(
        b"\x4c\x89\xc8"),
    "load_rax_from_r10": Template(
        b"\x4c\x89\xd0"),
    "load_rax_from_r11": Template(
        b"\x4c\x89\xd8"),
    "load_rax_from_r12": Template(
        b"\x4c\x89\xe0"),
    "load_rax_from_r13": Template(
        b"\x4c\x89\xe8"),
    "load_rax_from_r14": Template(
        b"\x4c\x89\xf0"),
    "load_rax_from_r15": Template(
        b"\x4c\x89\xf8"),
    "load_rax_from_rax": Template(
        b"\x48\x8b\x44\x24\x20"),
    "load_rax_from_rcx": Template(
        b"\x48\x8b\x44\x24\x18"),
    "load_rax_from_rdx": Template(
        b"\x48\x8b\x44\x24\x10"),
    "load_rax_from_rsi": Template(
        b"\x48\x8b\x44\x24\x08"),
    "load_rax_from_rdi": Template(
        b"\x48\x8b\x04\x24"),
    "load_rax_from_rsp": Template(
        b"\x48\x8d\x84\x24\xa8\x00\x00\x00"),
    "load_rcx_from_rbx": Template(
        b"\x48\x89\xd9"),
    "load_rcx_from_rbp": Template(
        b"\x48\x89\xe9"),
    "load_rcx_from_r8": Template(
        b"\x4c\x89\xc1"),
    "load_rcx_from_r9": Template(
        b"\x4c\x89\xc9"),
    "load_rcx_from_r10": Template(
        b"\x4c\x89\xd1"),
    "load_rcx_from_r11": Template(
        b"\x4c\x89\xd9"),
    "load_rcx_from_r12": Template(
        b"\x4c\x89\xe1"),
    "load_rcx_from_r13": Template(
        b"\x4c\x89\xe9"),
    "load_rcx_from_r14": Template(
        b"\x4c\x89\xf1"),
    "load_rcx_from_r15": Template(
        b"\x4c\x89\xf9"),
    "load_rcx_from_rax": Template(
        b"\x48\x8b\x4c\x24\x20"),
    "load_rcx_from_rcx": Template(
        b"\x48\x8b\x4c\x24\x18"),
    "load_rcx_from_rdx": Template(
        b"\x48\x8b\x4c\x24\x10"),
    "load_rcx_from_rsi": Template(
        b"\x48\x8b\x4c\x24\x08"),
    "load_rcx_from_rdi": Template(
        b"\x48\x8b\x0c\x24"),
    "load_rcx_from_rsp": Template(
        b"\x48\x8d\x8c\x24\xa8\x00\x00\x00"),
    "load_rdx_from_rbx": Template(
        b"\x48\x89\xda"),
    "load_rdx_from_rbp": Template(
        b"\x48\x89\xea"),
    "load_rdx_from_r8": Template(
        b"\x4c\x89\xc2"),
    "load_rdx_from_r9": Template(
        b"\x4c\x89\xca"),
    "load_rdx_from_r10": Template(
        b"\x4c\x89\xd2"),
    "load_rdx_from_r11": Template(
        b"\x4c\x89\xda"),
    "load_rdx_from_r12": Template(
        b"\x4c\x89\xe2"),
    "load_rdx_from_r13": Template(
        b"\x4c\x89\xea"),
    "load_rdx_from_r14": Template(
        b"\x4c\x89\xf2"),
    "load_rdx_from_r15": Template(
        b"\x4c\x89\xfa"),
    "load_rdx_from_rax": Template(
        b"\x48\x8b\x54\x24\x20"),
    "load_rdx_from_rcx": Template(
        b"\x48\x8b\x54\x24\x18"),
    "load_rdx_from_rdx": Template(
        b"\x48\x8b\x54\x24\x10"),
    "load_rdx_from_rsi": Template(
        b"\x48\x8b\x54\x24\x08"),
    "load_rdx_from_rdi": Template(
        b"\x48\x8b\x14\x24"),
    "load_rdx_from_rsp": Template(
        b"\x48\x8d\x94\x24\xa8\x00\x00\x00"),
    "load_rax_from_xmm0": Template(
        b"\x66\x48\x0f\x7e\xc0"),
    "load_rax_from_xmm1": Template(
        b"\x66\x48\x0f\x7e\xc8"),
    "load_rax_from_xmm2": Template(
        b"\x66\x48\x0f\x7e\xd0"),
    "load_rax_from_xmm3": Template(
        b"\x66\x48\x0f\x7e\xd8"),
    "load_rax_from_xmm4": Template(
        b"\x66\x48\x0f\x7e\xe0"),
    "load_rax_from_xmm5": Template(
        b"\x66\x48\x0f\x7e\xe8"),
    "load_rax_from_xmm6": Template(
        b"\x66\x48\x0f\x7e\xf0"),
    "load_rax_from_xmm7": Template(
        b"\x66\x48\x0f\x7e\xf8"),
    "load_rax_from_xmm8": Template(
        b"\x66\x4c\x0f\x7e\xc0"),
    "load_rax_from_xmm9": Template(
        b"\x66\x4c\x0f\x7e\xc8"),
    "load_rax_from_xmm10": Template(
        b"\x66\x4c\x0f\x7e\xd0"),
    "load_rax_from_xmm11": Template(
        b"\x66\x4c\x0f\x7e\xd8"),
    "load_rax_from_xmm12": Template(
        b"\x66\x4c\x0f\x7e\xe0"),
    "load_rax_from_xmm13": Template(
        b"\x66\x4c\x0f\x7e\xe8"),
    "load_rax_from_xmm14": Template(
        b"\x66\x4c\x0f\x7e\xf0"),
    "load_rax_from_xmm15": Template(
        b"\x66\x4c\x0f\x7e\xf8"),
    "address": Template(
        b"\x48\xba\x00\x00\x00\x00\x00\x00\x00\x00",
        (Hole(2, "64", "value", 0),)),
    "no_base": Template(
        b"\x31\xd2"),
    "add_index_1": Template(
        b"\x48\x8d\x14\x0a"),
    "add_index_2": Template(
        b"\x48\x8d\x14\x4a"),
    "add_index_4": Template(
        b"\x48\x8d\x14\x8a"),
    "add_index_8": Template(
        b"\x48\x8d\x14\xca"),
    "add_displacement": Template(
        b"\x48\x81\xc2\x00\x00\x00\x00",
        (Hole(3, "signed 32", "displacement", 0),)),
    "try_memory": Template(
        b"\xe8\x00\x00\x00\x00\x0f\x84\x00\x00\x00\x00",
        (Hole(1, "distance", "probe", -4),
         Hole(7, "distance", "unreadable", -4),)),
    "memory_signed_1": Template(
        b"\x48\x0f\xbe\x02"),
    "read_signed_1": Template(
        b"\x48\x0f\xbe\x02\x48\x89\x86\x00\x00\x00\x00",
        (Hole(7, "signed 32", "at", 0),)),
    "try_signed_1": Template(
        b"\xe8\x00\x00\x00\x00\x74\x0d\x48\x0f\xbe\x02\x48\x89\x86\x00\x00\x00\x00\xeb\x07\x81\x4e\x1c\x00"
        b"\x00\x00\x00",
        (Hole(1, "distance", "probe", -4),
         Hole(14, "signed 32", "at", 0),
         Hole(23, "32", "bit", 0),)),
    "memory_signed_2": Template(
        b"\x48\x0f\xbf\x02"),
    "read_signed_2": Template(
        b"\x48\x0f\xbf\x02\x48\x89\x86\x00\x00\x00\x00",
        (Hole(7, "signed 32", "at", 0),)),
    "try_signed_2": Template(
        b"\xe8\x00\x00\x00\x00\x74\x0d\x48\x0f\xbf\x02\x48\x89\x86\x00\x00\x00\x00\xeb\x07\x81\x4e\x1c\x00"
        b"\x00\x00\x00",
        (Hole(1, "distance", "probe", -4),
         Hole(14, "signed 32", "at", 0),
         Hole(23, "32", "bit", 0),)),
    "memory_signed_4": Template(
        b"\x48\x63\x02"),
    "read_signed_4": Template(
        b"\x48\x63\x02\x48\x89\x86\x00\x00\x00\x00",
        (Hole(6, "signed 32", "at", 0),)),
    "try_signed_4": Template(
        b"\xe8\x00\x00\x00\x00\x74\x0c\x48\x63\x02\x48\x89\x86\x00\x00\x00\x00\xeb\x07\x81\x4e\x1c\x00\x00"
        b"\x00\x00",
        (Hole(1, "distance", "probe", -4),
         Hole(13, "signed 32", "at", 0),
         Hole(22, "32", "bit", 0),)),
    "memory_signed_8": Template(
        b"\x48\x8b\x02"),
    "read_signed_8": Template(
        b"\x48\x8b\x02\x48\x89\x86\x00\x00\x00\x00",
        (Hole(6, "signed 32", "at", 0),)),
    "try_signed_8": Template(
        b"\xe8\x00\x00\x00\x00\x74\x0c\x48\x8b\x02\x48\x89\x86\x00\x00\x00\x00\xeb\x07\x81\x4e\x1c\x00\x00"
        b"\x00\x00",
        (Hole(1, "distance", "probe", -4),
         Hole(13, "signed 32", "at", 0),
         Hole(22, "32", "bit", 0),)),
    "memory_unsigned_1": Template(
        b"\x0f\xb6\x02"),
    "read_unsigned_1": Template(
        b"\x0f\xb6\x02\x48\x89\x86\x00\x00\x00\x00",
        (Hole(6, "signed 32", "at", 0),)),
    "try_unsigned_1": Template(
        b"\xe8\x00\x00\x00\x00\x74\x0c\x0f\xb6\x02\x48\x89\x86\x00\x00\x00\x00\xeb\x07\x81\x4e\x1c\x00\x00"
        b"\x00\x00",
        (Hole(1, "distance", "probe", -4),
         Hole(13, "signed 32", "at", 0),
         Hole(22, "32", "bit", 0),)),
    "memory_unsigned_2": Template(
        b"\x0f\xb7\x02"),
    "read_unsigned_2": Template(
        b"\x0f\xb7\x02\x48\x89\x86\x00\x00\x00\x00",
        (Hole(6, "signed 32", "at", 0),)),
    "try_unsigned_2": Template(
        b"\xe8\x00\x00\x00\x00\x74\x0c\x0f\xb7\x02\x48\x89\x86\x00\x00\x00\x00\xeb\x07\x81\x4e\x1c\x00\x00"
        b"\x00\x00",
        (Hole(1, "distance", "probe", -4),
         Hole(13, "signed 32", "at", 0),
         Hole(22, "32", "bit", 0),)),
    "memory_unsigned_4": Template(
        b"\x8b\x02"),
    "read_unsigned_4": Template(
        b"\x8b\x02\x48\x89\x86\x00\x00\x00\x00",
        (Hole(5, "signed 32", "at", 0),)),
    "try_unsigned_4": Template(
        b"\xe8\x00\x00\x00\x00\x74\x0b\x8b\x02\x48\x89\x86\x00\x00\x00\x00\xeb\x07\x81\x4e\x1c\x00\x00\x00"
        b"\x00",
        (Hole(1, "distance", "probe", -4),
         Hole(12, "signed 32", "at", 0),
         Hole(21, "32", "bit", 0),)),
    "memory_unsigned_8": Template(
        b"\x48\x8b\x02"),
    "read_unsigned_8": Template(
        b"\x48\x8b\x02\x48\x89\x86\x00\x00\x00\x00",
        (Hole(6, "signed 32", "at", 0),)),
    "try_unsigned_8": Template(
        b"\xe8\x00\x00\x00\x00\x74\x0c\x48\x8b\x02\x48\x89\x86\x00\x00\x00\x00\xeb\x07\x81\x4e\x1c\x00\x00"
        b"\x00\x00",
        (Hole(1, "distance", "probe", -4),
         Hole(13, "signed 32", "at", 0),
         Hole(22, "32", "bit", 0),)),
    "compare_1_rax": Template(
        b"\x3c\x00",
        (Hole(1, "8", "constant", 0),)),
    "compare_2_rax": Template(
        b"\x66\x3d\x00\x00",
        (Hole(2, "16", "constant", 0),)),
    "compare_4_rax": Template(
        b"\x3d\x00\x00\x00\x00",
        (Hole(1, "32", "constant", 0),)),
    "compare_8_rax": Template(
        b"\x48\x3d\x00\x00\x00\x00",
        (Hole(2, "signed 32", "constant", 0),)),
    "compare_1_rbx": Template(
        b"\x80\xfb\x00",
        (Hole(2, "8", "constant", 0),)),
    "compare_2_rbx": Template(
        b"\x66\x81\xfb\x00\x00",
        (Hole(3, "16", "constant", 0),)),
    "compare_4_rbx": Template(
        b"\x81\xfb\x00\x00\x00\x00",
        (Hole(2, "32", "constant", 0),)),
    "compare_8_rbx": Template(
        b"\x48\x81\xfb\x00\x00\x00\x00",
        (Hole(3, "signed 32", "constant", 0),)),
    "compare_1_rcx": Template(
        b"\x80\xf9\x00",
        (Hole(2, "8", "constant", 0),)),
    "compare_2_rcx": Template(
        b"\x66\x81\xf9\x00\x00",
        (Hole(3, "16", "constant", 0),)),
    "compare_4_rcx": Template(
        b"\x81\xf9\x00\x00\x00\x00",
        (Hole(2, "32", "constant", 0),)),
    "compare_8_rcx": Template(
        b"\x48\x81\xf9\x00\x00\x00\x00",
        (Hole(3, "signed 32", "constant", 0),)),
    "compare_1_rdx": Template(
        b"\x80\xfa\x00",
        (Hole(2, "8", "constant", 0),)),
    "compare_2_rdx": Template(
        b"\x66\x81\xfa\x00\x00",
        (Hole(3, "16", "constant", 0),)),
    "compare_4_rdx": Template(
        b"\x81\xfa\x00\x00\x00\x00",
        (Hole(2, "32", "constant", 0),)),
    "compare_8_rdx": Template(
        b"\x48\x81\xfa\x00\x00\x00\x00",
        (Hole(3, "signed 32", "constant", 0),)),
    "compare_1_rsi": Template(
        b"\x40\x80\xfe\x00",
        (Hole(3, "8", "constant", 0),)),
    "compare_2_rsi": Template(
        b"\x66\x81\xfe\x00\x00",
        (Hole(3, "16", "constant", 0),)),
    "compare_4_rsi": Template(
        b"\x81\xfe\x00\x00\x00\x00",
        (Hole(2, "32", "constant", 0),)),
    "compare_8_rsi": Template(
        b"\x48\x81\xfe\x00\x00\x00\x00",
        (Hole(3, "signed 32", "constant", 0),)),
    "compare_1_rdi": Template(
        b"\x40\x80\xff\x00",
        (Hole(3, "8", "constant", 0),)),
    "compare_2_rdi": Template(
        b"\x66\x81\xff\x00\x00",
        (Hole(3, "16", "constant", 0),)),
    "compare_4_rdi": Template(
        b"\x81\xff\x00\x00\x00\x00",
        (Hole(2, "32", "constant", 0),)),
    "compare_8_rdi": Template(
        b"\x48\x81\xff\x00\x00\x00\x00",
        (Hole(3, "signed 32", "constant", 0),)),
    "compare_1_rbp": Template(
        b"\x40\x80\xfd\x00",
        (Hole(3, "8", "constant", 0),)),
    "compare_2_rbp": Template(
        b"\x66\x81\xfd\x00\x00",
        (Hole(3, "16", "constant", 0),)),
    "compare_4_rbp": Template(
        b"\x81\xfd\x00\x00\x00\x00",
        (Hole(2, "32", "constant", 0),)),
    "compare_8_rbp": Template(
        b"\x48\x81\xfd\x00\x00\x00\x00",
        (Hole(3, "signed 32", "constant", 0),)),
    "compare_1_rsp": Template(
        b"\x40\x80\xfc\x00",
        (Hole(3, "8", "constant", 0),)),
    "compare_2_rsp": Template(
        b"\x66\x81\xfc\x00\x00",
        (Hole(3, "16", "constant", 0),)),
    "compare_4_rsp": Template(
        b"\x81\xfc\x00\x00\x00\x00",
        (Hole(2, "32", "constant", 0),)),
    "compare_8_rsp": Template(
        b"\x48\x81\xfc\x00\x00\x00\x00",
        (Hole(3, "signed 32", "constant", 0),)),
    "compare_1_r8": Template(
        b"\x41\x80\xf8\x00",
        (Hole(3, "8", "constant", 0),)),
    "compare_2_r8": Template(
        b"\x66\x41\x81\xf8\x00\x00",
        (Hole(4, "16", "constant", 0),)),
    "compare_4_r8": Template(
        b"\x41\x81\xf8\x00\x00\x00\x00",
        (Hole(3, "32", "constant", 0),)),
    "compare_8_r8": Template(
        b"\x49\x81\xf8\x00\x00\x00\x00",
        (Hole(3, "signed 32", "constant", 0),)),
    "compare_1_r9": Template(
        b"\x41\x80\xf9\x00",
        (Hole(3, "8", "constant", 0),)),
    "compare_2_r9": Template(
        b"\x66\x41\x81\xf9\x00\x00",
        (Hole(4, "16", "constant", 0),)),
    "compare_4_r9": Template(
        b"\x41\x81\xf9\x00\x00\x00\x00",
        (Hole(3, "32", "constant", 0),)),
    "compare_8_r9": Template(
        b"\x49\x81\xf9\x00\x00\x00\x00",
        (Hole(3, "signed 32", "constant", 0),)),
    "compare_1_r10": Template(
        b"\x41\x80\xfa\x00",
        (Hole(3, "8", "constant", 0),)),
    "compare_2_r10": Template(
        b"\x66\x41\x81\xfa\x00\x00",
        (Hole(4, "16", "constant", 0),)),
    "compare_4_r10": Template(
        b"\x41\x81\xfa\x00\x00\x00\x00",
        (Hole(3, "32", "constant", 0),)),
    "compare_8_r10": Template(
        b"\x49\x81\xfa\x00\x00\x00\x00",
        (Hole(3, "signed 32", "constant", 0),)),
    "compare_1_r11": Template(
        b"\x41\x80\xfb\x00",
        (Hole(3, "8", "constant", 0),)),
    "compare_2_r11": Template(
        b"\x66\x41\x81\xfb\x00\x00",
        (Hole(4, "16", "constant", 0),)),
    "compare_4_r11": Template(
        b"\x41\x81\xfb\x00\x00\x00\x00",
        (Hole(3, "32", "constant", 0),)),
    "compare_8_r11": Template(
        b"\x49\x81\xfb\x00\x00\x00\x00",
        (Hole(3, "signed 32", "constant", 0),)),
    "compare_1_r12": Template(
        b"\x41\x80\xfc\x00",
        (Hole(3, "8", "constant", 0),)),
    "compare_2_r12": Template(
        b"\x66\x41\x81\xfc\x00\x00",
        (Hole(4, "16", "constant", 0),)),
    "compare_4_r12": Template(
        b"\x41\x81\xfc\x00\x00\x00\x00",
        (Hole(3, "32", "constant", 0),)),
    "compare_8_r12": Template(
        b"\x49\x81\xfc\x00\x00\x00\x00",
        (Hole(3, "signed 32", "constant", 0),)),
    "compare_1_r13": Template(
        b"\x41\x80\xfd\x00",
        (Hole(3, "8", "constant", 0),)),
    "compare_2_r13": Template(
        b"\x66\x41\x81\xfd\x00\x00",
        (Hole(4, "16", "constant", 0),)),
    "compare_4_r13": Template(
        b"\x41\x81\xfd\x00\x00\x00\x00",
        (Hole(3, "32", "constant", 0),)),
    "compare_8_r13": Template(
        b"\x49\x81\xfd\x00\x00\x00\x00",
        (Hole(3, "signed 32", "constant", 0),)),
    "compare_1_r14": Template(
        b"\x41\x80\xfe\x00",
        (Hole(3, "8", "constant", 0),)),
    "compare_2_r14": Template(
        b"\x66\x41\x81\xfe\x00\x00",
        (Hole(4, "16", "constant", 0),)),
    "compare_4_r14": Template(
        b"\x41\x81\xfe\x00\x00\x00\x00",
        (Hole(3, "32", "constant", 0),)),
    "compare_8_r14": Template(
        b"\x49\x81\xfe\x00\x00\x00\x00",
        (Hole(3, "signed 32", "constant", 0),)),
    "compare_1_r15": Template(
        b"\x41\x80\xff\x00",
        (Hole(3, "8", "constant", 0),)),
    "compare_2_r15": Template(
        b"\x66\x41\x81\xff\x00\x00",
        (Hole(4, "16", "constant", 0),)),
    "compare_4_r15": Template(
        b"\x41\x81\xff\x00\x00\x00\x00",
        (Hole(3, "32", "constant", 0),)),
    "compare_8_r15": Template(
        b"\x49\x81\xff\x00\x00\x00\x00",
        (Hole(3, "signed 32", "constant", 0),)),
    "jump_e": Template(
        b"\x0f\x84\x00\x00\x00\x00",
        (Hole(2, "distance", "target", -4),)),
    "jump_ne": Template(
        b"\x0f\x85\x00\x00\x00\x00",
        (Hole(2, "distance", "target", -4),)),
    "jump_l": Template(
        b"\x0f\x8c\x00\x00\x00\x00",
        (Hole(2, "distance", "target", -4),)),
    "jump_le": Template(
        b"\x0f\x8e\x00\x00\x00\x00",
        (Hole(2, "distance", "target", -4),)),
    "jump_g": Template(
        b"\x0f\x8f\x00\x00\x00\x00",
        (Hole(2, "distance", "target", -4),)),
    "jump_ge": Template(
        b"\x0f\x8d\x00\x00\x00\x00",
        (Hole(2, "distance", "target", -4),)),
    "jump_b": Template(
        b"\x0f\x82\x00\x00\x00\x00",
        (Hole(2, "distance", "target", -4),)),
    "jump_be": Template(
        b"\x0f\x86\x00\x00\x00\x00",
        (Hole(2, "distance", "target", -4),)),
    "jump_a": Template(
        b"\x0f\x87\x00\x00\x00\x00",
        (Hole(2, "distance", "target", -4),)),
    "jump_ae": Template(
        b"\x0f\x83\x00\x00\x00\x00",
        (Hole(2, "distance", "target", -4),)),
    "extend_signed_1": Template(
        b"\x48\x0f\xbe\xc0"),
    "extend_signed_2": Template(
        b"\x48\x0f\xbf\xc0"),
    "extend_signed_4": Template(
        b"\x48\x63\xc0"),
    "extend_unsigned_1": Template(
        b"\x0f\xb6\xc0"),
    "extend_unsigned_2": Template(
        b"\x0f\xb7\xc0"),
    "extend_unsigned_4": Template(
        b"\x89\xc0"),
    "compare_constant": Template(
        b"\x48\xb9\x00\x00\x00\x00\x00\x00\x00\x00\x48\x39\xc8",
        (Hole(2, "64", "constant", 0),)),
    "keep_first": Template(
        b"\x48\x89\xc7"),
    "compare_two": Template(
        b"\x48\x39\xc7"),
    "cell": Template(
        b"\x48\xbe\x00\x00\x00\x00\x00\x00\x00\x00",
        (Hole(2, "64", "table", 0),)),
    "key_cell": Template(
        b"\x48\xbe\x00\x00\x00\x00\x00\x00\x00\x00\xe8\x00\x00\x00\x00",
        (Hole(2, "64", "table", 0),
         Hole(11, "distance", "find", -4),)),
    "step_key": Template(
        b"\x48\xb9\x00\x00\x00\x00\x00\x00\x00\x00\xe8\x00\x00\x00\x00",
        (Hole(2, "64", "step", 0),
         Hole(11, "distance", "divide", -4),)),
    "number_key": Template(
        b"\xe8\x00\x00\x00\x00",
        (Hole(1, "distance", "number", -4),)),
    "count_cell": Template(
        b"\xf0\x48\xff\x46\x08"),
    "tally_cell": Template(
        b"\xe8\x00\x00\x00\x00",
        (Hole(1, "distance", "tally", -4),)),
    "class_cell": Template(
        b"\x48\xbf\x00\x00\x00\x00\x00\x00\x00\x00\xe8\x00\x00\x00\x00",
        (Hole(2, "64", "classes", 0),
         Hole(11, "distance", "count_class", -4),)),
    "find_12": Template(
        b"\x48\x8d\x8e\x00\x00\x04\x00\x48\x85\xc0\x74\x56\x48\xba\x15\x7c\x4a\x7f\xb9\x79\x37\x9e\x48\x0f"
        b"\xaf\xd0\x48\xc1\xea\x34\x89\xd1\x81\xe1\xff\x0f\x00\x00\xc1\xe1\x06\x48\x01\xf1\x48\x8b\x39\x48"
        b"\x39\xc7\x74\x2e\x48\x85\xff\x75\x14\x48\x89\xc7\x31\xc0\xf0\x48\x0f\xb1\x39\x74\x1d\x48\x39\xf8"
        b"\x74\x18\x48\x89\xf8\x81\xc2\x01\x00\x01\x00\xf7\xc2\x00\x00\x00\x01\x74\xc3\x48\x8d\x8e\x40\x00"
        b"\x04\x00\x48\x89\xce\xc3"),
    "find_8": Template(
        b"\x48\x8d\x8e\x00\x40\x00\x00\x48\x85\xc0\x74\x56\x48\xba\x15\x7c\x4a\x7f\xb9\x79\x37\x9e\x48\x0f"
        b"\xaf\xd0\x48\xc1\xea\x38\x89\xd1\x81\xe1\xff\x00\x00\x00\xc1\xe1\x06\x48\x01\xf1\x48\x8b\x39\x48"
        b"\x39\xc7\x74\x2e\x48\x85\xff\x75\x14\x48\x89\xc7\x31\xc0\xf0\x48\x0f\xb1\x39\x74\x1d\x48\x39\xf8"
        b"\x74\x18\x48\x89\xf8\x81\xc2\x01\x00\x01\x00\xf7\xc2\x00\x00\x00\x01\x74\xc3\x48\x8d\x8e\x40\x40"
        b"\x00\x00\x48\x89\xce\xc3"),
    "tally_signed": Template(
        b"\x48\x89\xc1\x48\x99\xf0\x48\x01\x46\x10\x48\x83\xd2\x00\x74\x05\xf0\x48\x01\x56\x18\x48\x0f\xba"
        b"\xf9\x3f\x48\x8b\x46\x20\x48\x39\xc8\x73\x08\xf0\x48\x0f\xb1\x4e\x20\x75\xf3\x48\xf7\xd1\x48\x8b"
        b"\x46\x28\x48\x39\xc8\x73\x08\xf0\x48\x0f\xb1\x4e\x28\x75\xf3\xf0\x48\xff\x46\x08\xc3"),
    "tally_unsigned": Template(
        b"\x48\x89\xc1\x31\xd2\xf0\x48\x01\x46\x10\x48\x83\xd2\x00\x74\x05\xf0\x48\x01\x56\x18\x48\x8b\x46"
        b"\x20\x48\x39\xc8\x73\x08\xf0\x48\x0f\xb1\x4e\x20\x75\xf3\x48\xf7\xd1\x48\x8b\x46\x28\x48\x39\xc8"
        b"\x73\x08\xf0\x48\x0f\xb1\x4e\x28\x75\xf3\xf0\x48\xff\x46\x08\xc3"),
    "count_class_signed": Template(
        b"\x48\x89\xc2\x48\x85\xc0\x79\x0a\x48\xf7\xda\x48\x81\xc7\x00\x10\x00\x00\x48\x83\xfa\x08\x72\x0e"
        b"\x48\x0f\xbd\xca\x83\xe9\x03\x48\xd3\xea\x48\x8d\x14\xca\x48\x89\xf1\x48\xc1\xe1\x07\x48\x01\xcf"
        b"\xf0\x48\xff\x04\xd7\xc3"),
    "count_class_unsigned": Template(
        b"\x48\x89\xc2\x48\x83\xfa\x08\x72\x0e\x48\x0f\xbd\xca\x83\xe9\x03\x48\xd3\xea\x48\x8d\x14\xca\x48"
        b"\x89\xf1\x48\xc1\xe1\x07\x48\x01\xcf\xf0\x48\xff\x04\xd7\xc3"),
    "divide_signed": Template(
        b"\x48\x99\x48\xf7\xf9\x48\xc1\xfa\x3f\x48\x01\xd0\xc3"),
    "divide_unsigned": Template(
        b"\x31\xd2\x48\xf7\xf1\xc3"),
    "own_process": Template(
        b"\x89\xf8\xc3"),
    "own_thread": Template(
        b"\x89\xd0\xc3"),
    "call_loop": Template(
        b"\x4c\x89\xe9\xe3\x36\x49\x8b\x04\x24\x49\x8b\x7c\x24\x08\x49\x8b\x74\x24\x10\x49\x8b\x54\x24\x18"
        b"\x4d\x8b\x54\x24\x20\x4d\x8b\x44\x24\x28\x4d\x8b\x4c\x24\x30\x0f\x05\x49\x89\x06\x4d\x8d\x64\x24"
        b"\x38\x4d\x8d\x76\x08\x4d\x8d\x6d\xff\xeb\xc5\x49\xc7\x07\x01\x00\x00\x00\xb8\x00\x00\x00\x00\x89"
        b"\xef\xbe\x02\x00\x00\x00\x0f\x05\xff\xe3",
        (Hole(67, "32", "flock", 0),)),
    "way_back": Template(
        b"\x0f\x05\x8b\x3d\xa8\x00\x00\x00\xb8\x00\x00\x00\x00\x0f\x05\x48\x8d\x35\xa2\x00\x00\x00\xb8\x00"
        b"\x00\x00\x00\xbf\x02\x00\x00\x00\xba\x00\x00\x00\x00\x41\xba\x08\x00\x00\x00\x0f\x05\x48\x8b\x05"
        b"\x8c\x00\x00\x00\x48\x8b\x1d\x8d\x00\x00\x00\x48\x8b\x0d\x8e\x00\x00\x00\x48\x8b\x15\x8f\x00\x00"
        b"\x00\x48\x8b\x35\x90\x00\x00\x00\x48\x8b\x3d\x91\x00\x00\x00\x48\x8b\x2d\x92\x00\x00\x00\x4c\x8b"
        b"\x05\x93\x00\x00\x00\x4c\x8b\x0d\x94\x00\x00\x00\x4c\x8b\x15\x95\x00\x00\x00\x4c\x8b\x1d\x96\x00"
        b"\x00\x00\x4c\x8b\x25\x97\x00\x00\x00\x4c\x8b\x2d\x98\x00\x00\x00\x4c\x8b\x35\x99\x00\x00\x00\x4c"
        b"\x8b\x3d\x9a\x00\x00\x00\xff\x25\x9c\x00\x00\x00\xcc\xcc\xcc\xcc\x00\x00\x00\x00\x00\x00\x00\x00"
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        b"\x00\x00\x00\x00\x00\x00\x00\x00",
        (Hole(9, "32", "close", 0),
         Hole(23, "32", "rt_sigprocmask", 0),),
        {"begins": 2, "code_ends": 156, "name": 160, "file": 176, "mask": 184, "values": 192}),
    "ticks": Template(
        b"\x0f\x31\x48\xc1\xe2\x20\x48\x09\xd0\xc3"),
    "skip": Template(
        b"\x48\x89\xf0\xf0\x48\x0f\xb1\x17\x75\x03\x48\x89\x11\x0f\x94\xc0\x0f\xb6\xc0\xc3"),
}
