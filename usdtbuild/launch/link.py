"""Compiling and linking in one go: complete the objects at the one moment when they exist, before the linker runs.

`cc main.c util.o -o app` compiles main.c to a temporary object and hands that to the linker. Taking the command line
apart into compile steps and a link step changes what the user sees: warnings about options that the one or the other
doesn't use, and the names of dependency files, coverage notes, split debug information and saved temporary files,
which differ between compilers and their versions. So the compiler runs once, as it was called, with one more option
in front: `-B` with the folder `linker_hook`, in which compilers find `ld`, `ld.gold` and so on. What they find there
comes back here, completes the objects that this compiler run has made, and becomes the linker the compiler would have
found.

The two halves are different processes; the second learns the launcher's arguments from its environment.
"""

from __future__ import annotations

import posix
import sys
import time

from ..compilers import CompilerLine, Source, compiler_position, expand_response_files, understand
from .settings import Settings, read_options
from .step import BITCODE, NOT_EXECUTABLE, NOT_FOUND, Signals, beginning, execute, find_program, may_have_probes, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HOOK = "linker_hook"  # the folder beside launcher.py
PYTHON = b"USDTBUILD_LINK_PYTHON"
LAUNCHER = b"USDTBUILD_LINK_LAUNCHER"
PART = b"USDTBUILD_LINK_"  # + 0, 1, ...: the rest, in parts as long as an environment string may be
_KNOWN_COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "gfortran")
_LINKER_PATHS = ("--ld-path", "-fuse-ld")  # Clang's options for a linker given by its path
_CLOCK_SKEW = 60  # seconds that a file server's clock may be behind
_PART_LENGTH = 30_000  # characters of up to 4 bytes; Linux allows 128 KiB


# --- before the compiler -------------------------------------------------------------------------------------------


def compile_and_link(settings: Settings, line: CompilerLine, program: str, arguments: list[str]) -> int:
    """Become the compiler, with our linker in front of its own; return an exit code only if that fails."""
    folder = hook_folder()
    if not _looks_for_linkers_there(words_to_compiler(settings.words), folder):
        return execute(program, settings.words, posix.environ)
    if not posix.access(f"{folder}/ld", posix.X_OK):
        say(f"usdtbuild cc: {folder}/ld can't be run; install usdtbuild where programs may be run, with its modes")
        return NOT_EXECUTABLE
    real, words = _take_linker_path(line, settings.words, folder)
    at = len(words_to_compiler(words))
    environment = dict(posix.environ)
    environment[PYTHON] = sys.executable.encode("utf-8", "surrogateescape")
    environment[LAUNCHER] = f"{folder[: -len(HOOK)]}launcher.py".encode("utf-8", "surrogateescape")
    packed = pack([real, str(int(time.time())), *arguments])
    for number in range(0, len(packed), _PART_LENGTH):
        part = packed[number : number + _PART_LENGTH]
        environment[PART + b"%d" % (number // _PART_LENGTH)] = part.encode("utf-8", "surrogateescape")
    return execute(program, [*words[:at], f"-B{folder}", *words[at:]], environment)


def words_to_compiler(words: list[str]) -> list[str]:
    """Return the beginning of a command line, up to and with the compiler itself."""
    return words[: compiler_position(words) + 1]


def _looks_for_linkers_there(compiler: list[str], folder: str) -> bool:
    """Tell whether `-B` makes this compiler look for its linker in a folder.

    GCC and Clang are known by their names, with a prefix and a version around it. Others are asked, because to some
    (tcc, nvcc) `-B` means something else; what they link in one go has no probes, and if it needs some, the linker
    says that they are undefined.
    """
    parts = compiler[-1][compiler[-1].rfind("/") + 1 :].split("-")
    while len(parts) > 1 and parts[-1].replace(".", "").isdigit():
        parts.pop()
    if parts[-1] in _KNOWN_COMPILERS:
        return True
    return _ask([*compiler, f"-B{folder}", "-print-prog-name=ld"]) == f"{folder}/ld"


def hook_folder() -> str:
    """Return the folder with the programs that stand in for linkers."""
    room = __file__[: __file__.rfind("/")]
    return f"{room[: room.rfind('/')]}/{HOOK}"


def _take_linker_path(line: CompilerLine, words: list[str], folder: str) -> tuple[str, list[str]]:
    """Return the linker that Clang is told to use by its path, which `-B` doesn't change, and the line without it."""
    for word in line.words:
        option, _, path = word.partition("=")
        if option in _LINKER_PATHS and (option != "-fuse-ld" or "/" in path):
            name = path[path.rfind("/") + 1 :]
            ours = f"{folder}/{name if find_program(f'{folder}/{name}') else 'ld'}"
            return find_program(path) or path, [f"{option}={ours}" if w == word else w for w in line.words]
    return "", words


def pack(items: list[str]) -> str:
    """Return the strings as one that can stand in the environment: each behind its length."""
    return "".join(f"{len(item)}:{item}" for item in items)


def unpack(text: str) -> list[str]:
    """Return what `pack` was given. Raises ValueError for what it has not made."""
    items = []
    while text:
        digits, colon, text = text.partition(":")
        if not (digits.isascii() and digits.isdigit() and colon) or int(digits) > len(text):
            raise ValueError(text)
        items.append(text[: int(digits)])
        text = text[int(digits) :]
    return items


# --- in the linker's place -----------------------------------------------------------------------------------------


def link(name: str, arguments: list[str]) -> int:
    """Complete the objects among a linker's `arguments`, and become the linker that was called by `name`."""
    environment = dict(posix.environ)
    del environment[PYTHON], environment[LAUNCHER]
    packed = ""
    while part := environment.pop(PART + b"%d" % (len(packed) // _PART_LENGTH), b""):
        packed += part.decode("utf-8", "surrogateescape")
    try:
        real, started, *own = unpack(packed)
        since = int(started) - _CLOCK_SKEW
        settings = read_options(own)
    except ValueError:
        say(f"usdtbuild cc: {PART.decode()}0 is not what usdtbuild cc has put there for the linker; unset it")
        return NOT_EXECUTABLE
    line = understand(settings.words)
    signals = Signals()
    if not _complete_objects(settings, line, signals, _made_objects(line, arguments, since)):
        return 1
    signals.die()
    linker = real or _real_linker(name, settings)
    program = find_program(linker)
    if not program:
        say(f"usdtbuild cc: linker {linker}: not found")
        return NOT_FOUND
    return execute(program, [program, *arguments], environment)


def _complete_objects(settings: Settings, line: CompilerLine, signals: Signals, objects: list[str]) -> bool:
    """Complete each object that the compiler made for this link; return whether all went well."""
    by_order: list[Source | None] = [*line.sources] if len(objects) == len(line.sources) else [None] * len(objects)
    program = find_program(settings.words[0])
    good = True
    for path, source in zip(objects, by_order):
        if settings.relative_table or may_have_probes(path):
            from .complete import complete

            good = complete(settings, line, program, signals, path, path, source) and good
    return good


def _made_objects(line: CompilerLine, arguments: list[str], since: int) -> list[str]:
    """Return the objects in a linker's arguments that this run of the compiler made, in their order.

    Objects that the user names were completed when they were compiled. What is left besides the compiler's temporary
    objects are the system's start files (crt1.o, ...), which are older than `since`, in seconds of the epoch.
    """
    named = set(line.words)
    made = []
    previous = ""
    for word in expand_response_files(arguments):
        ours = word[:1] != "-" and previous != "-o" and word not in named and word not in made
        if ours and _is_object(word, since):
            made.append(word)
        previous = word
    return made


def _is_object(path: str, since: int) -> bool:
    try:
        modified = posix.stat(path).st_mtime
    except (OSError, ValueError):
        return False
    start = beginning(path, 18)
    relocatable = start[:4] == b"\x7fELF" and start[16:18] in (b"\1\0", b"\0\1")  # e_type, in either byte order
    return modified >= since and (relocatable or start[:4] in BITCODE)


def _real_linker(ours: str, settings: Settings) -> str:
    """Return the linker that the compiler finds without our `-B`: it is asked for it, with all its options.

    `ours` is the stand-in's path, which GCC finds all the same: it hands `-B` on in the environment (COMPILER_PATH).
    """
    folder, name = ours[: ours.rfind("/")], ours[ours.rfind("/") + 1 :]
    answer = _ask([*settings.words, f"-print-prog-name={name}"])
    if answer[: answer.rfind("/")] == folder:
        answer = name
    if "/" in answer:
        return answer
    # A bare name: GCC's own search continues along PATH, for a cross compiler with its prefix first.
    compiler = words_to_compiler(settings.words)[-1]
    prefix = compiler[compiler.rfind("/") + 1 :].rpartition("-")[0]
    if prefix and find_program(f"{prefix}-{name}"):
        return f"{prefix}-{name}"
    return answer or name


def _ask(words: list[str]) -> str:
    """Run a command that prints a word; return that, or ''.

    `compilers.ask` needs `subprocess`, whose import takes as long as the answer, and this stands before every link.
    """
    read_end, write_end = posix.pipe()
    actions: list[tuple[Any, ...]] = [
        (posix.POSIX_SPAWN_DUP2, write_end, 1),
        (posix.POSIX_SPAWN_OPEN, 0, "/dev/null", posix.O_RDONLY, 0),
        (posix.POSIX_SPAWN_OPEN, 2, "/dev/null", posix.O_WRONLY, 0),
    ]
    try:
        child = posix.posix_spawn(find_program(words[0]), words, posix.environ, file_actions=actions)
    except OSError:
        return ""
    finally:
        posix.close(write_end)
    answer = b""
    while piece := posix.read(read_end, 4096):
        answer += piece
    posix.close(read_end)
    posix.waitpid(child, 0)
    return answer.decode("utf-8", "surrogateescape").strip()
