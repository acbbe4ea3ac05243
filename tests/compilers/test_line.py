"""What the launcher reads out of compilers' command lines, as build systems write them."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.compilers import (
    COMPILE,
    LINK,
    PASS,
    append_options,
    compiler_position,
    expand_response_files,
    only_source,
    split_words,
    takes_value,
    understand,
)

# (command line, objects that it writes), -c being there
COMPILING = {
    # CMake: Ninja, Makefiles, with ccache, PCH consumers, unity builds, cross compilers
    "cmake-ninja": (
        "/usr/bin/cc -DNDEBUG -I/src/include -isystem /opt/x/include -O2 -g -std=gnu17 -MD -MT"
        " CMakeFiles/app.dir/main.c.o -MF CMakeFiles/app.dir/main.c.o.d -o CMakeFiles/app.dir/main.c.o -c /src/main.c",
        "CMakeFiles/app.dir/main.c.o",
    ),
    "cmake-make": ("/usr/bin/c++ -fPIC -MD -MT a.cpp.o -MF a.cpp.o.d -o a.cpp.o -c /s/a.cpp", "a.cpp.o"),
    "cmake-pch-use": (
        "c++ -Winvalid-pch -include /b/CMakeFiles/t.dir/cmake_pch.hxx -o t.dir/a.cxx.o -c a.cxx",
        "t.dir/a.cxx.o",
    ),
    "cmake-clang-pch-use": (
        "clang++ -Winvalid-pch -Xclang -include-pch -Xclang /b/cmake_pch.hxx.pch -Xclang -include -Xclang"
        " /b/cmake_pch.hxx -o a.o -c a.cxx",
        "a.o",
    ),
    "cmake-modules": ("clang++ -std=c++20 -MD -MT m.o -MF m.o.d @m.o.modmap -o m.o -c /s/m.cppm", "m.o"),
    "cmake-assembler": ("gcc -o a.dir/start.S.o -c /s/start.S", "a.dir/start.S.o"),
    "cmake-env": ("cmake -E env --unset=LANG CCACHE_BASEDIR=/b ccache gcc -o a.o -c a.c", "a.o"),
    "cmake-cross": ("aarch64-linux-gnu-gcc --sysroot /sys -march=armv8-a -o a.o -c a.c", "a.o"),
    "clang-target": ("clang --target=riscv64-linux-gnu -target riscv64 -mllvm -x -o a.o -c a.c", "a.o"),
    # Meson
    "meson": (
        "cc -Iapp.p -I. -I.. -fdiagnostics-color=always -D_FILE_OFFSET_BITS=64 -Wall -Winvalid-pch -O0 -g -pthread"
        " -MD -MQ app.p/src_main.c.o -MF app.p/src_main.c.o.d -o app.p/src_main.c.o -c ../src/main.c",
        "app.p/src_main.c.o",
    ),
    # setuptools, with a build_ext of Python's own compiler flags
    "setuptools": (
        "gcc -Wno-unused-result -Wsign-compare -DNDEBUG -g -fwrapv -O3 -Wall -fPIC -I/venv/include -I/usr/include/"
        "python3.11 -c src/_ext.c -o build/temp.linux-x86_64-cpython-311/src/_ext.o -std=c99",
        "build/temp.linux-x86_64-cpython-311/src/_ext.o",
    ),
    # autotools and libtool
    "automake": ("gcc -DHAVE_CONFIG_H -I. -I.. -g -O2 -MT x.o -MD -MP -MF .deps/x.Tpo -c -o x.o x.c", "x.o"),
    "libtool-pic": (
        "gcc -g -O2 -MT libx_la-x.lo -MD -MP -MF .deps/libx_la-x.Tpo -c x.c -fPIC -DPIC -o .libs/libx_la-x.o",
        ".libs/libx_la-x.o",
    ),
    "libtool-static": ("gcc -g -c x.c -o libx_la-x.o >/dev/null", "libx_la-x.o"),
    "autoconf": ("gcc -c -g -O2 conftest.c", "conftest.o"),
    # hand-written Makefiles, the kernel's, Bazel, Buck, cgo
    "make": ("cc    -c -o main.o main.c", "main.o"),
    "make-folder": ("cc -c src/deep/main.c", "main.o"),
    "kbuild": (
        "gcc -Wp,-MMD,kernel/.a.o.d -nostdinc -I./arch/x86/include -include ./include/linux/kconfig.h -D__KERNEL__"
        " -fmacro-prefix-map=./= -std=gnu11 -c -o kernel/a.o kernel/a.c",
        "kernel/a.o",
    ),
    "bazel": (
        "gcc -U_FORTIFY_SOURCE -fstack-protector -MD -MF bazel-out/k8/bin/_objs/a/a.pic.d -frandom-seed=bazel-out/k8/"
        "bin/_objs/a/a.pic.o -fPIC -iquote . -iquote bazel-out/k8/bin -c a.cc -o bazel-out/k8/bin/_objs/a/a.pic.o",
        "bazel-out/k8/bin/_objs/a/a.pic.o",
    ),
    "cgo": ("gcc -I . -fPIC -m64 -pthread -fmessage-length=0 -o $WORK/b001/_x002.o -c a.cgo2.c", "$WORK/b001/_x002.o"),
    # forms of -o and -c
    "o-joined": ("gcc -c a.c -oout/a.o", "out/a.o"),
    "o-joined-obj": ("gcc -c a.c -oobj/a.o", "obj/a.o"),
    "o-long": ("gcc -c a.c --output=a2.o", "a2.o"),
    "o-long-separate": ("clang --compile a.c --output a2.o", "a2.o"),
    "o-twice": ("gcc -c -o first.o a.c -o last.o", "last.o"),
    "o-first": ("gcc -o a.o -c a.c", "a.o"),
    "several": ("gcc -c a.c lib/b.c c.s d.cpp", "a.o b.o c.o d.o"),
    "several-same-name": ("gcc -c x/a.c y/a.c", "a.o a.o"),
    "with-objects": ("gcc -c a.c other.o -lm", "a.o"),
    "dots": ("gcc -c my.file.name.c", "my.file.name.o"),
    # languages
    "x": ("gcc -x c -c program -o p.o", "p.o"),
    "x-default-name": ("gcc -xc -c program", "program.o"),
    "x-stdin": ("gcc -c -x c - -o p.o", "p.o"),
    "x-stdin-default-name": ("gcc -c -x c -", "-.o"),
    "x-none": ("gcc -c -x c one -x none two.o three.c", "one.o three.o"),
    "x-long": ("gcc -c --language=c one --language none two", "one.o"),
    "x-header-then-source": ("gcc -c -x c-header a.h -x c b", "b.o"),
    "header-beside-source": ("gcc -c a.h b.c", "b.o"),
    "dev-null": ("gcc -x c -c /dev/null -o /dev/null", "/dev/null"),
    "generated-s": ("gcc -c a.s -o a.o", "a.o"),
    "bitcode-in": ("clang -c -fthinlto-index=a.idx -x ir a.o -o a.native.o", "a.native.o"),
    "fortran": ("gfortran -c a.f90 -J mods", "a.o"),
    # options whose value looks like a source
    "value-include": ("gcc -include other.c -c a.c", "a.o"),
    "value-MF": ("gcc -MD -MF b.c -c a.c", "a.o"),
    "value-Xclang": ("clang -Xclang b.c -c a.c", "a.o"),
    "value-arch": ("clang -Xarch_x86_64 b.c -arch x86_64 -c a.c", "a.o"),
    "value-dumpbase": ("gcc -dumpbase b.c -dumpbase-ext .c -dumpdir d/ -c a.c", "a.o"),
    "value-param": ("gcc --param max.c -c a.c", "a.o"),
    "value-offload": ("clang -Xopenmp-target=nvptx64 b.c -c a.c", "a.o"),
    # compilers behind other programs
    "ccache": ("ccache gcc -c a.c", "a.o"),
    "ccache-config": ("ccache compiler_check=none /usr/bin/gcc -c a.c", "a.o"),
    "sccache-path": ("/opt/bin/sccache g++ -c a.cc", "a.o"),
    "distcc-alone": ("distcc -c a.c -o a.o", "a.o"),
    "ccache-distcc": ("ccache distcc gcc -c a.c", "a.o"),
    "env": ("env -u LANG LC_ALL=C gcc -c a.c", "a.o"),
    "nice": ("nice -n 5 gcc -c a.c", "a.o"),
    # what also changes the output, but not its name
    "split-dwarf": ("gcc -g -gsplit-dwarf -c a.c -o d/a.o", "d/a.o"),
    "coverage": ("gcc --coverage -c a.c", "a.o"),
    "save-temps": ("gcc -save-temps=obj -c a.c -o d/a.o", "d/a.o"),
    "pipe": ("gcc -pipe -c a.c", "a.o"),
    "verbose": ("gcc -v -c a.c", "a.o"),
    "one-arch": ("clang -arch x86_64 -c a.c", "a.o"),
    "double-dash": ("clang -c -o a.o -- -strange.c", "a.o"),
    "lto": ("gcc -flto=auto -fno-fat-lto-objects -c a.c -o a.o", "a.o"),
    "stdout": ("clang -c a.c -o -", "-"),
}

LINKING = {
    "make": "cc -O2 main.c util.c -o app -lm",
    "default-name": "gcc main.c",
    "with-objects": "gcc main.c util.o libx.a -o app",
    "shared": "gcc -shared -fPIC a.c -o liba.so",
    "relocatable": "gcc -r -nostdlib a.c b.c -o ab.o",
    "autoconf": "gcc -o conftest -g -O2 conftest.c -lpthread >&5",
    "stdin": "gcc -x c - -o app",
    "x": "gcc -x c prog -x none util.o -o app",
    "dependencies": "gcc -MD -MF app.d main.c -o app",
    "assembler": "gcc -nostdlib start.S -o app",
    "ccache": "ccache gcc main.c -o app",
    "meson-sanity": "cc sanitycheckc.c -o sanitycheckc.exe -D_FILE_OFFSET_BITS=64",
}

NOTHING_TO_DO = {
    "link": "cc CMakeFiles/app.dir/main.c.o -o app liba.a -Wl,-rpath,/x",
    "link-response": "g++ @objects.rsp -o app",
    "meson-link": "cc -o app app.p/main.c.o -Wl,--as-needed -Wl,--no-undefined",
    "preprocess": "gcc -E a.c -o a.i",
    "preprocess-and-c": "gcc -c -E a.c",
    "assembly": "gcc -S a.c -o a.s",
    "assembly-and-c": "gcc -c -S a.c -o a.s",
    "dependencies": "gcc -M a.c",
    "dependencies-user": "gcc -MM -MF a.d a.c",
    "dependencies-and-c": "gcc -MM -c a.c -o a.o",
    "syntax": "gcc -fsyntax-only a.c",
    "dry-run": "gcc -### -c a.c",
    "version": "gcc --version",
    "dumpversion": "gcc -dumpversion",
    "help": "gcc --help=optimizers",
    "print": "gcc -print-file-name=libc.so a.c",
    "v": "gcc -v",
    "nothing": "gcc",
    "pch-suffix": "g++ -o stdafx.h.gch stdafx.h",
    "pch-c": "gcc -c all.h",
    "pch-x": "g++ -Winvalid-pch -x c++-header -include cmake_pch.hxx -o cmake_pch.hxx.gch -c cmake_pch.hxx.cxx",
    "pch-clang": "clang -x c-header a.h -o a.h.pch",
    "header-unit": "g++ -std=c++20 -fmodule-header -x c++-system-header iostream",
    "llvm": "clang -emit-llvm -c a.c -o a.bc",
    "ast": "clang -emit-ast a.c",
    "precompile": "clang++ --precompile m.cppm -o m.pcm",
    "analyze": "clang --analyze a.c",
    "cc1": "clang -cc1 -emit-obj -o a.o a.c",
    "fat": "clang -arch x86_64 -arch arm64 -c a.c",
    "scan-deps": "g++ -E -x c++ a.cpp -MT a.ddi -MD -MF a.ddi.d -fmodules-ts -fdeps-file=a.ddi -o a.ddi.i",
    "nested": "usdtbuild cc -- gcc -c a.c",
    "nested-by-path": "/usr/bin/python3 -I -S /x/usdtbuild/launcher.py --tool-version=1 -- gcc -c a.c",
}


@pytest.mark.parametrize(("line", "objects"), COMPILING.values(), ids=COMPILING)
def test_compiling_names_the_objects(line: str, objects: str) -> None:
    read = understand(line.split())
    assert read.action == COMPILE
    assert [source.object for source in read.sources] == objects.split()


@pytest.mark.parametrize("line", LINKING.values(), ids=LINKING)
def test_compiling_and_linking_is_told_from_linking(line: str) -> None:
    assert understand(line.split()).action == LINK


@pytest.mark.parametrize("line", NOTHING_TO_DO.values(), ids=NOTHING_TO_DO)
def test_lines_without_objects_pass(line: str) -> None:
    assert understand(line.split()).action == PASS


def test_no_words_at_all_never_fail() -> None:
    for line in ("gcc -o", "gcc -x", "gcc -c -o", "ccache", "env", "env -u", "@", "gcc @", "gcc --", "gcc -"):
        assert understand(line.split()).action in (PASS, COMPILE, LINK)


@pytest.mark.parametrize("compiler", ["gcc", pytest.param("clang", marks=pytest.mark.slow)])
def test_every_option_of_this_compiler_that_takes_the_next_word_is_known(compiler: str, need: Any, run: Any) -> None:
    """A missing one would take a value that looks like a source for a source."""
    asked = _options_of(need(compiler), run)
    assert len(asked) > 25
    assert {option for option in asked if not takes_value(option)} == set()


def _options_of(compiler: str, run: Any) -> set[str]:
    """Ask the compiler itself: an option that misses its value is reported as such."""
    if compiler.endswith("clang"):
        names = {line.split("\t")[0].strip() for line in run(compiler, "--autocomplete=-").stdout.splitlines()}
        # Joined-only options end in =; those for other systems' linkers take no sources.
        names = {name for name in names if re.match("-[^Wfmg].*[^=]$|-.$", name)}
    else:
        listing = run(compiler, "--help=separate").stdout + run(compiler, "--help=separate,joined").stdout
        names = set(re.findall(r"^  (-[^\s<=]+)", listing, re.MULTILINE)) | {"-wrapper", "-Xlinker", "-T", "-u", "-B"}
    return {name for name in names if _misses_value(compiler, name)}


def _misses_value(compiler: str, option: str) -> bool:
    done = subprocess.run([compiler, "-###", "nothing.o", option], capture_output=True, text=True, check=False)
    name = re.escape(option)
    return bool(re.search(rf"missing argument to .{name}.|argument to '{name}' is", done.stderr))


# --- response files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b\tc\nd\r\ne\vf", ["a", "b", "c", "d", "e", "f"]),
        ('-DA="x y"', ["-DA=x y"]),
        ("'-DB=it\\'s'", ["-DB=it's"]),
        (r"-DC=a\ b", ["-DC=a b"]),
        (r'"-DE=q\"z"', ['-DE=q"z']),
        (r"a\\b", ["a\\b"]),
        ("'' \"\"", ["", ""]),
        ("'a b'\"c d\"e", ["a bc de"]),
        ("", []),
        ("  \n ", []),
        ("unfinished'quote here", ["unfinishedquote here"]),
        ("-o é.o", ["-o", "é.o"]),
        ("a\x1cb", ["a\x1cb"]),  # white space to Python, not to compilers
    ],
)
def test_response_files_split_as_compilers_do(text: str, words: list[str]) -> None:
    assert split_words(text.encode()) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (r"'-DA=\n' '-DB=a\'", [r"-DA=\n", "-DB=a\\"]),
        (r""""-DC=\$\`\"\\\q" \q\"""", [r"""-DC=$`"\\q""", 'q"']),
        ("-DA=a\\\nb \"-DB=a\\\nb\" '-DC=a\\\nb'", ["-DA=ab", "-DB=ab", "-DC=a\\\nb"]),
        ("a\\", ["a"]),
    ],
)
def test_response_files_split_as_gcc_16_does(text: str, words: list[str]) -> None:
    assert split_words(text.encode(), kept=True) == words


@pytest.mark.parametrize("kept", [True, False])
def test_a_compiler_is_asked_what_becomes_of_backslashes(kept: bool, tmp_path: Path) -> None:
    """It is asked only where that makes a difference."""
    compiler, options = tmp_path / "gcc", tmp_path / "options"
    answer = r"1\2" if kept else "12"
    compiler.write_text(f"#!/bin/sh\nread line\nprintf '%s\\n' '{answer}'\necho >>{tmp_path}/asked\n")
    compiler.chmod(0o755)
    options.write_text(r"-c a.c -o 'b c.o' -Da=\"x\"")
    words = ["-c", "a.c", "-o", "b c.o", '-Da="x"']
    assert expand_response_files([str(compiler), f"@{options}"])[1:] == words
    assert not (tmp_path / "asked").exists()
    options.write_text(r"-c a.c -o 'b\ c.o'")
    assert expand_response_files([str(compiler), f"@{options}"])[-1] == (r"b\ c.o" if kept else "b c.o")
    assert (tmp_path / "asked").exists()


def test_bytes_that_are_no_utf8_survive() -> None:
    assert split_words(b"-o \xff.o 'x'") == ["-o", "\udcff.o", "x"]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_compilers_read_a_response_file_the_same_way(compiler: str, need: Any, tmp_path: Path) -> None:
    text = '-DA="x y" \'-DB=it\\s\' -DC=a\\ b "-DE=q\\"z" -DF=\'a\\\\b\'\n-DG="\'"\'"\''
    (tmp_path / "options").write_text(text)
    (tmp_path / "a.c").write_text("A|B|C|E|F|G\n")
    done = subprocess.run(
        [need(compiler), "@options", "-E", "-P", "a.c"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    words = expand_response_files([compiler, f"@{tmp_path}/options"])[1:]
    ours = dict(word[2:].split("=", 1) for word in words)
    assert done.stdout.strip() == "|".join(ours[name] for name in "ABCEFG")


def test_response_files_nest_and_missing_ones_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("outer").write_text("-c @inner/list @nowhere")
    Path("inner").mkdir()
    Path("inner/list").write_text("a.c @more")
    Path("more").write_text("-o 'b c.o'")
    words = expand_response_files(["gcc", "@outer", "@inner", "@"])
    assert words == ["gcc", "-c", "a.c", "-o", "b c.o", "@nowhere", "@inner", "@"]
    assert [source.object for source in understand(["gcc", "@outer"]).sources] == ["b c.o"]


def test_a_response_file_that_names_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "loop").write_text(f"-c a.c @{tmp_path}/loop")
    assert understand(["gcc", f"@{tmp_path}/loop"]).action == COMPILE


# --- lines made from lines -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "compiler"),
    [
        ("gcc -c a.c", "gcc"),
        ("ccache gcc -c a.c", "gcc"),
        ("/usr/bin/ccache base_dir=/x /opt/gcc -c a.c", "/opt/gcc"),
        ("env -u A B=c nice -n 3 clang -c a.c", "clang"),
        ("cmake -E env A=b -- gcc -c a.c", "gcc"),
        ("distcc -c a.c", "distcc"),
        ("./wrapper gcc -flto -c a.c", "gcc"),
        ("./wrapper --log x /opt/bin/x86_64-linux-gnu-g++-12 -c a.cc", "/opt/bin/x86_64-linux-gnu-g++-12"),
        ("ccache ./wrapper clang-14 -c a.c", "clang-14"),
        ("zig cc -c a.c", "cc"),
        ("./wrapper ccache mpicc a.c", "mpicc"),
        ("gcc -I /opt/gcc -include cc -c a.c", "gcc"),
        ("gcc a.cc -lcc -o gcc", "gcc"),
        ("tcc a.c gcc", "tcc"),
        ("nvcc -ccbin g++ -c a.cu", "nvcc"),
        ("nvcc -E -unknown g++ a.cu", "nvcc"),
        ("./unknown -O2 -c a.c -o clang", "./unknown"),
        ("ccache", "ccache"),
        ("env", "env"),
    ],
)
def test_the_compiler_is_found_behind_what_runs_it(line: str, compiler: str) -> None:
    words = line.split()
    assert words[compiler_position(words)] == compiler


def test_appended_options_come_last_but_before_a_double_dash() -> None:
    assert append_options(["cc", "-c", "a.c"], ["-fno-lto"]) == ["cc", "-c", "a.c", "-fno-lto"]
    assert append_options(["cc", "-c", "--", "a.c"], ["-fno-lto"]) == ["cc", "-c", "-fno-lto", "--", "a.c"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gcc -O2 -c a.c b.c", "gcc -O2 -X -c -o t.o a.c"),
        ("gcc a.c b.o liba.a -lm -l z -Wl,-x -Xlinker -y -o app -O2", "gcc -O2 -X -c -o t.o a.c"),
        ("./wrapper gcc -flto a.c b.o -o app", "./wrapper gcc -flto -X -c -o t.o a.c"),
        ("ccache gcc -x c a -x none b.o -o app", "ccache gcc -X -c -o t.o -x c a"),
        ("gcc -MD -MF a.d -MT a.o -MMD -MP -save-temps=obj -Wp,-MD,x -I inc a.c", "gcc -I inc -X -c -o t.o a.c"),
        ("clang -Xclang -foo -include x.h --output=app -- a.c", "clang -Xclang -foo -include x.h -X -c -o t.o a.c"),
    ],
)
def test_one_source_alone(line: str, expected: str) -> None:
    read = understand(line.split())
    assert shlex.join(only_source(read, read.sources[0], "t.o", ["-X"])) == expected
