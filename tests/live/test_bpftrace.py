"""bpftrace sees every hit, with the right values, in every shape of program."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from typing import IO, Any

import pytest

from .conftest import ROUNDS, SHAPES, Tracee

pytestmark = pytest.mark.live

TICK = re.compile(r"tick (\d+)")

# bpftrace 0.17 knows arg0 to arg5 on x86-64; what lies on the stack is read through the stack pointer, at the offset
# that the note names: 0 at a call, 8 at a tail call.
SCRIPT = """
usdt:{binary}:live:ints {{ printf("ints %d %d %d %d %d %ld %ld %ld\\n", arg0, arg1, arg2, arg3, arg4, arg5,
    *(int64 *)reg("sp"), *(int64 *)(reg("sp") + 8)); }}
usdt:{binary}:live:text {{ printf("text %s\\n", str(arg0)); }}
usdt:{binary}:live:twelve {{ printf("twelve %d %d %d %ld %d\\n", arg0, arg5, *(int8 *)reg("sp"),
    *(int64 *)(reg("sp") + 24), *(int32 *)(reg("sp") + 40)); }}
usdt:{binary}:live:tail__call {{ printf("tail %d %d %s\\n", arg5, *(int32 *)(reg("sp") + {tail}),
    str(*(uint64 *)(reg("sp") + {tail} + 8))); }}
usdt:{binary}:live:guarded {{ printf("guarded %d\\n", arg0); }}
usdt:{binary}:live:real {{ printf("real %lx %x %d\\n", arg0, arg1, arg2); }}
"""


def trace(bpftrace: str, tracee: Tracee, script: str, tail: int = 8) -> list[str]:
    """Attach to the file first, then run the program; return the lines that bpftrace and the program printed.

    bpftrace prints nothing before all is in place, so that the first tick says so. Ticks that came before wait in line:
    each carries its time (CLOCK_MONOTONIC, in ns).
    (`bpftrace -c` would look for semaphores in the new process, where libraries are not loaded yet.)
    """
    text = script.format(binary=tracee.binary, tail=tail) + 'interval:ms:50 { printf("tick %llu\\n", nsecs); }'
    command = [bpftrace, "-B", "none", "-e", text]
    tracer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert tracer.stdout is not None
        lines = wait_for_tick(tracer.stdout, 0)
        program = subprocess.run(
            tracee.command, capture_output=True, text=True, timeout=60, check=False, cwd=tracee.folder
        )
        assert program.returncode == 0, program.stderr
        # bpftrace drops what it hasn't printed yet when it is interrupted.
        lines += wait_for_tick(tracer.stdout, time.monotonic_ns() + 100_000_000)
        tracer.send_signal(signal.SIGINT)
        rest, errors = tracer.communicate(timeout=60)
        assert tracer.returncode == 0, errors
    finally:
        if tracer.poll() is None:
            tracer.kill()
            tracer.communicate()
    return lines + [line for line in rest.splitlines() if not TICK.fullmatch(line)] + program.stdout.splitlines()


def wait_for_tick(output: IO[str], moment: int) -> list[str]:
    """Read lines until the interval has fired after a moment (CLOCK_MONOTONIC, in ns); return the others."""
    lines = []
    for line in output:
        tick = TICK.fullmatch(line.rstrip("\n"))
        if tick and int(tick[1]) > moment:
            break
        if not tick:
            lines.append(line.rstrip("\n"))
    return lines


def check_all_values(lines: list[str]) -> None:
    """Compare what bpftrace printed with what tracee.c passed."""
    for i in range(ROUNDS):
        assert f"ints {-1 - i} {255 - i} -300 65535 -70000 4000000000 -5000000000 -1" in lines
        bits = 0x3FF8000000000000 if i == 0 else (0x4004000000000000 if i == 1 else 0x400C000000000000)
        assert f"real {bits:x} be800000 {int(i != 1)}" in lines
        assert f"guarded {i}" in lines
    assert lines.count("text Hello, probe") == ROUNDS
    assert lines.count("twelve 1 -6 -7 -1099511627776 -12") == ROUNDS
    assert lines.count("tail 6 -7 From a tail call") == ROUNDS
    for kind in ("ints", "text", "twelve", "tail", "real"):
        assert sum(line.startswith(kind + " ") for line in lines) == ROUNDS, (kind, lines)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_value_arrives_in_every_shape_of_program(bpftrace: str, build_tracee: Any, shape: str) -> None:
    tracee = build_tracee(shape)
    lines = trace(bpftrace, tracee, SCRIPT)
    check_all_values(lines)
    assert any(line.startswith(f"guarded {ROUNDS}, at") for line in lines)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("level", ["-O0", "-Os"])
def test_every_value_arrives_at_every_optimisation_level(
    bpftrace: str, build_tracee: Any, compiler: str, level: str
) -> None:
    # Without optimisation there are no tail calls, so that argument 7 is where it is at any call.
    tail = 0 if level == "-O0" else 8
    check_all_values(trace(bpftrace, build_tracee("pie", compiler, level), SCRIPT, tail))


@pytest.mark.parametrize("shape", ["exe", "pie", "shared"])
def test_values_of_probes_that_are_calls(bpftrace: str, build_tracee: Any, shape: str) -> None:
    check_all_values(trace(bpftrace, build_tracee(shape, "gcc", "-O2", "-DUSDT_PROBES_BY_CALL"), SCRIPT))


@pytest.mark.parametrize("linker", ["bfd", "gold", "lld", "mold"])
@pytest.mark.parametrize("shape", ["exe", "pie", "shared"])
def test_semaphore_fires_when_the_tracer_starts_first(
    bpftrace: str, build_tracee: Any, linker: str, shape: str
) -> None:
    tracee = build_tracee(shape, linker=linker)
    lines = trace(bpftrace, tracee, 'usdt:{binary}:live:guarded {{ printf("guarded %d\\n", arg0); }}')
    assert [line for line in lines if re.fullmatch(r"guarded \d", line)] == [f"guarded {i}" for i in range(ROUNDS)]


def test_guarded_sites_are_skipped_without_a_tracer(build_tracee: Any, run: Any) -> None:
    assert run(*build_tracee("pie").command).stdout.startswith("guarded 0, at")


def test_guarded_sites_are_skipped_when_another_probe_is_traced(bpftrace: str, build_tracee: Any) -> None:
    lines = trace(bpftrace, build_tracee("pie"), "usdt:{binary}:live:ints {{ @ = count(); }}")
    assert any(line.startswith("guarded 0, at") for line in lines)
    assert f"@: {ROUNDS}" in lines


@pytest.mark.parametrize("nop", ["nop5", "classic"])
def test_every_nop_style_fires(bpftrace: str, build_tracee: Any, nop: str) -> None:
    check_all_values(trace(bpftrace, build_tracee("pie", cc_options=(f"--nop={nop}",)), SCRIPT))


def test_bpftrace_lists_the_probes(bpftrace: str, build_tracee: Any, run: Any) -> None:
    tracee = build_tracee("pie")
    listed = run(bpftrace, "-l", f"usdt:{tracee.binary}:*").stdout.split()
    wanted = {"ints", "text", "twelve", "tail__call", "guarded", "real"}
    assert {line.rsplit(":", 1)[1] for line in listed} == wanted
