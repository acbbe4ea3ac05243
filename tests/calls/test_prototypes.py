"""The table of the C library's functions: the system's own headers have every declaration of it, word for word."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import usdtbuild

TABLE = Path(usdtbuild.__file__).parent / "tracing" / "prototypes.txt"
HEADERS = """
arpa/inet assert ctype dirent dlfcn err errno error fcntl fnmatch ftw getopt glob grp iconv langinfo libintl locale
malloc math netdb net/if poll pthread pwd regex sched semaphore setjmp signal spawn stdint stdio stdlib string strings
sys/epoll sys/eventfd sys/file sys/inotify sys/ioctl sys/ipc sys/mman sys/mount sys/prctl sys/random sys/resource
sys/select sys/sendfile sys/shm sys/signalfd sys/stat sys/statfs sys/statvfs sys/sysinfo sys/time sys/timerfd
sys/uio sys/utsname sys/vfs sys/wait sys/xattr syslog termios time unistd utime wchar wctype wordexp
"""
# With _GNU_SOURCE glibc declares the addresses of sockets as a union of all kinds.
START = "#define _GNU_SOURCE\n#include <features.h>\n#undef __USE_GNU\n#include <sys/socket.h>\n#define __USE_GNU 1\n"


def declarations() -> list[tuple[str, str]]:
    """Return the table's lines as C, each with the function's name, in brackets because some are macros too."""
    found = []
    for line in TABLE.read_text().splitlines():
        match = re.fullmatch(
            r"([^#].*?)(\w+)(\(.*\))", line.replace("(in char", "(char").replace(", in char", ", char")
        )
        if match:
            found.append((match[2], f"{match[1]}({match[2]}){match[3]};"))
    return found


@pytest.fixture(scope="module")
def refused(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the names of declarations that the compiler finds different from the headers'."""
    folder = tmp_path_factory.mktemp("prototypes")

    def ask(lines: list[tuple[str, str]]) -> list[str]:
        text = START + "".join(f"#include <{name}.h>\n" for name in HEADERS.split())
        (folder / "table.c").write_text(text + "".join(f"{line}\n" for _, line in lines))
        words = ["gcc", "-std=gnu11", "-w", "-fsyntax-only", "-fno-builtin", "-fmax-errors=0", "table.c"]
        errors = run(*words, cwd=folder, code=None).stderr
        if "No such file" in errors or "__GLIBC__" not in run("gcc", "-E", "-dM", "table.c", cwd=folder).stdout:
            pytest.skip("the headers aren't glibc's")
        found = re.findall(r"table\.c:(\d+):\d+: error", errors)
        names = text.count("\n")
        return [lines[int(number) - names - 1][0] for number in found]

    return ask


def test_the_headers_agree(refused: Any) -> None:
    lines = declarations()
    assert len(lines) > 600
    assert refused(lines) == []


def test_what_the_headers_do_not_agree_with_is_found(refused: Any) -> None:
    wrong = [("puts", "long (puts)(const char *s);"), ("connect", "int (connect)(int a, const void *b, socklen_t c);")]
    assert refused([wrong[0], ("strlen", "size_t (strlen)(const char *s);"), wrong[1]]) == ["puts", "connect"]


def test_every_function_is_there_once_and_can_be_read() -> None:
    from usdtbuild.tracing.prototypes import prototype_of

    names = [name for name, _ in declarations()]
    assert len(names) == len(set(names))
    for name in names:
        for word in (4, 8):
            assert prototype_of(name, word) is not None, name


def test_names_kinds_and_sizes() -> None:
    from usdtbuild.tracing.prototypes import prototype_of

    def shape(name: str, word: int = 8) -> str:
        found = prototype_of(name, word)
        assert found is not None
        words = [f"{one.name}:{one.kind}:{one.size}" for one in found.arguments]
        return " ".join([*words, f"= {found.result.kind}:{found.result.size}" if found.result else "="])

    assert shape("strncmp") == "s1:string:8 s2:string:8 n:integer:8 = integer:4"
    assert shape("strncmp", 4) == "s1:string:4 s2:string:4 n:integer:4 = integer:4"
    assert shape("strcat") == "dest:string:8 src:string:8 = string:8"
    assert shape("printf") == "format:string:8 = integer:4"
    assert shape("ldexp") == "x:float:8 exp:integer:4 = float:8"
    assert shape("getpid") == "= integer:4"
    assert shape("free") == "ptr:pointer:8 ="
    assert shape("pthread_create").startswith("thread:pointer:8 attr:pointer:8 start_routine:pointer:8 arg:pointer:8")
    assert prototype_of("no_function", 8) is None
