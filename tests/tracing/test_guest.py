"""The engines on aarch64, as a machine of its own has them: Debian's kernel in qemu; what is checked is in `guest`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CC = "aarch64-linux-gnu-gcc"
# program -> options, and the objects or sources that it is made of
SCENES = {
    "scene": ("-pie", "scene.o"), "scene-exe": ("-no-pie", "scene.o"), "scene-static": ("-static", "scene.o"),
    "stress": ("-pie", "stress.o"), "naps": ("-pie", "naps.o"), "exclusive": ("-pie", "exclusive.o"),
}  # fmt: skip
CALLS = {
    "calls-lazy": ("-fPIE", "-pie", "-Wl,-z,lazy"), "calls-now": ("-fno-pie", "-no-pie", "-Wl,-z,now"),
    "calls-no-plt": ("-fPIE", "-pie", "-fno-plt"),
}  # fmt: skip
# Libraries on guarded pages (BTI), which nothing may be in that was compiled without, like the C library's start files.
GUARDED = (
    "-O2", "-shared", "-fPIC", "-mbranch-protection=standard", "-mno-outline-atomics", "-Wl,-z,force-bti",
    "-Wl,-z,lazy", "-nostartfiles",
)  # fmt: skip
MAIN = "int calls(int, char **);\nint main(int count, char **words) { return calls(count, words); }\n"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory, run: Any, need: Callable[[str], str]) -> list[Path]:
    """Build what the guest traces, and what it needs beside that."""
    need(CC)
    folder = tmp_path_factory.mktemp("guest")
    for path in (HERE / "sources").iterdir():
        shutil.copy(path, folder)
    module = sys.executable, "-m", "usdtbuild"
    for name in ("scene", "stress"):
        run(*module, "header", "--formats=dof", f"{name}.d", "-o", f"{name}.h", cwd=folder)
    for name in ("scene", "stress", "naps", "exclusive"):
        run(*module, "cc", "--", CC, "-O2", "-fPIC", "-c", f"{name}.c", cwd=folder)
    for name, options in SCENES.items():
        run(CC, *options, "-pthread", "-o", name, cwd=folder)
    source = HERE.parent / "calls" / "stress.c"
    run(CC, *GUARDED, "-DLIBRARY", "-fpatchable-function-entry=1", source, "-o", "libwork.so", cwd=folder)
    beside = ("libwork.so", "-Wl,-rpath,$ORIGIN", "-pthread")
    for name, compiled in CALLS.items():
        run(CC, "-O2", *compiled, source, *beside, "-o", name, cwd=folder)
    run(CC, *GUARDED, "-Dmain=calls", source, *beside, "-o", "libcalls.so", cwd=folder)
    (folder / "main.c").write_text(MAIN)
    run(CC, "-fPIE", "-pie", "main.c", "./libcalls.so", *beside, "-o", "calls-protected", cwd=folder)
    made = (*SCENES, *CALLS, "calls-protected", "libcalls.so", "libwork.so")
    return [HERE / "toggle.py", *(folder / name for name in made)]


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["max,pauth-impdef=on", "cortex-a57"])
def test_everything_that_the_engines_do_on_aarch64(programs: list[Path], cpu: str) -> None:
    """With and without atomic instructions, guarded pages and pointer authentication."""
    tool: list[str | Path] = [sys.executable, ROOT / "tools" / "aarch64.py", "--cpu", cpu, "--timeout", "1500"]
    words = [*tool, ROOT / ".cache" / "aarch64", HERE / "guest.py", *programs]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode == 77:  # as the tool says what it hasn't got
        pytest.skip(done.stderr.strip().splitlines()[-1])
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "FAILED" not in done.stdout
    assert done.stdout.count("\nok ") + done.stdout.startswith("ok ") >= 8, done.stdout
