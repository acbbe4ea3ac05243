"""The classic tool's command line: `usdtbuild-dtrace`, and the `dtrace` that `usdtbuild install-dtrace` makes.

It takes what builds pass to the tools of this name on illumos, FreeBSD, macOS and Linux, in any order and joined or
separate; what means nothing here (libtool's compiler options, `-x nolibs`, `-Z`) is passed over. It makes headers (-h)
and objects (-G) and traces nothing. The header is `provider.complete`'s business, the object `classic.object`'s.

No option parser of a library: none takes `-h` and `-DPIC` and `-m32` and `-xnolibs` as these builds mean them, and
importing one would cost more than the work.
"""

# Importing pathlib would cost more than parsing.
# ruff: noqa: PTH113, PTH119

from __future__ import annotations

import os
import sys

from ._version import __version__
from .errors import InputError, UsageError, UsdtError
from .files import write_whole
from .record import NamedTuple
from .text import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Provider
    from .provider.parser import Diagnostic

_USAGE = """\
usage: dtrace -h [-C] [-I dir] [-D name[=value]] [-U name] -s file.d ... [-o file.h]
       dtrace -G [-C] [-I dir] [-D name[=value]] [-U name] -s file.d ... [-o file.o] [object ...]
       dtrace -V | --help
"""
_HELP = f"""{_USAGE}
Make what a program with static probes needs from its provider file.

  -h            write a header; default: file.h in the working directory
  -G            write an object to link with the program; default: file.o in the working directory
  -s FILE       the provider file, repeatable; /dev/stdin works
  -o FILE       what to write
  -C            run the C preprocessor on the file first (environment: CPP, CC, CPPFLAGS, CFLAGS)
  -I, -D, -U    for the preprocessor
  -32, -64, -m32, -m64
                with -G: what the object is for; default: what the given objects are for, else what $CC makes
  --in-place    with -G: instrument the given objects themselves, so that calls become NOPs
  --strict      with -G: objects without any site of a provider are an error, not a warning
  -V            print the version
Accepted and without effect: -x OPTION, -Z, -k, -v, -q, -w, --types, --no-pyparsing, compiler options (-f..., -g, -O2).
Exit codes: 0 success; 1 the input is wrong; 2 the command line is wrong.
"""
_WITH_VALUE = {"s", "o", "I", "D", "U", "x"}
_MODES = {"h", "G"}
_SILENT = {"-Z", "-k", "-v", "-q", "-w", "-g", "-c", "--types", "--no-pyparsing", "-fPIC", "-fpic"}
_COMPILERS_OPTIONS = ("-f", "-O", "-W", "-std=", "-march=", "-mcpu=", "-mtune=")
_TRACING = {"-n", "-p", "-P", "-l", "-m", "-i", "-a", "-A", "-b", "-e", "-F", "-H", "-L", "-S"}
_MODELS = {"-32": 32, "-m32": 32, "-64": 64, "-m64": 64}


class DtraceRun(NamedTuple):
    """What a command line asks for; `mode` is "h", "G", "V" or "help", `bits` 0 where it says nothing of them."""

    mode: str
    sources: tuple[str, ...] = ()
    output: str = ""
    objects: tuple[str, ...] = ()
    preprocess: bool = False
    definitions: tuple[str, ...] = ()
    bits: int = 0
    in_place: bool = False
    strict: bool = False


def main(arguments: list[str] | None = None) -> int:
    """Run the classic tool with these arguments (default: the process's own); return the exit code."""
    if arguments is not None:
        return _run(arguments)
    from . import ending

    return ending.run_and_leave(lambda: _run(sys.argv[1:]), "dtrace")


def _run(arguments: list[str]) -> int:
    from .provider.parser import ParseError

    try:
        run(read(arguments))
    except ParseError as error:
        sys.stderr.write(shown(f"{error}\n"))
        return error.exit_code
    except UsdtError as error:
        sys.stderr.write(shown(f"dtrace: {error}\n{_USAGE if isinstance(error, UsageError) else ''}"))
        return error.exit_code
    return 0


# --- the command line -------------------------------------------------------------------------------------------


def read(arguments: list[str]) -> DtraceRun:
    """Return what a command line asks for. Raises UsageError."""
    values: dict[str, list[str]] = {"s": [], "o": [], "x": []}
    definitions: list[str] = []
    objects: list[str] = []
    flags: set[str] = set()
    mode, bits = "", 0
    words = iter(arguments)
    for word in words:
        if word == "--":
            objects += words
        elif not word.startswith("-") or word == "-":
            objects.append(word)
        elif word in _MODELS:
            bits = _agreed(bits, _MODELS[word])
        elif word in ("-V", "--version", "--help"):
            return DtraceRun("help" if word == "--help" else "V")
        elif word in ("--in-place", "--strict"):
            flags.add(word)
        elif word in _SILENT or word.startswith(_COMPILERS_OPTIONS):  # libtool passes on what the compiler gets
            continue
        else:
            mode = _letters(word, words, mode, flags, values, definitions)
    if len(values["o"]) > 1:
        raise UsageError(f"-o is given {len(values['o'])} times; one file is written")
    return _checked(
        DtraceRun(
            mode, tuple(values["s"]), "".join(values["o"]), tuple(objects), "-C" in flags, tuple(definitions), bits,
            "--in-place" in flags, "--strict" in flags,
        )
    )  # fmt: skip


def _letters(
    word: str, words: Iterator[str], mode: str, flags: set[str], values: dict[str, list[str]], definitions: list[str]
) -> str:
    """Read one word of option letters (`-Chs`, `-sapp.d`, `-D NAME`), its value in it or in the next word.

    Return the mode. Raises UsageError.
    """
    for position, letter in enumerate(word[1:], 2):
        if letter in _MODES:
            if mode not in ("", letter):
                sys.stderr.write(shown(f"dtrace: warning: both -h and -G are given; the last, -{letter}, counts\n"))
            mode = letter
        elif letter == "C":
            flags.add("-C")
        elif letter in _WITH_VALUE:
            value = word[position:] or next(words, "")
            if not value:
                raise UsageError(f"option -{letter} needs a value")
            if letter in values:
                values[letter].append(value)
            else:
                definitions.append(f"-{letter}{value}")
            break
        elif f"-{letter}" not in _SILENT:
            _refuse(word, letter)
    return mode


def _refuse(word: str, letter: str) -> None:
    if f"-{letter}" in _TRACING and not word.startswith("--"):
        raise UsageError(f"option {word} is for tracing; this dtrace makes headers (-h) and objects (-G) only")
    raise UsageError(f"unknown option {word}")


def _agreed(bits: int, wanted: int) -> int:
    if bits not in (0, wanted):
        raise UsageError("-32 and -64 contradict each other")
    return wanted


def _checked(request: DtraceRun) -> DtraceRun:
    if not request.mode:
        raise UsageError("give -h to make a header or -G to make an object; this dtrace does nothing else")
    if not request.sources:
        raise UsageError(f"-{request.mode} needs a provider file: -s FILE")
    if request.mode == "h" and request.objects:
        raise UsageError(f"{request.objects[0]}: -h takes no objects; the provider file is given with -s")
    if request.in_place and not (request.mode == "G" and request.objects):
        raise UsageError("--in-place is for -G with objects")
    request = request._replace(output=request.output or _default_output(request.sources[0], request.mode))
    written = os.path.realpath(request.output)
    for path in (*request.sources, *request.objects):
        if os.path.realpath(path) == written and os.path.isfile(written):
            raise UsageError(f"{path} is both read and written (-o)")
    return request


# --- the work ---------------------------------------------------------------------------------------------------


def run(request: DtraceRun) -> None:
    """Do what is asked. Raises UsdtError."""
    if request.mode == "help":
        sys.stdout.write(_HELP)
    elif request.mode == "V":
        sys.stdout.write(f"dtrace: usdtbuild {__version__}\n")
    elif request.mode == "h":
        from .provider import complete

        write_whole(request.output, complete.write(_providers(request), os.path.basename(request.output)).encode())
    else:
        from .classic.object import ClassicRun, make
        from .outputs import Outputs

        providers = _providers(request)
        wanted = ClassicRun(providers, request.objects, request.bits, request.in_place, request.strict)
        with Outputs() as outputs:  # with --in-place the objects change as well
            write_whole(outputs.stage(request.output), make(wanted, outputs, _warn))


def _warn(message: str) -> None:
    sys.stderr.write(shown(f"dtrace: warning: {message}\n"))


def _show(warning: Diagnostic) -> None:
    sys.stderr.write(shown(f"{warning}\n"))


def _default_output(source: str, mode: str) -> str:
    """Return `app.h` or `app.o` for `some/where/app.d`: in the working directory."""
    return os.path.basename(source).removesuffix(".d") + {"h": ".h", "G": ".o"}[mode]


def _providers(request: DtraceRun) -> tuple[Provider, ...]:
    """Return the providers of all files, each once. Raises UsdtError, also where two files differ about one."""
    from .provider.describe import digest
    from .provider.parser import parse_bytes

    found: dict[str, tuple[Provider, str]] = {}
    for source in request.sources:
        for provider in parse_bytes(_text(source, request), source, _show):
            same = found.setdefault(provider.name, (provider, source))
            if digest(same[0]) != digest(provider):
                raise InputError(source, f"provider {provider.name} differs from the one in {same[1]}")
    return tuple(provider for provider, _ in found.values())


def _text(source: str, request: DtraceRun) -> bytes:
    """Return a provider file's text. Raises UsdtError."""
    from .provider.parser import read_file

    content = None
    if not request.preprocess or not os.path.isfile(source):
        content = read_file("/dev/stdin" if source == "-" else source)
        if not request.preprocess:
            return content
    from .compilers.preprocess import preprocess

    return preprocess(source, request.definitions, content=content)


if __name__ == "__main__":
    sys.exit(main())
