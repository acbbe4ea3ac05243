"""The documentation of a provider: what it says, and that the commands in it are ones that the tracers take."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.provider.documentation import write
from usdtbuild.provider.parser import parse

TEXT = """
/* What the server does, request by request. */
provider app {
  /* A request ended.
   *
   * `fd` is closed by now; see <fd.h>. */
  probe req__done(int fd, char *path, uint64_t bytes, double seconds, struct conn *c, bool ok, unsigned long n)
    : (info_t *fd, string path);
  probe none();
  probe unnamed(int, D`uint8_t);
};
#pragma D attributes Evolving/Evolving/Common provider app provider
"""
EXPECTED = """\
# Provider `app`

What the server does, request by request.

| Probe | Arguments | |
|---|---|---|
| [`req-done`](#appreq-done) | `int fd, char *path, uint64_t bytes, double seconds, struct conn *c, bool ok, unsigned long n` | A request ended. |
| [`none`](#appnone) | – |  |
| [`unnamed`](#appunnamed) | `` int, D`uint8_t `` |  |

| Part | Name/data/class stability |
|---|---|
| provider | Evolving/Evolving/Common |
| module | Unstable/Unstable/Common |
| function | Unstable/Unstable/Common |
| name | Unstable/Unstable/Common |
| args | Unstable/Unstable/Common |

## `app:req-done`

A request ended.

`fd` is closed by now; see \\<fd.h>.

Fired by `APP_REQ_DONE(fd, path, bytes, seconds, c, ok, n)`; `APP_REQ_DONE_ENABLED()` tells whether anyone is watching.

| | Argument | Type | Kind | DTrace sees |
|---|---|---|---|---|
| arg0 | fd | `int` | signed, 4 bytes | `info_t *` |
| arg1 | path | `char *` | string | `string` |
| arg2 | bytes | `uint64_t` | unsigned, 8 bytes | – |
| arg3 | seconds | `double` | the bits of a double, as an integer | – |
| arg4 | c | `struct conn *` | address | – |
| arg5 | ok | `bool` | unsigned, 1 byte | – |
| arg6 | n | `unsigned long` | unsigned, 8 (32-bit: 4) bytes | – |

```sh
bpftrace -e 'usdt:PROGRAM:app:req__done { printf("req__done fd=%lld path=%s bytes=%llu seconds=0x%llx c=%p ok=%llu\\n", \
arg0, str(arg1), arg2, arg3, arg4, arg5); }'
perf buildid-cache --add PROGRAM && perf probe sdt_app:req__done && perf record -e sdt_app:req_*done -a
```

## `app:none`

Fired by `APP_NONE()`; `APP_NONE_ENABLED()` tells whether anyone is watching.

It has no arguments.

```sh
bpftrace -e 'usdt:PROGRAM:app:none { printf("none\\n"); }'
perf buildid-cache --add PROGRAM && perf probe sdt_app:none && perf record -e sdt_app:none -a
```
"""  # noqa: E501


def test_the_document() -> None:
    assert write(parse(TEXT, "app.d")).startswith(EXPECTED)


def test_more_than_twelve_arguments_are_not_all_visible() -> None:
    text = write(parse(f"provider app {{ probe p({', '.join(['int'] * 13)}); }};", "app.d"))
    assert "Tracers that read SDT notes see the first 12 arguments." in text


def test_nothing_to_document() -> None:
    assert write(()) == "No provider is declared.\n"
    assert "It has no probes." in write(parse("provider app {};", "app.d"))


def test_every_table_row_has_as_many_cells_as_its_head(plain_file: Path) -> None:
    cells = rows = 0
    for line in write(parse(plain_file.read_text(), plain_file.name)).split("\n"):
        if line.startswith("|"):
            cells = cells or line.count("|")
            assert line.count("|") == cells
            rows += 1
        else:
            cells = 0
    assert rows >= 3 * plain_file.read_text().count("provider "), "each provider has a table of its parts"


SDT = """
#include <stdio.h>
#define NOTE(name, arguments, site) \\
  __asm__(".pushsection .note.stapsdt,\\"\\",%note\\n.balign 4\\n.4byte 8,2f-1f,3\\n.asciz \\"stapsdt\\"\\n" \\
          "1: .8byte " site "\\n.8byte _.stapsdt.base\\n.8byte 0\\n.asciz \\"app\\"\\n.asciz \\"" name "\\"\\n" \\
          ".asciz \\"" arguments "\\"\\n2: .balign 4\\n.popsection\\n.pushsection .stapsdt.base,\\"aG\\",\\"progbits\\"," \\
          ".stapsdt.base,comdat\\n.weak _.stapsdt.base\\n.hidden _.stapsdt.base\\n_.stapsdt.base: .space 1\\n.popsection")
NOTE("req__done", "-4@%edi 8@%rsi 8@%rdx 8@%rcx 8@%r8 1@%r9d 8@8(%rsp)", "site");
void hit(int fd, const char *path, unsigned long bytes, unsigned long seconds, void *c, int ok, unsigned long n);
__asm__(".text\\n.globl hit\\n.type hit,@function\\nhit:\\nsite: nop\\nret\\n.size hit,.-hit");
int main(void) { char path[] = "a path"; hit(-3, path, 7, 0x3ff8000000000000, (void *)16, 1, 9); return 0; }
"""  # noqa: E501


@pytest.mark.live
def test_bpftrace_takes_the_command_as_it_stands(tmp_path: Path, bpftrace: str, need: Any) -> None:
    (tmp_path / "app.c").write_text(SDT)
    program = tmp_path / "app"
    subprocess.run([need("gcc"), "-O1", "-o", program, tmp_path / "app.c"], check=True)
    document = write(parse(TEXT, "app.d"))
    command = next(line for line in document.split("\n") if line.startswith("bpftrace") and "req__done" in line)
    script = command.partition("'")[2].rpartition("'")[0].replace("PROGRAM", str(program))
    done = subprocess.run(
        [bpftrace, "-e", script, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert "req__done fd=-3 path=a path bytes=7 seconds=0x3ff8000000000000 c=0x10 ok=1\n" in done.stdout, done.stderr


@pytest.mark.live
def test_perf_takes_the_command_as_it_stands(tmp_path: Path, perf: str, need: Any) -> None:
    (tmp_path / "app.c").write_text(SDT)
    program = tmp_path / "app"
    subprocess.run([need("gcc"), "-O1", "-Wl,--build-id", "-o", program, tmp_path / "app.c"], check=True)
    document = write(parse(TEXT, "app.d"))
    command = next(line for line in document.split("\n") if line.startswith("perf") and "req__done" in line)
    steps = [step.replace("PROGRAM", str(program)).split() for step in command.split(" && ")]
    try:
        for step in steps[:2]:
            subprocess.run([perf, *step[1:]], capture_output=True, check=True)
        record = [perf, *steps[2][1:], "-o", str(tmp_path / "perf.data"), str(program)]
        subprocess.run(record, capture_output=True, check=True)
        script = [perf, "script", "-i", str(tmp_path / "perf.data")]
        hits = subprocess.run(script, capture_output=True, text=True, check=True).stdout
        assert len(re.findall("sdt_app:req__?done", hits)) == 1
    finally:
        subprocess.run([perf, "probe", "-d", "sdt_app:req_*done"], capture_output=True, check=False)
        subprocess.run([perf, "buildid-cache", "--remove", program], capture_output=True, check=False)
