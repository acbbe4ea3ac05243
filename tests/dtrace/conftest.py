"""What the tests of the classic tool share: the installed program, compiling, and reading what came of it.

The records are read with readelf and not with our own reader.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ..conftest import C_LIBRARIES

SYSTEMTAP = "/usr/bin/dtrace"

APP = """\
provider app {
  probe req__start(int fd, char *path);
  probe req__done(int fd, const char *path, size_t length);
  probe idle();
};
"""
MAIN = """\
#include "app.h"

int main(int argc, char **argv)
{
	const char *path = argv[0];
	APP_REQ_START(argc + 41, path);
	if (APP_REQ_DONE_ENABLED())
		APP_REQ_DONE(argc, path, 1234);
	APP_IDLE();
	return 0;
}
"""
# Of calls, and of probes that are complete in the header: constants, and what is in registers that the compiler chose,
# of which there are only the sizes here. They show an integer as it was passed (1234 is an int).
SITES = [("app", "req__start", "-4@%edi 8@%rsi"), ("app", "req__done", "-4@%edi 8@%rsi 8@%rdx"), ("app", "idle", "")]
COMPLETE_SITES = [("app", "req__start", "-4 8"), ("app", "req__done", "-4 8 -8"), ("app", "idle", "")]


class Note(NamedTuple):
    """One SDT note as readelf shows it."""

    provider: str
    name: str
    arguments: str
    location: int
    base: int
    semaphore: int

    @property
    def what(self) -> tuple[str, str, str]:
        return (self.provider, self.name, self.arguments)

    @property
    def sizes(self) -> tuple[str, str, str]:
        """The same with the sizes alone, of a site whose operands are all constants or registers of x86-64."""
        operands = self.arguments.split()
        assert all(re.fullmatch(r"-?[1248]@(%[er]\w\w?|\$-?\d+)", operand) for operand in operands), operands
        return (self.provider, self.name, " ".join(operand.partition("@")[0] for operand in operands))


_NOTE = re.compile(
    r"Provider: (.*)\n\s*Name: (.*)\n\s*Location: (\w+), Base: (\w+), Semaphore: (\w+)\n\s*Arguments: ?(.*)\n"
)


@pytest.fixture(scope="session")
def notes(run: Any) -> Callable[[Path], list[Note]]:
    """Return the SDT notes of a file, sorted."""

    def read(path: Path) -> list[Note]:
        # readelf shows notes of other owners, too, if they look like these, and complains about them.
        text = run("readelf", "-nW", path, code=None).stdout
        found = [
            Note(provider, name, arguments, *(int(number, 16) for number in numbers))
            for provider, name, *numbers, arguments in _NOTE.findall(text)
        ]
        assert len(found) == text.count("Provider:")
        return sorted(note for note in found if note.provider not in {"", *C_LIBRARIES})

    return read


@pytest.fixture(scope="session")
def made(run: Any, notes: Any) -> Callable[..., list[Note]]:
    """Make a program by a command, run it, and return its notes: `made(app, "gcc", "main.o")`."""

    def make(folder: Path, *command: Any) -> list[Note]:
        run(*command, "-o", "program", cwd=folder)
        run("./program", cwd=folder)
        return list(notes(folder / "program"))

    return make


@pytest.fixture(scope="session")
def program(usdtbuild: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that `usdtbuild install-dtrace` makes, in a folder whose name is not plain."""
    folder = tmp_path_factory.mktemp("a bin") / "für $builds"
    usdtbuild("install-dtrace", folder)
    return folder / "dtrace"


@pytest.fixture(scope="session")
def dtrace(run: Any, program: Path) -> Any:
    """Run the installed program: `dtrace("-h", "-s", "app.d", cwd=folder)`."""

    def run_dtrace(*arguments: Any, **more: Any) -> Any:
        return run(program, *arguments, **more)

    return run_dtrace


@pytest.fixture
def app(tmp_path: Path, dtrace: Any) -> Path:
    """A folder with a provider file, its header and a program."""
    (tmp_path / "app.d").write_text(APP)
    (tmp_path / "main.c").write_text(MAIN)
    dtrace("-h", "-s", "app.d", "-o", "app.h", cwd=tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def systemtap() -> str:
    """SystemTap's program of the same name, to compare with."""
    if not shutil.which(SYSTEMTAP):
        pytest.skip("SystemTap's dtrace is not installed (systemtap-sdt-dev)")
    return SYSTEMTAP
