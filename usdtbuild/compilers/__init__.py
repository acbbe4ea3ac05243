"""What a compiler's command line will write: the objects, or a linked program, or nothing for us.

This reads command lines of GCC, Clang and the compilers that imitate them, and needs to know only what decides which
object files appear under which names: the action, the inputs, the language switches, `-o`, and which options take
the next word as their value. It runs no compiler, and it doesn't judge: a line that the compiler will refuse may be
read as anything, because then no object is written.

This is the room's face, and the other modules know more: `driver_plan` what Clang says that it would do, `ask` which
one `$CC` and `$CPP` name and how it is asked, `preprocess` what becomes of a provider file in it,
`flags` its option for patchable entries, `probe` whether that works. It is on the launcher's path, once per compile
step, where every module counts; so it is the package itself, imports nothing but `posix`, and has no typed tuples.
"""

from __future__ import annotations

import posix

# What a command line asks for.
PASS = "pass"  # writes no object: -E, -S, -M, --version, a link of finished objects, a precompiled header, ...
COMPILE = "compile"  # writes one object per source (-c)
LINK = "link"  # compiles sources and links them in one go


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Options whose value is the next word, in GCC 12's and Clang 14's own reckoning (a test asks the installed compilers
# for theirs). An option missing here only matters if its value looks like a source file.
_TAKES_VALUE = _set(
    """
    -A -B -D -F -G -Hd -Hf -I -J -L -MF -MJ -MQ -MT -R -T -Tbss -Tdata -Ttext -U -V -arch -aux-info -b -ccbin
    -arcmt-migrate-report-output -ccc-arcmt-migrate -ccc-gcc-name -ccc-install-dir -ccc-objcmt-migrate -copyext
    -cxx-isystem -dependency-dot -dependency-file -dialect -dsym-dir -dumpbase -dumpbase-ext -dumpdir -e
    -fcobol-exceptions -fdebug-compilation-dir -fdefaultbyte -filelist -findicator-column -fintrinsic-modules-path
    -fmodules-map -fmodules-map-file -fmodules-user-build-path -fnew-alignment -framework -ftrapv-handler
    -fxray-instruction-threshold -gcc-toolchain -gen-cdb-fragment-path -gnatO -h -idirafter -iframework
    -iframeworkwithsysroot -imacros -imultiarch -imultilib -include -include-pch -iprefix -iquote -isysroot -isystem
    -isystem-after -ivfsoverlay -iwithprefix -iwithprefixbefore -iwithsysroot -l -meabi -mllvm
    -module-dependency-dir -mmlir -mthread-model -o -object-file-name -preprocess -resource-dir -rpath
    -serialize-diagnostics -specs -stdlib++-isystem -target -u -undefined -working-directory -wrapper -x -z --output-pch
    -Xanalyzer -Xassembler -Xclang -Xclangas -Xcuda-fatbinary -Xcuda-ptxas -Xf -Xflang -Xlinker -Xoffload-linker
    -Xopenmp-target -Xpreprocessor -Xthinlto
    --analyzer-output --assert --config --define-macro --dump --dumpbase --dumpbase-ext --dumpdir --dyld-prefix --entry
    --for-assembler --for-linker --force-link --imacros --include --include-directory --include-directory-after
    --include-prefix --include-with-prefix --include-with-prefix-after --include-with-prefix-before --language
    --library-directory --output --output-pch= --param --prefix --serialize-diagnostics --specs --sysroot
    --undefine-macro
    """
)

# Options that stop the compiler before an object, or make it write something else in its place.
_NO_OBJECT = _set(
    """
    -### -E -M -MM -S -analyze -cc1 -cc1as -dumpfullversion -dumpmachine -dumpspecs -dumpversion -emit-ast
    -emit-interface-stubs -emit-llvm -emit-merged-ifs -extract-api -fdriver-only -fsyntax-only -module-file-info
    -rewrite-legacy-objc -rewrite-objc -verify-pch
    --analyze --assemble --dependencies --help --precompile --preprocess --target-help --user-dependencies --version
    """
)
# Clang's options that begin like -o with its value; anything else, -objx.o too, is an output.
_NOT_OUTPUT = (
    "-object-file-name", "-objcmt-allow", "-objcmt-atomic-", "-objcmt-migrate-", "-objcmt-ns-", "-objcmt-returns-",
    "-objcmt-white",
)  # fmt: skip
_TO_PREPROCESSOR = ("-Wp,-MD,", "-Wp,-MMD,")  # and the file for the dependencies
_NO_OBJECT_PREFIXES = ("-print-", "--print-", "--help=")

# File suffixes that the drivers compile or assemble. Headers and unknown suffixes are not among them: the first give
# a precompiled header, the second are handed to the linker.
_SOURCE_SUFFIXES = _set(
    """
    c i ii cc cp cxx cpp CPP c++ C cppm ccm cxxm c++m ixx pcm m mi mm M mii s S sx ll bc cu cui hip hipi cl clcpp
    f for ftn F FOR FTN fpp FPP f90 f95 f03 f08 F90 F95 F03 F08 adb ads d go
    """
)

# Programs that stand before the compiler on the command line and run it: compiler caches and distributors, which take
# no options there, and those that do (`cmake -E env NAME=VALUE gcc`), with the options of theirs that take a value.
CACHES = _set("ccache sccache distcc icecc buildcache gomacc")
# How the names of compilers end, once a version is taken off: gcc, x86_64-linux-gnu-g++-12, clang-14, mpicc, icpx.
_COMPILERS = ("cc", "cxx", "CC", "++", "clang", "icx", "icpx", "gfortran", "flang")
_RUNNERS = {"env": ("-u", "-C"), "nice": ("-n",), "time": ("-f", "-o"), "cmake": ()}
# Words that are behind the compiler, whatever stands in front of it.
_NOT_FOR_WRAPPERS = ("-", "-c", "-o", "-x", "-E", "-S", "-M", "-MM", "-###")


class Source:
    """A file that the compiler turns into an object."""

    __slots__ = ("language", "object", "path", "position")

    def __init__(self, position: int, path: str, language: str, object_path: str) -> None:
        """Remember the word's `position` in the expanded line, its `-x` language ("" for none), and its object."""
        self.position, self.path, self.language, self.object = position, path, language, object_path


class CompilerLine:
    """One command line, understood."""

    __slots__ = ("action", "configured", "folder", "inputs", "output", "sources", "words")

    def __init__(self, words: list[str]) -> None:
        self.words = words  # with response files expanded
        self.action = PASS
        self.inputs: list[tuple[int, str]] = []  # every input with its position, sources or not
        self.sources: list[Source] = []
        self.output = ""  # the value of the last -o; "" if there is none
        self.folder = ""  # what Clang takes for the working directory
        self.configured = False  # there is a --config, a file with more of Clang's options


def understand(words: list[str]) -> CompilerLine:
    """Return what `words` (COMPILER ARGS) will do. Never fails."""
    line = CompilerLine(expand_response_files(words))
    if _is_ourselves(words):
        return line
    compiling, stopped, architectures = _read_options(line)
    if stopped or architectures > 1 or not line.sources:
        return line
    line.action = COMPILE if compiling else LINK
    if compiling:
        for source in line.sources:
            source.object = _in_folder(line.folder, line.output or _default_object(source.path))
    return line


def _in_folder(folder: str, path: str) -> str:
    return f"{folder}/{path}" if folder and path[:1] not in ("/", "-") else path


def _is_ourselves(words: list[str]) -> bool:
    """Tell whether the compiler is `usdtbuild cc` again, which will do all that there is to do."""
    name = words[0][words[0].rfind("/") + 1 :]
    return name == "usdtbuild" or any(word.endswith("/usdtbuild/launcher.py") for word in words[1:5])


def _read_options(line: CompilerLine) -> tuple[bool, bool, int]:
    """Fill the line's inputs and output; return (-c was there, no object will be written, number of -arch)."""
    words = line.words
    compiling = stopped = False
    architectures = 0
    language = ""
    only_inputs = False
    position, count = compiler_position(words) + 1, len(words)
    while position < count:
        word = words[position]
        if only_inputs or word[:1] != "-" or word == "-":
            _add_input(line, position, language)
        elif takes_value(word):
            position += 1
            value = words[position] if position < count else ""
            if word in ("-x", "--language"):
                language = "" if value == "none" else value
            elif word == "-arch":
                architectures += 1
            else:
                _read_other(line, word, value)
        elif word in ("-c", "--compile"):
            compiling = True
        elif word.startswith("-o") and word != "-object" and not word.startswith(_NOT_OUTPUT):
            line.output = word[2:]
        elif word.startswith(("-x", "--language=")):
            value = word[2:] if word[1] == "x" else word[11:]
            language = "" if value == "none" else value
        elif word == "--":  # Clang's
            only_inputs = True
        elif word in _NO_OBJECT or word.startswith(_NO_OBJECT_PREFIXES):
            stopped = True
        else:
            option, _, value = word.partition("=")
            _read_other(line, option, value)
        position += 1
    return compiling, stopped, architectures


def _read_other(line: CompilerLine, option: str, value: str) -> None:
    if option in ("-o", "--output"):
        line.output = value
    elif option == "-working-directory":
        line.folder = value
    elif option == "--config":
        line.configured = True


def dependency_files(line: CompilerLine) -> list[str]:
    """Return where the compiler will write what the sources depend on: -MF, or names after -o or the sources.

    Also of a line that writes no object, and what Kbuild hands to the preprocessor (-Wp,-MMD,FILE).
    """
    words = line.words
    files = [word.split(",")[2] for word in words if word.startswith(_TO_PREPROCESSOR)]
    alone = "-M" in words or "-MM" in words
    if not line.sources or not (alone or "-MD" in words or "-MMD" in words):
        return files
    for position, word in enumerate(words):
        if word[:3] == "-MF":
            return [*files, word[3:] or "".join(words[position + 1 : position + 2])]
    if alone:
        return [*files, line.output] if line.output else files
    named = [line.output] if line.output else [_default_object(source.path) for source in line.sources]
    named = [_in_folder(line.folder, name) for name in named]
    return files + [f"{name[: name.rfind('/') + 1]}{_default_object(name)[:-2]}.d" for name in named]


def takes_value(word: str) -> bool:
    """Tell whether an option's value is the next word."""
    return word in _TAKES_VALUE or word.startswith(("-Xarch_", "-Xopenmp-target="))


def _add_input(line: CompilerLine, position: int, language: str) -> None:
    path = line.words[position]
    line.inputs.append((position, path))
    if language.endswith("-header"):
        return
    if language or _suffix(path) in _SOURCE_SUFFIXES:
        line.sources.append(Source(position, path, language, ""))


def _suffix(path: str) -> str:
    _, dot, suffix = path[path.rfind("/") + 1 :].rpartition(".")
    return suffix if dot else ""


def _default_object(source: str) -> str:
    """Return the object's name where there is no -o: the source's, without folder, its suffix replaced."""
    name = source[source.rfind("/") + 1 :]
    return (name.rpartition(".")[0] or name) + ".o"


def compiler_position(words: list[str]) -> int:
    """Return the index of the compiler itself, behind ccache and the like and behind NAME=VALUE words.

    A program that we don't know may stand before the compiler, too (`./wrapper --log x gcc -c a.c`): if a word behind
    it has the name of a compiler, and isn't an option's value or a source, that is the compiler.
    """
    position = 0
    while position + 1 < len(words):
        word, following = words[position], words[position + 1]
        name = word[word.rfind("/") + 1 :]
        if name in _RUNNERS:
            position = _behind_options(words, position + 1, _RUNNERS[name])
            continue
        runs_next = name in CACHES or _is_assignment(word) or (position and word == "--")  # cmake -E env A=b -- gcc
        if not runs_next or (following[:1] == "-" and following != "--"):
            break
        position += 1
    position = min(position, len(words) - 1)
    while (behind := _next_compiler(words, position)) > position:
        position = behind
    return position


def _next_compiler(words: list[str], start: int) -> int:
    """Return the index of the next word with a compiler's name; `start` if no such word comes before its own words."""
    position = start + 1
    while position < len(words):
        word = words[position]
        if word in _NOT_FOR_WRAPPERS or (word[:1] != "-" and _suffix(word) in _SOURCE_SUFFIXES):
            break
        if word[:1] != "-" and _has_compilers_name(word):
            return position
        position += 2 if takes_value(word) else 1
    return start


def _has_compilers_name(word: str) -> bool:
    name = word[word.rfind("/") + 1 :]
    stem, dash, version = name.rpartition("-")
    if dash and version.replace(".", "").isdecimal():
        name = stem
    return name.endswith(_COMPILERS) and "." not in name


def _behind_options(words: list[str], position: int, take_value: tuple[str, ...]) -> int:
    while position < len(words) and words[position][:1] == "-" and words[position] != "--":
        position += 2 if words[position] in take_value else 1
    return position


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return equals != "" and name.replace("_", "a").isalnum()


def append_options(words: list[str], options: list[str]) -> list[str]:
    """Return the line with `options` where they win over all others: at the end, but before a `--`."""
    end = words.index("--") if "--" in words else len(words)
    return words[:end] + options + words[end:]


def only_source(line: CompilerLine, source: Source, target: str, options: list[str]) -> list[str]:
    """Return a line that compiles one of the line's sources to the object `target`, with `options` appended.

    It has the line's compiler and options, without the other inputs, and without what would write any other file
    a second time: dependency files and saved temporary files.
    """
    dropped = {position for position, _ in line.inputs}
    words = line.words
    position = compiler_position(words) + 1
    kept = words[:position]
    while position < len(words):
        word = words[position]
        size = 2 if takes_value(word) else 1
        if not (position in dropped or word == "--" or _writes_or_selects(word)):
            kept += words[position : position + size]
        position += size
    language = ["-x", source.language] if source.language else []
    return [*kept, *options, "-c", "-o", target, *language, source.path]


def _writes_or_selects(word: str) -> bool:
    """Tell whether an option names output files or the language (which `only_source` states anew)."""
    if word.startswith(("-o", "-x", "-save-temps", "--save-temps", "-Wp,-M", "--output", "--language", "-l", "-Wl,")):
        return word != "-object" and not word.startswith(_NOT_OUTPUT)
    if word in ("-c", "--compile", "--write-dependencies", "--write-user-dependencies", "-Xlinker"):
        return True
    return word in ("-MD", "-MMD", "-MP", "-MG", "-MF", "-MT", "-MQ", "-MJ", "-MV")


def expand_response_files(words: list[str]) -> list[str]:
    """Return the words with every `@file` replaced by the words in that file, as the compilers do it.

    A file that can't be read stays as it is, as a word. Files may name further files; a chain of more than 100 is
    left alone (compilers stop there with an error of their own).
    """
    if not any(word[:1] == "@" for word in words):
        return words
    expanded, kept = _expand(words, 100, False), _expand(words, 100, True)
    if expanded == kept:
        return expanded
    from .ask import keeps_backslashes  # only the compiler knows

    return kept if keeps_backslashes(words[: compiler_position(words) + 1]) else expanded


def _expand(words: list[str], depth: int, kept: bool) -> list[str]:
    expanded: list[str] = []
    for word in words:
        text = _read_file(word[1:]) if word[:1] == "@" and depth else None
        if text is None:
            expanded.append(word)
        else:
            expanded += _expand(split_words(text, kept), depth - 1, kept)
    return expanded


def _read_file(path: str) -> bytes | None:
    try:
        descriptor = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        pieces = []
        while piece := posix.read(descriptor, 1 << 20):
            pieces.append(piece)
    except OSError:  # a folder, for one
        return None
    finally:
        posix.close(descriptor)
    return b"".join(pieces)


def split_words(content: bytes, kept: bool = False) -> list[str]:
    """Split a response file: white space separates, either quote groups, a backslash takes the next character.

    GCC's libiberty and LLVM's GNU-style splitter agreed on this, also that a backslash works inside single quotes. GCC
    16 does as POSIX has it for shells (`kept`): there a backslash stays in single quotes, in double quotes too unless
    $, `, ", \\ or a new line is behind it, and goes together with a new line.
    """
    if not (b"\\" in content or b"'" in content or b'"' in content):
        return [word.decode("utf-8", "surrogateescape") for word in content.split()]
    text = content.decode("utf-8", "surrogateescape")
    words: list[str] = []
    word: list[str] = []
    quote, started, position = "", False, 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\" and not (kept and _stays(quote, text[position : position + 1])):
            if not (kept and text[position : position + 1] == "\n"):
                word.append(text[position : position + 1])
            position, started = position + 1, True
        elif quote:
            if character == quote:
                quote = ""
            else:
                word.append(character)
        elif character in "'\"":
            quote, started = character, True
        elif character in " \t\n\r\v\f":
            if started:
                words.append("".join(word))
                word, started = [], False
        else:
            word.append(character)
            started = True
    if started:
        words.append("".join(word))
    return words


def _stays(quote: str, following: str) -> bool:
    return quote == "'" or (quote == '"' and following not in ("$", "`", '"', "\\", "\n"))
