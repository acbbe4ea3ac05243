"""What an extension module needs before setuptools builds it: its headers, its settings, and options of the compiler.

It works on setuptools' extension object, for as long as that is built (`setuptools_ext` puts back what it had), and
writes into the build's temporary folder only what has changed, because dates of files decide what is compiled.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import __version__
from .options import BY_HEADER, FORMATS
from .setuptools_options import ExtensionOptions, OptionsError

LIVE = Path(__file__).absolute().parent / "runtime" / "live"
LAUNCHER = str(Path(__file__).absolute().parent / "launcher.py")
SETTINGS = "settings"  # the file that is new where an option has changed
# What of an extension is other while it is built.
CHANGED = ("include_dirs", "depends", "extra_compile_args", "extra_objects", "sources")
COMPILERS = ("compiler_so", "compiler_so_cxx")  # what compiler objects have; the second since setuptools 72
_CXX = (".cc", ".cpp", ".cxx", ".c++", ".C", ".CPP", ".mm")


def prepare(
    extension: Any,
    options: ExtensionOptions,
    folder: Path,
    launcher: list[str],
    compiler: Any,
    warn: Callable[[str], object],
) -> list[str]:
    """Write the headers and the settings, on which the extension then depends: not on the provider files.

    `launcher` are the options of ours that its objects are compiled with, `compiler` is setuptools' compiler object.
    Return the options that the compiler now gets from us. Raises UsdtError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    headers = _headers(extension.name, options, folder)
    flags = _patchable_flags(extension, options, folder, compiler, warn) if options.patchable else []
    if options.committed and options.disabled:
        flags.append("-DUSDT_DISABLE")
    if options.live and not options.processed:
        flags.append("-DUSDT_LIVE")
    if options.processed and {"dof", "usdt"}.intersection(options.formats):
        flags.append("-DUSDT_ENABLED_BY_CALL")  # DTrace increments no semaphore, and can answer this
    # All options, so that none is forgotten whose effect is not in the command line, such as `live`.
    _write_changed(folder / SETTINGS, f"usdtbuild {__version__}\n{shlex.join([*launcher, *flags])}\n{options}\n")

    folders = [str(path) for path in dict.fromkeys(header.parent for header in headers)]
    extension.include_dirs = [*folders, *(extension.include_dirs or []), *[str(LIVE)] * options.live]
    extension.depends = [*(extension.depends or []), *map(str, headers), str(folder / SETTINGS)]
    extension.extra_compile_args = [*(extension.extra_compile_args or []), *flags]
    return flags


def _headers(name: str, options: ExtensionOptions, folder: Path) -> list[Path]:
    """Return the headers of an extension: those beside the provider files, or made in `folder`. Raises UsdtError."""
    from .provider.generate import HeaderRequest, generate

    if options.committed:
        headers = [Path(path).with_suffix(".h") for path in options.providers]
        for header, path in zip(headers, options.providers):
            if not header.is_file():
                made = f"usdtbuild header {path} -o {header}"
                raise OptionsError(f"extension {name}: there is no header {header}; make it, and commit it: {made}")
        return headers
    headers = [folder / f"{Path(path).stem}.h" for path in options.providers]
    for old in folder.glob("*.h"):
        if old not in headers:
            old.unlink()
    formats = FORMATS if options.processed else BY_HEADER
    for header, path in zip(headers, options.providers):
        generate(HeaderRequest(path, str(header), none=options.disabled, formats=formats))
    return headers


def forget(extension: Any, folder: Path) -> None:
    """Have an extension that asks for nothing compiled anew, if it asked for something when it was built before."""
    if (folder / SETTINGS).exists():
        _write_changed(folder / SETTINGS, "nothing\n")
        extension.depends = [*(extension.depends or []), str(folder / SETTINGS)]


def compile_live(extension: Any, folder: Path, flags: list[str], compiler: Any, debug: Any, force: Any) -> None:
    """Compile the live runtime for an extension that is prepared, without `flags`: its entries are not to be patched.

    Else whoever switches on all functions would switch on those that do it. What setuptools compiles for an extension
    has the same options in each file, so these files become objects before, in `folder`; anew where they are older
    than their sources or the settings.
    """
    sources = [str(path) for path in sorted(LIVE.glob("*.c"))]
    objects = compiler.object_filenames(sources, output_dir=str(folder))
    newest = max(map(_date, [*map(str, LIVE.glob("*.[ch]")), str(folder / SETTINGS)]))
    if force or min(map(_date, objects)) < newest:
        options = [word for word in extension.extra_compile_args if word not in flags]
        compiler.compile(sources, output_dir=str(folder), macros=_macros(extension), debug=debug,
                         include_dirs=extension.include_dirs, extra_postargs=options)  # fmt: skip
    extension.depends = [*extension.depends, *objects]
    extension.extra_objects = [*(extension.extra_objects or []), *objects]


def _macros(extension: Any) -> list[tuple[str, ...]]:
    return [*(extension.define_macros or []), *((name,) for name in extension.undef_macros or [])]


def _patchable_flags(
    extension: Any, options: ExtensionOptions, folder: Path, compiler: Any, warn: Callable[[str], object]
) -> list[str]:
    """Return the compiler's options for patchable entries, which it has shown to get right. Raises UsdtError.

    Asked again only when the compiler or its options have changed: a probe is compiled and run.
    """
    from .compilers import compiler_position

    pair = options.patchable if options.patchable != "auto" else ""
    flags: list[str] = []
    for language in _languages(extension):
        attribute = COMPILERS[1] if language == "c++" and hasattr(compiler, COMPILERS[1]) else COMPILERS[0]
        words = [str(word) for word in getattr(compiler, attribute, None) or []]
        if words[3:4] == [LAUNCHER]:
            words = words[words.index("--") + 1 :]
        if not words:
            raise OptionsError(f"extension {extension.name}: patchable-function-entry needs GCC or Clang")
        end = compiler_position(words) + 1
        others = [*words[end:], *(extension.extra_compile_args or [])]
        answer = folder / f"patchable-{language}"
        flags += _asked_once(answer, pair, words[:end], others, language, options.table, warn)
    return list(dict.fromkeys(flags))


def _asked_once(
    answer: Path,
    pair: str,
    compiler: list[str],
    others: list[str],
    language: str,
    table: str,
    warn: Callable[[str], object],
) -> list[str]:
    program = shutil.which(compiler[-1]) or ""
    question = [__version__, pair, table, *compiler, *others, program, str(_date(program))]
    with contextlib.suppress(OSError, ValueError, KeyError):
        known = json.loads(answer.read_text(encoding="utf-8"))
        if known["question"] == question:
            return list(known["flags"])
    from .compilers.flags import choose, parse_pair

    numbers = parse_pair(pair, "patchable-function-entry") if pair else None
    choice = choose(numbers, shlex.join(compiler), others, language, table=table)
    for warning in choice.warnings:
        said = warning.replace("--patchable-table=relative", 'patchable-table = "relative"')
        warn(f"patchable-function-entry: {said}")
    answer.write_text(json.dumps({"question": question, "flags": choice.flags}), encoding="utf-8")
    return list(choice.flags)


def _languages(extension: Any) -> list[str]:
    """Return the languages that an extension's sources are compiled as; Cython's sources become its own."""
    cython = "c++" if (extension.language or "").lower() in ("c++", "cpp") else "c"
    found = set()
    for source in map(str, extension.sources):
        suffix = Path(source).suffix
        found.add("c++" if suffix in _CXX else cython if suffix in (".pyx", ".py", ".i") else "c")
    return sorted(found)


def _write_changed(path: Path, text: str) -> None:
    """Write a file unless it has this text: its date decides what is compiled."""
    content = text.encode()
    if path.exists() and path.read_bytes() == content:
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


def _date(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0
