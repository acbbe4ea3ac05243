"""`usdtbuild script`: what it writes is run by the tracer that it is for, and sees what the program did.

DTrace is Debian testing's, which `make prepare-all` unpacks; without it, the parts of its scripts are looked at.
SystemTap needs a kernel's headers to run, so its own parser and its analysis look at its scripts, for a kernel that is
only described.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

PROVIDER = "provider app { probe request__start(int id, const char *name);" \
    " probe request__done(int id, unsigned status, long bytes); };\n"  # fmt: skip
PROGRAM = r"""
#include <stdio.h>
#include "app.h"
int main(void)
{
    const char *names[] = {"alpha", "beta", "gamma"};
    char line[8];
    setbuf(stdout, 0);
    puts("ready");
    while (fgets(line, sizeof line, stdin)) {
        for (int i = 0; i < 300; i++) {
            APP_REQUEST_START(i, names[i % 3]);
            APP_REQUEST_DONE(i, i % 2 ? 500 : 200, i * -3L);
        }
        puts("done");
    }
    return 0;
}
"""
PAIR = ("--latency", "app:request-start", "app:request-done")
ADDED = [
    (), ("--count",), (*PAIR, "--by", "name,status"), ("--sum", "bytes", "--by", "thread"),
    ("--histogram", "bytes", "--by", "status", "--filter", "status == 500"),
]  # fmt: skip
# What DTrace compiles: each kind of argument, each kind of sum, each operator, the largest constants.
MANY = """provider many {
    probe numbers(int8_t a, uint8_t b, short c, unsigned short d, int e, unsigned f, long g, unsigned long h, char i);
    probe texts(char *s, const char *t, string u, void *p, int *q);
    probe work__done(int id, const char *name, long bytes);
    probe work__start(int id, const char *name);
    probe none();
    probe others(_Bool b, enum colour k, size_t z, ssize_t y, uintptr_t w);
};
"""
MANY_PROGRAM = """
#include <unistd.h>
enum colour { RED, GREEN };
#include "many.h"
int main(int argc, char **argv)
{
    MANY_NUMBERS(argc, argc, argc, argc, argc, argc, argc, argc, 'a');
    MANY_TEXTS(argv[0], "t", "u", argv, &argc);
    MANY_WORK_START(argc, "w");
    MANY_WORK_DONE(argc, "w", 5);
    MANY_NONE();
    MANY_OTHERS(1, GREEN, 2, 3, 4);
    pause();
    return 0;
}
"""
MANY_PAIR = "--latency many:work-start many:work-done"
MANY_OPTIONS = [
    "", "--count", "--count --by process,thread,probe", "--by a,f,h", "--by s,t", "--by k,b", "--sum g --by e",
    "--sum g", "--histogram a --by e", "--histogram h", MANY_PAIR, f"{MANY_PAIR} --by id,name,bytes,probe,thread",
    f"{MANY_PAIR} --by bytes --filter 'id > 3 and name == \"abc\"'",
    "--filter 'a == 1 and b != 2 or c < 3 and d <= 4 or not (e > 5) and f >= 6 or a == b'",
    "--filter 'g == -9223372036854775808 or h == 18446744073709551615 or g < 9223372036854775807 or h > 1e3'",
    "--filter 's == \"b\\\"c%d\\\\\" or t =~ \"b*\" or u != \"x\" or s =~ \"*\" or p == NULL and q != NULL'",
    "--filter 'thread == 5 and process == 6'", "--filter 'b == 1 or y < -1 or z > 0 or w == 0x10'",
]  # fmt: skip
HITS = [f"app:request__start id={i} name={('alpha', 'beta', 'gamma')[i % 3]}" for i in range(300)]
HITS += [f"app:request__done id={i} status={500 if i % 2 else 200} bytes={-3 * i}" for i in range(300)]
LANGUAGES = ("bpftrace", "libbpf", "stap", "perf", "gdb", "dtrace")
ADDING = ("bpftrace", "libbpf", "gdb")  # those that add up and are run here
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="uprobes need root")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, usdtbuild: Any, run: Any) -> Path:
    return _built(tmp_path_factory.mktemp("script"), "app", usdtbuild, run)


def _built(folder: Path, name: str, usdtbuild: Any, run: Any) -> Path:
    folder.chmod(0o755)
    (folder / f"{name}.d").write_text(PROVIDER.replace("app", name))
    (folder / "app.c").write_text(PROGRAM.replace("APP_", f"{name.upper()}_").replace("app.h", f"{name}.h"))
    usdtbuild("header", f"{name}.d", "-o", f"{name}.h", cwd=folder)
    run("gcc", "-O2", "app.c", "-o", name, cwd=folder)
    return folder / name


@pytest.fixture(scope="module")
def dtrace(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """How the DTrace of `make prepare-all` is called."""
    unpacked = Path(__file__).parents[2] / ".cache/dtrace"
    loader = next(unpacked.glob("usr/lib/*/ld-linux-*.so.*"), None)
    if loader is None:
        pytest.skip("dtrace is not in .cache: make prepare-all")
    # Of what it reads at its start only what its own functions are: the rest names what this kernel may not have.
    libraries = tmp_path_factory.mktemp("dtrace")
    (libraries / "6.1").mkdir()
    shutil.copy(loader.parent / "dtrace/bpf_dlib.o", libraries)
    # It looks for tracefs below debugfs, which need not be mounted.
    inside = ("unshare", "--mount", "sh", "-ec", 'mount -t debugfs none /sys/kernel/debug; exec "$@"', "sh")
    program = unpacked / "usr/sbin/dtrace"
    return [*inside, loader, "--library-path", loader.parent, program, f"-xsyslibdir={libraries}"]


@pytest.fixture
def watch(app: Path, usdtbuild: Any, need: Any, run: Any, tmp_path: Path, request: Any) -> Any:
    """Write a script, run it beside the program for one round, and return what it printed."""

    def command(language: str, *options: str) -> list[str]:
        text = usdtbuild("script", language, app, *options).stdout
        script = tmp_path / ("watch.c" if language == "libbpf" else "script")
        script.write_text(text)
        if language == "bpftrace":
            return [need("bpftrace"), str(script)]
        if language == "gdb":
            return [need("gdb"), "-q", "-batch", "-x", str(script), "-p"]
        if language == "dtrace":
            script.write_text(text.replace("app*:", "app$target:"))
            return [*request.getfixturevalue("dtrace"), "-s", str(script), "-p"]
        for step in re.findall(r"^ \*     ((?:clang|bpftool|cc) .*)$", text, re.MULTILINE):
            words = step.replace("FILE.c", "watch.c").split()
            output = words[words.index(">") + 1] if ">" in words else ""
            done = run(need(words[0]), *words[1 : words.index(">") if output else None], cwd=tmp_path)
            if output:
                (tmp_path / output).write_text(done.stdout)
        return [str(tmp_path / "watch")]

    def seen(language: str, *options: str) -> str:
        words = command(language, *options)
        source = next(one for one in (tmp_path / "script", tmp_path / "watch.c") if one.exists()).read_text()
        probes = len(re.findall(r"^[ #*]*app:request__\w+\(", source, re.MULTILINE))
        program = subprocess.Popen([app], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        output = tmp_path / "output"
        # With its usual buffer bpftrace loses some of 600 hits, and says so, where it is kept from reading them.
        room = {**os.environ, "BPFTRACE_PERF_RB_PAGES": "1024"}
        with output.open("w") as file, (tmp_path / "errors").open("w") as errors:
            tracer = subprocess.Popen([*words, str(program.pid)], stdout=file, stderr=errors, start_new_session=True,
                                      env=room)  # fmt: skip
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            _until_armed(tracer, program.pid, app, probes)
            program.stdin.write("\n")
            program.stdin.flush()
            assert [program.stdout.readline() for _ in range(2)] == ["ready\n", "done\n"]
            if language == "gdb":
                program.stdin.close()  # gdb ends with it
            else:
                _until_idle(tracer.pid)
                tracer.send_signal(signal.SIGINT)  # bpftrace leaves what it hasn't read
            tracer.wait(timeout=200)  # DTrace takes 8 seconds of processor time to end
        finally:
            for one in (tracer, program):
                one.kill()
                one.wait()
            program.stdin.close()
            program.stdout.close()
        return output.read_text()

    return seen


def _until_armed(tracer: subprocess.Popen[Any], pid: int, app: Path, probes: int) -> None:
    """Wait until the program's code is another one than the file's: it has breakpoints."""
    from usdtbuild.tracing.maps import Memory, areas

    content, deadline = app.read_bytes(), time.monotonic() + 60
    while time.monotonic() < deadline and tracer.poll() is None:
        memory = Memory(pid)
        for one in areas(pid):
            if one.name == str(app) and one.flags == "r-xp":
                code = memory.read(one.start, one.end - one.start)
                expected = content[one.offset : one.offset + len(code)]
                changed = sum(a != b for a, b in zip(code, expected))
                if changed >= probes:
                    memory.close()
                    time.sleep(0.2)
                    return
        memory.close()
        time.sleep(0.05)
    pytest.fail(f"the tracer set no breakpoints ({tracer.poll()})")


def _until_idle(pid: int) -> None:
    """Wait until a process has slept for half a second, so that it waits for nothing but hits: it may be late."""
    idle, before, deadline = 0, "", time.monotonic() + 60
    while idle < 10 and time.monotonic() < deadline:
        time.sleep(0.05)
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        now = " ".join(fields[10:12])  # its processor time
        idle = idle + 1 if state == "S" and now == before else 0
        before = now


def slow_for(*values: str) -> list[Any]:
    """Languages as parameters, of which libbpf's are slow, for which three programs are built, and DTrace's."""
    slow = ("libbpf", "dtrace")
    return [pytest.param(one, marks=pytest.mark.slow) if one in slow else one for one in values]


@NEEDS_ROOT
@pytest.mark.live
@pytest.mark.parametrize("language", slow_for(*ADDING, "dtrace"))
def test_each_hit_is_printed_with_names_and_types(watch: Any, language: str) -> None:
    printed = [
        re.sub(r"^\d+/\d+ ", "", line)
        for line in watch(language).splitlines()
        if "app:request" in line and "printf(" not in line
    ]  # bpftrace 0.27 shows lines of the script that it warns of
    assert Counter(printed) == Counter(HITS)


@NEEDS_ROOT
@pytest.mark.live
@pytest.mark.parametrize("language", slow_for(*ADDING))
def test_counts_by_keys_of_hits_that_pass(watch: Any, language: str) -> None:
    test = "id >= 100 and status & 0x100 or bytes == 0"
    shown = watch(language, "--filter", test, "--by", "status")
    assert _rows(shown, "500", "200") == {"500": 100, "200": 1}


@NEEDS_ROOT
@pytest.mark.live
@pytest.mark.parametrize("language", slow_for(*ADDING, "dtrace"))
def test_strings_are_compared_and_are_keys(watch: Any, language: str) -> None:
    shown = watch(language, "--filter", 'name == "beta" or name =~ "gam*"', "--by", "name")
    assert _rows(shown, "alpha", "beta", "gamma") == {"beta": 100, "gamma": 100}


def _rows(text: str, *keys: str) -> dict[str, int]:
    """The counts of keys, as each tracer writes them: `@hits[beta]: 100`, `100  beta`, `beta 100`, `  beta   100`."""
    found = {}
    for key in keys:
        line = re.search(rf"^@\w+\[{key}\]: (\d+)$|^(\d+)  {key}$|^ *{key} +(\d+)$", text, re.MULTILINE)
        if line:
            found[key] = int(next(number for number in line.groups() if number))
    return found


@NEEDS_ROOT
@pytest.mark.live
@pytest.mark.parametrize("language", slow_for(*ADDING))
@pytest.mark.parametrize(
    ("key", "counts"), [("name", {"alpha": 100, "beta": 100, "gamma": 100}), ("status", {"200": 150, "500": 150})]
)
def test_pairs_are_timed_by_a_key_of_their_begin_or_end(
    watch: Any, language: str, key: str, counts: dict[str, int]
) -> None:
    shown = watch(language, *PAIR, "--by", key)
    if language == "bpftrace":
        for name, count in counts.items():
            part = shown.partition(f"@nanoseconds[{name}]:")[2].partition("\n\n")[0]
            assert sum(map(int, re.findall(r"\) +(\d+) \|", part))) == count, shown
    else:
        assert _rows(shown, *counts) == counts


@NEEDS_ROOT
@pytest.mark.live
@pytest.mark.parametrize("language", slow_for(*ADDING))
def test_sums_and_histograms(watch: Any, language: str) -> None:
    sums = watch(language, "--sum", "bytes", "--by", "status")
    expected = {status: sum(-3 * i for i in range(300) if (i % 2 > 0) is (status == 500)) for status in (200, 500)}
    for status, total in expected.items():
        assert re.search(rf"@sum\[{status}\]: {total}$|^{status}:? sum {total},", sums, re.MULTILINE), sums
    shape = watch(language, "--histogram", "id", "-P", "*start")
    counts = re.findall(r"^ *(?:\[\d+\]|\[\d+K?, \d+K?\)) +(\d+)", shape, re.MULTILINE)
    assert sum(map(int, counts)) == 300, shape


@NEEDS_ROOT
@pytest.mark.live
def test_perf_records_and_counts(usdtbuild: Any, run: Any, perf: str, tmp_path: Path) -> None:
    # perf knows probes by name, in all programs that are in its cache.
    app = _built(tmp_path, "perfed", usdtbuild, run)
    words = {"all": (), "some": ("--count", "--filter", "id >= 100", "-P", "*start")}
    try:
        for name, options in words.items():
            (tmp_path / name).write_text(usdtbuild("script", "perf", app, *options).stdout)
            done = subprocess.run(
                ["sh", tmp_path / name, app],
                cwd=tmp_path,
                input="\n",
                capture_output=True,
                text=True,
                timeout=120,
                check=True,
            )
            if name == "all":
                counts = Counter(re.findall(r"sdt_perfed:request_+(\w+):", done.stdout))  # since perf 7 with one _
                assert counts == {"start": 300, "done": 300}
                assert "arg1=299 arg2=500 arg3=-897" in done.stdout
            else:
                assert re.search(r"^ +200 +sdt_perfed:request_+start", done.stderr, re.MULTILINE)
    finally:
        subprocess.run([perf, "buildid-cache", "--remove", app], capture_output=True, check=True)
    listed = subprocess.run([perf, "probe", "-l"], capture_output=True, text=True, check=True)
    assert "perfed:request_" not in listed.stdout + listed.stderr


@pytest.mark.slow
@pytest.mark.parametrize("options", ADDED)
def test_systemtap_understands_its_scripts(
    app: Path, usdtbuild: Any, need: Any, tmp_path: Path, options: tuple[str, ...]
) -> None:
    kernel = tmp_path / "kernel"
    (kernel / "include/config").mkdir(parents=True)
    (kernel / ".config").write_text("".join(f"CONFIG_{name}=y\n" for name in
                                            ("UPROBES", "TRACEPOINTS", "ARCH_SUPPORTS_UPROBES", "UTRACE")))  # fmt: skip
    (kernel / "include/config/kernel.release").write_text("6.1.0\n")
    for name in ("Makefile", "System.map", "Module.symvers"):
        (kernel / name).touch()
    script = tmp_path / "script.stp"
    script.write_text(usdtbuild("script", "stap", app, *options).stdout)
    done = subprocess.run(
        [need("stap"), "-r", kernel, "-p2", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "probes" in done.stdout


@pytest.mark.parametrize("options", [(), ("--count", "--filter", "id > 1"), (*PAIR, "--by", "name"), ("--sum", "id")])
def test_dtrace_scripts_are_clauses(app: Path, usdtbuild: Any, options: tuple[str, ...]) -> None:
    """Each clause is what chapter 1 of the Dynamic Tracing Guide says: probes, a predicate, and statements."""
    text = usdtbuild("script", "dtrace", app, *options).stdout
    body = re.sub(r"/\*.*?\*/", "", text.partition("\n")[2], flags=re.DOTALL).replace("#pragma D option quiet\n", "")
    clause = r"\s*app\*:::request-\w+\n(/ [^\n]+ /\n)?\{\n(\t[^\n]+;\n)+\}\n"
    assert re.fullmatch(rf"({clause})+", body), body
    assert "__" not in re.sub(r'"[^"]*"', "", body)
    # A variable is declared by its first assignment.
    for name in set(re.findall(r"self->\w+", body)):
        assert body.index(name) == body.index(f"{name} = "), body


@NEEDS_ROOT
@pytest.mark.live
@pytest.mark.slow
def test_dtrace_compiles_its_scripts(usdtbuild: Any, run: Any, dtrace: list[Any], tmp_path: Path) -> None:
    (tmp_path / "many.d").write_text(MANY)
    (tmp_path / "many.c").write_text(MANY_PROGRAM)
    usdtbuild("header", "many.d", cwd=tmp_path)
    run("gcc", "-O2", "many.c", "-o", "many", cwd=tmp_path)
    program = subprocess.Popen([tmp_path / "many"])

    def compiled(text: str) -> str:
        script = tmp_path / "script.d"
        script.write_text(text.replace("many*:", "many$target:"))
        return run(*dtrace, "-e", "-p", program.pid, "-s", script, code=None).stderr

    try:
        for options in MANY_OPTIONS:
            text = usdtbuild("script", "dtrace", "many", *shlex.split(options), cwd=tmp_path).stdout
            assert not compiled(text), text
        good = usdtbuild("script", "dtrace", "many", "-P", "many:work-done", cwd=tmp_path).stdout
        for old, new, says in (
            ("pid, tid, ", "pid, ", "is incompatible"), ("%s", "%d", "is incompatible"),
            ("(int32_t)arg0", "self->begun", "not yet been declared"), ("work-done", "work-over", "does not match any"),
            ("{\n", "\n", "expected predicate"), ("(int64_t)arg2", "18446744073709551615", "cannot be represented"),
        ):  # fmt: skip
            assert says in compiled(good.replace(old, new)), good
    finally:
        program.kill()
        program.wait()


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_provider_file_has_a_place_for_the_program(app: Path, usdtbuild: Any, language: str) -> None:
    text = usdtbuild("script", language, app.with_name("app.d"), "-P", "app:request-done").stdout
    assert "app:request__done(int id, unsigned status, long bytes)" in text
    assert "request__start" not in text
    assert "PROGRAM" in text or language in {"gdb", "dtrace"}  # which look for the provider


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("bpftrace", "app", "--sum", "size"), "none of the probes has an argument size"),
        (("bpftrace", "app", "--sum", "name"), "--sum: name of app:request__start is a string"),
        (("gdb", "app", "--histogram", "name"), "--histogram: name of app:request__start is a string"),
        (("bpftrace", "app", "--filter", "size > 1"), "has no argument size"),
        (("bpftrace", "app", "--filter", "id >"), "--filter"),
        (("bpftrace", "app", "--count", "--sum", "id"), "--count and --sum don't go together in one script"),
        (("perf", "app", "--by", "id"), "perf counts hits or records them"),
        (("perf", "app", "--filter", 'name == "x"'), "perf's filters compare numbers, not strings"),
        (("bpftrace", "app", "--filter", "time > 5s"), "bpftrace has no time to compare with here"),
        (("perf", "app", "--filter", "id & 4"), "perf compares whole numbers, and no bits of them"),
        (("perf", "app", "--filter", "thread == 5"), "perf has no thread to compare with here"),
        (("gdb", "app", "--filter", 'name =~ "a?c*"'), "compares whole strings, or a beginning"),
        (("gdb", "app", "--filter", 'name == "\\x01"'), "printable ASCII"),
        (("dtrace", "app", "--filter", "id > 1.5"), "whole numbers only, not with 1.5"),
        (("bpftrace", "app", "--filter", "bytes > 1e30"), "bpftrace compares numbers of 64 bits"),
        *[
            (
                (language, "f.d"),
                "read d of app:f, a floating-point number; leave it out (-P with the others), or --count",
            )
            for language in LANGUAGES
            if language != "perf"
        ],
        (("awk", "app"), "'awk' is not one of"),
    ],
)
def test_what_can_not_be_said_is_one_line(app: Path, usdtbuild: Any, words: tuple[str, ...], says: str) -> None:
    (app.parent / "f.d").write_text("provider app { probe x(int n); probe f(double d); };\n")
    done = usdtbuild("script", *words, cwd=app.parent, code=2)
    assert says in done.stderr
    assert not done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("app", "-P", "nothing"), "no probe matches nothing"),
        (("app", "--latency", "app:request-start", "app:ready"), "no probe matches --latency app:ready"),
        (("none",), "no such file"),
        (("app.c",), "not an ELF"),
        ((".",), "isn't one file that runs"),
    ],
)
def test_what_is_not_there_is_one_line(app: Path, usdtbuild: Any, words: tuple[str, ...], says: str) -> None:
    done = usdtbuild("script", "stap", *words, cwd=app.parent, code=1)
    assert says in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_name_gets_out_of_its_place(usdtbuild: Any, app: Path, tmp_path: Path, language: str) -> None:
    odd = tmp_path / "a'b\"; * x"
    shutil.copy(app, odd)
    done = usdtbuild("script", language, odd, code=2)
    assert done.returncode == 2
    assert "no safe way to name" in done.stderr
    text = usdtbuild("script", language, app, "-P", "app:*", "-P", "*/ {x}\n!").stdout
    head = text.partition("request__done(")[0]
    assert "*/ {x}" not in head
    assert "\n!" not in head
