"""What `verify` calls an error really fires no probe, and what it finds nothing wrong with does: real tracers decide.

The program passes a site a hundred times if its semaphore isn't 0; each tracer is there before it starts.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.elf.image import Image
from usdtbuild.tracing.others.watching import version
from usdtbuild.verify import verify

ROUNDS = 100
GUARDED = """
 .text
 .globl main
 .type main,@function
main:
 mov $100,%ecx
1: mov sem(%rip),%ax
 test %ax,%ax
 je 2f
 mov %ecx,%edi
.Lguarded: {nop}
2: dec %ecx
 jnz 1b
 xor %eax,%eax
 ret
 .size main,.-main
"""
NOP = "nop"
NOP10 = "cs nopw 0(%rax,%rax)"
PROBES = '.section .probes,"aw",@progbits'

# name: semaphore's section, alignment, the site's code, linker, its flags, the error that is found
CASES: dict[str, tuple[str, int, str, str, tuple[str, ...], str]] = {
    "sound": (PROBES, 2, NOP, "bfd", (), ""),
    "five bytes": (PROBES, 2, "nopl 0(%rax,%rax)", "bfd", (), ""),
    "gold": (PROBES, 2, NOP, "gold", (), ""),
    "not PIE": (PROBES, 2, NOP, "bfd", ("-no-pie",), ""),
    "ten bytes": (PROBES, 2, NOP10, "bfd", (), "site-refused"),
    "odd": (PROBES + "\n .byte 0", 1, NOP, "bfd", (), "semaphore-alignment"),
    "in .bss": ('.section .probes,"aw",@nobits', 2, NOP, "bfd", (), "semaphore-unbacked"),
    "in .data": (".data", 2, NOP, "bfd", (), "semaphore-section"),
    "lld": (PROBES, 2, NOP, "lld", (), "semaphore-page"),
    "mold": (PROBES, 2, NOP, "mold", (), "semaphore-page"),
    "lld, aligned": (PROBES, 4096, NOP, "lld", (), ""),
    "mold, aligned": (PROBES, 4096, NOP, "mold", (), ""),
    "lld, segments apart": (PROBES, 2, NOP, "lld", ("-Wl,-z,separate-loadable-segments",), ""),
}

FOUND_BY_SEGMENT = {"in .bss", "in .data"}  # which bpftrace 0.27 does; 0.23, bcc and perf ask for the section


@pytest.fixture
def guarded(program: Any, note: Any) -> Any:
    """Build the program; the ordinary `main` gets out of the way."""

    def build(section: str, align: int, nop: str, linker: str, flags: tuple[str, ...], **more: Any) -> Path:
        code = GUARDED.format(nop=nop).replace("main", "guarded_main")
        data = f"\n {section}\n .balign {align}\nsem: {'.skip 2' if 'nobits' in section else '.2byte 0'}\n"
        entry = "\n .text\n jmp guarded_main\n"
        record = note(site=".Lguarded", semaphore="sem", **more)
        return program(code, data, record, entry, linker=linker, flags=flags, sites=("jmp guarded_main",))

    return build


def errors(path: Path) -> set[str]:
    report = verify(Image(path.read_bytes(), str(path)))
    return {finding.check for finding in report.findings if finding.severity == "error"}


@pytest.mark.live
@pytest.mark.parametrize("case", CASES)
def test_bpftrace_agrees(case: str, guarded: Any, bpftrace: str, run: Any, need: Any) -> None:
    *how, error = CASES[case]
    need(f"ld.{how[3]}")
    path = guarded(*how)
    assert errors(path) == ({error} if error else set())
    shown = run(bpftrace, "-e", f"usdt:{path}:pv:p0 {{ @hits = count() }}", "-c", path, code=None).stdout
    hits = re.search(r"@hits: (\d+)", shown)
    fires = not error or (case in FOUND_BY_SEGMENT and version() >= (0, 24))
    assert (int(hits[1]) if hits else 0) == (ROUNDS if fires else 0)


@pytest.mark.live
@pytest.mark.parametrize(("linker", "flags"), [
    ("bfd", ()), ("bfd", ("-no-pie",)), ("gold", ()), ("lld", ()), ("mold", ()),
    ("lld", ("-Wl,-z,separate-loadable-segments",)), ("mold", ("-Wl,-z,separate-loadable-segments",)),
])  # fmt: skip
def test_perf_agrees(linker: str, flags: tuple[str, ...], guarded: Any, perf: str, perf_probes: Any, run: Any) -> None:
    provider = perf_probes.provider()
    path = guarded(PROBES, 4096, NOP, linker, ("-Wl,--build-id=sha1", *flags), provider=provider, probe=f"{provider}p")
    report = verify(Image(path.read_bytes(), str(path)))
    lost = "perf-offset" in {finding.check for finding in report.findings}
    assert lost == (linker in ("lld", "mold") and not flags)
    assert perf_probes.add(path, f"{provider}p"), perf_probes.said
    shown = run(perf, "stat", "-x,", "-e", f"sdt_{provider}:{provider}p", path, code=None).stderr
    assert int(shown.splitlines()[-1].split(",")[0]) == (0 if lost else ROUNDS)


@pytest.mark.live("gdb")
@pytest.mark.parametrize("base", [True, False])
def test_gdb_agrees(base: bool, program: Any, note: Any, gdb: str, run: Any) -> None:
    path = program(note()) if base else program(note(base="0"), base="")
    assert errors(path) == (set() if base else {"base-missing"})
    assert ("pv" in run(gdb, "-nx", "-batch", "-ex", "info probes stap", path).stdout.split()) == base


@pytest.mark.live
@pytest.mark.parametrize(
    ("case", "check"), [("alike", "duplicate-site"), ("dash", "name"), ("void", "foreign-note"), ("short", "build-id")]
)
def test_perf_shows_no_probe_of_such_a_file(case: str, check: str, program: Any, note: Any, perf_probes: Any) -> None:
    for works in (True, False):
        provider = perf_probes.provider()
        good, bad = note(provider=provider, probe=f"{provider}good", site=".Lsite1"), ""
        if case == "alike":  # perf minds if the last record of the file is like an earlier one
            bad = note(provider=provider, probe=f"{provider}good", site=".Lsite1")
        elif case == "dash":
            bad = note(provider=provider, probe=f"{provider}with-dash")
        elif case == "void":
            bad = note(provider=provider, probe=f"{provider}void", kind=2)
        flags = ("-Wl,--build-id=0x0123456789abcdef",) if case == "short" and not works else ()
        path = program("" if works else bad, good, sites=("nop", "nop"), flags=flags)
        found = {finding.check for finding in verify(Image(path.read_bytes(), "it")).findings}
        assert (check in found) != works
        assert bool(perf_probes.add(path, f"{provider}good")) == works, perf_probes.said
