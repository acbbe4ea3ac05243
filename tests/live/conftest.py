"""The traced program of the live tests, in every shape a program comes in, each built once.

A `Tracee` knows which file holds the probes and which command runs them. All are made through the public commands
`usdtbuild header` and `usdtbuild cc`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

HERE = Path(__file__).resolve().parent
ROUNDS = 3


class Tracee(NamedTuple):
    """A built program: the file with the probes, the command that fires them, and its folder."""

    binary: Path
    command: tuple[str, ...]
    folder: Path


SHAPES = ("exe", "pie", "static", "static-pie", "shared", "dlopen", "stripped")
Build = Callable[..., Tracee]


@pytest.fixture(scope="session")
def build_tracee(tmp_path_factory: pytest.TempPathFactory, run: Any) -> Build:
    """Build the traced program: `build_tracee("pie", "gcc", "-O2", linker="lld", cc_options=("--nop=nop5",))`."""
    made: dict[tuple[Any, ...], Tracee] = {}

    def build(
        shape: str,
        compiler: str = "gcc",
        *flags: str,
        linker: str = "bfd",
        cc_options: tuple[str, ...] = (),
        link_flags: tuple[str, ...] = (),
    ) -> Tracee:
        key = (shape, compiler, flags, linker, cc_options, link_flags)
        if key not in made:
            folder = tmp_path_factory.mktemp("tracee")
            made[key] = _build(run, folder, shape, compiler, flags or ("-O2",), linker, cc_options, link_flags)
        return made[key]

    return build


def _build(
    run: Any,
    folder: Path,
    shape: str,
    compiler: str,
    flags: tuple[str, ...],
    linker: str,
    cc_options: tuple[str, ...],
    link_flags: tuple[str, ...],
) -> Tracee:
    for name in ("live.d", "tracee.c", "host_linked.c", "host_dlopen.c"):
        shutil.copy(HERE / name, folder)
    module = sys.executable, "-m", "usdtbuild"
    run(*module, "header", "--formats=dof", "live.d", "-o", "live.h", cwd=folder)
    library = shape in ("shared", "dlopen")
    position = {"exe": "-fno-pie", "static": "-fno-pie"}.get(shape, "-fPIC" if library else "-fPIE")
    define = ("-DMODULE",) if library else ()
    compile_ = (compiler, *flags, position, *define, "-Wall", "-Wextra", "-Werror", "-c", "tracee.c", "-o", "tracee.o")
    run(*module, "cc", *cc_options, "--", *compile_, cwd=folder)
    link = (compiler, f"-fuse-ld={linker}", "-Wl,--build-id=sha1", *link_flags)
    if library:
        run(*link, "-shared", "tracee.o", "-o", "liblive.so", cwd=folder)
        if shape == "shared":
            run(compiler, "host_linked.c", "./liblive.so", "-o", "host", cwd=folder)
            command: tuple[str, ...] = (str(folder / "host"),)
        else:
            run(compiler, "host_dlopen.c", "-ldl", "-o", "host", cwd=folder)
            command = (str(folder / "host"), str(folder / "liblive.so"))
        return Tracee(folder / "liblive.so", command, folder)
    form = {"exe": "-no-pie", "static": "-static", "static-pie": "-static-pie"}.get(shape, "-pie")
    run(*link, form, "tracee.o", "-o", "tracee", cwd=folder)
    if shape == "stripped":
        run("strip", "-s", "tracee", cwd=folder)
    return Tracee(folder / "tracee", (str(folder / "tracee"),), folder)
