"""Names of mapped files that break lines or claim to be deleted, and files that turn into FIFOs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.started import Started
from usdtbuild.inspection.process import mapped_files, maps_lines
from usdtbuild.tracing.maps import areas
from usdtbuild.tracing.running import status_field

BREAKS = ["\x0b", "\x0c", "\x1c", "\x1d", "\x85", "\u2028", "\r", "\n", "\t", "  "]


@pytest.mark.parametrize("character", BREAKS)
def test_only_newlines_end_lines_of_maps(
    character: str, folder: Path, forged: Any, attacker: Any, command: Any
) -> None:
    forgery = f"a{character}7f0000000000-7f0000001000 r-xp 00000000 08:01 1 {character}b"
    program = folder / forgery
    shutil.copy(forged(b"tick"), program)
    process = attacker(program)
    pid = int(process.stdout.readline())
    own = [file for file in mapped_files(pid) if file.path.startswith(str(folder))]
    assert [file.path for file in own] == [str(program)]
    assert all(area.start != 0x7F0000000000 for area in areas(pid))
    said = command("list", str(pid))
    assert "victim:tick" in said.out, said


def test_a_name_that_ends_like_a_deleted_file_s_is_no_deleted_file(folder: Path, forged: Any, attacker: Any) -> None:
    program = folder / "program (deleted)"
    shutil.copy(forged(b"tick"), program)
    pid = int(attacker(program).stdout.readline())
    [own] = [file for file in mapped_files(pid) if file.path.startswith(str(folder))]
    assert (own.path, own.deleted) == (str(program), False)
    program.unlink()
    [own] = [file for file in mapped_files(pid) if file.path.startswith(str(folder))]
    assert (own.path, own.deleted) == (str(program), True)


def test_a_thread_s_name_does_not_forge_its_status() -> None:
    script = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'a\\x0bState:\\tZ', 0, 0, 0); print(1, flush=True); input()"
    )
    with Started(sys.executable, "-c", script) as process:
        process.line()
        assert status_field(process.pid, "State")[0] in "SRD"


def test_lines_are_read_as_the_kernel_writes_them() -> None:
    [one] = maps_lines(b"55d0-55d1 r-xp 0000a000 fd:01 123456                     /tmp/a\\012b  c \n")
    assert one == (0x55D0, 0x55D1, "r-xp", "/tmp/a\nb  c ", 0xA000, 123456, os.makedev(0xFD, 1))
    [one] = maps_lines(b"7ffc0000-7ffc1000 rw-p 00000000 00:00 0 \n")
    assert (one.name, one.inode) == ("", 0)


@pytest.mark.parametrize("words", [("list",), ("functions",), ("trace", "--count", "--duration", "0.2", "-p")])
def test_a_file_that_turns_into_a_fifo_holds_nobody_up(
    words: tuple[str, ...], folder: Path, built: Any, forged: Any, attacker: Any, run: Any, tmp_path: Path
) -> None:
    """Without CAP_SYS_ADMIN files are opened by name, not through map_files."""
    forged(b"tick")
    run("gcc", "-O2", "-Wall", "-Werror", Path(__file__).parent / "fifo_swapper.c", "-o", "swapper", cwd=tmp_path)
    pid = attacker(tmp_path / "swapper", folder / "swapped", tmp_path / "forged").stdout.readline().strip()
    limited = ["setpriv", "--bounding-set=-sys_admin,-checkpoint_restore", "--inh-caps=-sys_admin,-checkpoint_restore"]
    for _ in range(6):
        before = time.monotonic()
        done = subprocess.run(
            [*limited, sys.executable, "-m", "usdtbuild", *words, pid],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        assert time.monotonic() - before < 20
