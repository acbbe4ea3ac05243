"""The native door of the launcher, built: a small C program that stands before the compiler in Python's place.

Configure steps call `build` once; the program lies in the build folder, under a name that has the tool's version and a
digest of all that is in it, so that another version, another interpreter or another place of this package never meets
an old one. Where there is no compiler for the machine that builds, or its programs can't be run there, there is no
native door, and the Python door does all, as it can anyway.

The program's tables come from `compilers`, `compile`, `step`, `assemble` and `link`, so that each is said once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from .. import __version__, compilers
from ..compilers.environment import COMPILERS
from ..errors import InputError, UsdtError
from ..files import who_may_change, write_whole
from ..options import FORMATS, SYSTEMS
from . import assemble as assembler_step
from . import compile as compile_step
from . import link as link_step
from . import step

if TYPE_CHECKING:
    from collections.abc import Iterable

SOURCES = Path(__file__).resolve().parent.parent / "runtime/launcher"
LAUNCHER = Path(__file__).resolve().parent.parent / "launcher.py"
# What names compilers for the machine that builds; CC may well be one for another machine.
_VARIABLES = ("CC_FOR_BUILD", "BUILD_CC", "HOSTCC")
_TIMEOUT = 60  # seconds
# Tried before the others: GNU libc asks the processor about its caches whenever a program starts, with some hundred
# CPUID instructions, each of which leaves a virtual machine: 0.2 of the 0.55 ms of CPU that a step through it takes.
_QUICK_TO_START = "musl-gcc"
# A program that is linked statically starts in half the time; not every system has the C library for it.
# The second way is hardened as distributions do it; a static program has no table of functions to protect.
_HARDENED = ["-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]
_WAYS = (
    ["-O2", *_HARDENED, "-static"],
    ["-O2", *_HARDENED, "-fPIE", "-pie", "-Wl,-z,relro,-z,now"],
    ["-O2"],
)
ONE_LINE = "--one-line"
_LINKERS = ".linkers"  # behind the program's name: the folder in which linkers' names lead to it


def print_door(arguments: list[str]) -> int:
    """Carry out `usdtbuild cc --native DIR`: print the launcher's words for a build; return the exit code.

    They are the native door, or, where there can be none, Python and the launcher's file: one a line, or with
    `--one-line` as Make and shells take them.
    """
    one_line = ONE_LINE in arguments
    arguments = [word for word in arguments if word not in ("--native", ONE_LINE)]
    if len(arguments) != 1:
        print(
            "usdtbuild cc: --native takes the folder for the program, and nothing else but --one-line", file=sys.stderr
        )
        return compile_step.USAGE
    try:
        door = build(Path(arguments[0]))
    except UsdtError as error:
        print(f"usdtbuild cc: {error}", file=sys.stderr)
        return 1
    if not door:
        print("usdtbuild cc: no native launcher can be made here; Python does its work", file=sys.stderr)
    words = [str(door)] if door else [sys.executable, "-I", "-S", str(LAUNCHER)]
    for line in [shlex.join(words)] if one_line else words:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    return 0


def build(folder: Path, python: str = sys.executable, launcher: Path = LAUNCHER) -> Path | None:
    """Return the native door below `folder`, made if it isn't there yet; None where there can be none.

    Raises OutputError if the folder can't be written.
    """
    if os.environ.get("USDTBUILD_NATIVE") == "0":
        return None
    tables = _tables(python, str(launcher))
    texts = [path.read_bytes() for path in sorted(SOURCES.iterdir())]
    digest = hashlib.sha256(tables.encode("utf-8", "surrogateescape") + b"".join(texts)).hexdigest()[:12]
    door = folder.absolute() / f"usdtbuild-cc-{__version__}-{digest}"
    if _works(door):
        return door
    with TemporaryDirectory(prefix="usdtbuild-") as name:
        made = Path(name, "usdtbuild-cc")
        Path(name, "tables.h").write_bytes(tables.encode("utf-8", "surrogateescape"))
        if not any(_compile(compiler, way, made) for compiler in _compilers() for way in _WAYS):
            return None
        _make_linkers(door)
        write_whole(str(door), made.read_bytes(), 0o777)
    return door if _works(door) else None


def _make_linkers(door: Path) -> None:
    """Make the folder in which compilers find the program in their linkers' places. Raises InputError."""
    folder = door.with_name(door.name + _LINKERS)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in link_step.linkers():
            with contextlib.suppress(FileExistsError):
                (folder / name).symlink_to(f"../{door.name}")
    except OSError as error:
        raise InputError(str(folder), f"can't be made: {error.strerror}") from None


def _compilers() -> list[str]:
    named = [os.environ[name] for name in _VARIABLES if os.environ.get(name)]
    return [path for path in map(shutil.which, [*named, _QUICK_TO_START, *COMPILERS]) if path]


def _compile(compiler: str, options: list[str], target: Path) -> bool:
    words = [compiler, "-std=gnu11", "-w", *options, f"-I{target.parent}", "-o", str(target)]
    words += map(str, sorted(SOURCES.glob("*.c")))
    return _run(words) == 0 and _works(target)


def _works(door: Path) -> bool:
    """Tell whether the program is there, nobody else may have put it there, and it can be run.

    A build folder may be mounted `noexec`, or belong to somebody else.
    """
    try:
        if door.is_symlink() or who_may_change(os.path.realpath(door)):
            return False
    except OSError:
        return False
    return os.access(door, os.X_OK) and _run([str(door), "--native-door"]) == 0


def _run(words: list[str]) -> int:
    """Run a command for its exit code alone."""
    try:
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT, check=False
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return -1


# --- what the C program and the Python modules share ------------------------------------------------------------------


def _tables(python: str, launcher: str) -> str:
    signals = ", ".join(str(int(number)) for number in step.STEP_SIGNALS)
    tables: dict[str, Iterable[str | bytes]] = {
        "caches": sorted(compilers.CACHES),
        "compilers": compilers.COMPILERS,
        "takes_value": sorted(compilers.TAKES_VALUE),
        "no_object": sorted(compilers.NO_OBJECT),
        "no_object_prefixes": compilers.NO_OBJECT_PREFIXES,
        "to_preprocessor": compilers.TO_PREPROCESSOR,
        "source_suffixes": sorted(compilers.SOURCE_SUFFIXES),
        "not_plain": compilers.NOT_PLAIN,
        "own_options": compile_step.NATIVE_OPTIONS,
        "formats": sorted(FORMATS),
        "systems": sorted(SYSTEMS),
        "semaphore_company": step.SEMAPHORE_COMPANY,
        "assembler_passes": sorted(assembler_step.PASSES),
        "bitcode": step.BITCODE,
        "link_compilers": sorted(link_step.KNOWN_COMPILERS),
        "linker_paths": link_step.LINKER_PATHS,
    }
    lines = [
        "/* Written by native.py from compilers, compile.py, assemble.py and link.py. */",
        f"#define PYTHON {_quoted(python)}",
        f"#define LAUNCHER {_quoted(launcher)}",
        f"#define HELD {_quoted(step.HELD)}",
        f"#define LINKERS {_quoted(_LINKERS)}",
        f"#define LINK_PYTHON {_quoted(link_step.PYTHON)}",
        f"#define LINK_LAUNCHER {_quoted(link_step.LAUNCHER)}",
        f"#define LINK_PART {_quoted(link_step.PART)}",
        f"#define LINK_PART_LENGTH {link_step.PART_LENGTH}",
        f"#define LINK_CLOCK_SKEW {link_step.CLOCK_SKEW}",
        f"#define STUB_NAME {_quoted(step.STUB_NAME.decode())}",
        f"#define SEMAPHORE_NAME {_quoted(step.SEMAPHORE_NAME.decode())}",
        f"#define STEP_SIGNALS {signals}",
        *(_table(name, words) for name, words in tables.items()),
    ]
    return "\n".join(lines) + "\n"


def _table(name: str, words: Iterable[str | bytes]) -> str:
    return f"static const char *const {name}[] = {{{', '.join(map(_quoted, words))}}};"


def _quoted(text: str | bytes) -> str:
    """Return a C string; bytes that are no plain ASCII in octal, three digits each, which nothing can run into."""
    data = os.fsencode(text)
    plain = (chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in data)
    return '"' + "".join(plain) + '"'
