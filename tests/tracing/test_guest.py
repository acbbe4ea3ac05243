"""The engines on other machines, as these have them: Debian's kernel in qemu; what is checked is in `guest`."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
# program -> options, and the objects or sources that it is made of
SCENES = {
    "scene": ("-pie", "scene.o"), "scene-exe": ("-no-pie", "scene.o"), "scene-static": ("-static", "scene.o"),
    "stress": ("-pie", "stress.o"), "naps": ("-pie", "naps.o"), "exclusive": ("-pie", "exclusive.o"),
}  # fmt: skip
PATCHED = {"stress", "naps"}  # only where the patch engine is, like all of CALLS
CALLS = {
    "calls-lazy": ("-fPIE", "-pie", "-Wl,-z,lazy"), "calls-now": ("-fno-pie", "-no-pie", "-Wl,-z,now"),
    "calls-no-plt": ("-fPIE", "-pie", "-fno-plt"),
}  # fmt: skip
# Libraries; aarch64's are on guarded pages (BTI), which nothing may be in that was compiled without, like the C
# library's start files.
LIBRARY = ("-O2", "-shared", "-fPIC", "-Wl,-z,lazy", "-nostartfiles")
GUARDED = ("-mbranch-protection=standard", "-mno-outline-atomics", "-Wl,-z,force-bti")
MAIN = "int calls(int, char **);\nint main(int count, char **words) { return calls(count, words); }\n"


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory, run: Any, need: Callable[[str], str]) -> Callable[..., list[Path]]:
    """Return what builds all that a guest traces, with what it needs beside that."""

    @functools.cache
    def built(machine: str) -> list[Path]:
        cc = need(f"{machine}-linux-gnu-gcc")
        library = (*LIBRARY, *(GUARDED if machine == "aarch64" else ()))
        folder = tmp_path_factory.mktemp(machine)
        for path in (HERE / "sources").iterdir():
            shutil.copy(path, folder)
        module = sys.executable, "-m", "usdtbuild"
        for name in ("scene", "stress"):
            run(*module, "header", "--formats=dof", f"{name}.d", "-o", f"{name}.h", cwd=folder)
        scenes = SCENES if machine == "aarch64" else {name: SCENES[name] for name in SCENES if name not in PATCHED}
        for name in {options[-1].removesuffix(".o") for options in scenes.values()}:
            run(*module, "cc", "--", cc, "-O2", "-fPIC", "-c", f"{name}.c", cwd=folder)
        for name, options in scenes.items():
            run(cc, *options, "-pthread", "-o", name, cwd=folder)
        if scenes != SCENES:
            return [HERE / "toggle.py", *(folder / name for name in scenes)]
        source = HERE.parent / "calls" / "stress.c"
        run(cc, *library, "-DLIBRARY", "-fpatchable-function-entry=1", source, "-o", "libwork.so", cwd=folder)
        beside = ("libwork.so", "-Wl,-rpath,$ORIGIN", "-pthread")
        for name, compiled in CALLS.items():
            run(cc, "-O2", *compiled, source, *beside, "-o", name, cwd=folder)
        run(cc, *library, "-Dmain=calls", source, *beside, "-o", "libcalls.so", cwd=folder)
        (folder / "main.c").write_text(MAIN)
        run(cc, "-fPIE", "-pie", "main.c", "./libcalls.so", *beside, "-o", "calls-protected", cwd=folder)
        made = (*SCENES, *CALLS, "calls-protected", "libcalls.so", "libwork.so")
        return [HERE / "toggle.py", *(folder / name for name in made)]

    return built


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "cpu", "checks"),
    [("aarch64", "max,pauth-impdef=on", 12), ("aarch64", "cortex-a57", 12), ("riscv64", "rv64", 5)],
)
def test_everything_that_the_engines_do(build: Callable[..., list[Path]], machine: str, cpu: str, checks: int) -> None:
    """On aarch64 with and without atomic instructions, guarded pages and pointer authentication."""
    programs = build(machine)
    tool: list[str | Path] = [sys.executable, ROOT / "tools" / "guest.py", "--machine", machine, "--cpu", cpu]
    words = [*tool, "--timeout", "1500", ROOT / ".cache" / machine, HERE / "guest.py", *programs]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode == 77:  # as the tool says what it hasn't got
        pytest.skip(done.stderr.strip().splitlines()[-1])
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "FAILED" not in done.stdout
    assert len(re.findall("^ok ", done.stdout, re.MULTILINE)) == checks, done.stdout
