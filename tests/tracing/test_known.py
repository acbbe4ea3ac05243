"""Well-known programs' probes have names and types: held to what their packages' records say, where those are here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.inspection.probes import inspect
from usdtbuild.inspection.targets import files
from usdtbuild.tracing.known import FILE, declared, known_arguments

# Programs of Debian with probes: the package, whichever release has it, and how many of its probes are declared.
PACKAGES = {
    "postgresql-15": 57, "postgresql-17": 57, "libvirt0": 40, "libvirt-daemon-driver-qemu": 8, "libruby3.1": 22,
    "openjdk-17-jre-headless": 44, "openjdk-21-jre-headless": 44, "php8.2-cli": 11, "libpython3.11": 8,
    "libpython3.13": 5, "libstdc++6": 3, "sssd-common": 24,
}  # fmt: skip
PROVIDER = """
provider postgresql {
    probe buffer__read__start(int f, unsigned b, unsigned t, unsigned d, unsigned r, int w, bool e);
    probe buffer__read__done(int f, unsigned b, unsigned t, unsigned d, unsigned r, int w, bool h);
    probe query__start(char *q, int other);
    probe transaction__start(int small);
    probe lwlock__release(short too_narrow);
};
provider libvirt {
    probe rpc_socket_new(void *s, unsigned long fd, unsigned long e, unsigned long p, char *a, char *r);
};
provider unheard { probe of(int one); };
"""
PROGRAM = """
#include "app.h"
int main(void)
{
    static volatile short narrow = 5;
    POSTGRESQL_BUFFER_READ_START(0, 1, 2, 3, 4, 5, 1);
    POSTGRESQL_BUFFER_READ_DONE(0, 1, 2, 3, 4, 5, 1);
    POSTGRESQL_QUERY_START("select 1", 7);
    POSTGRESQL_TRANSACTION_START(-1);
    POSTGRESQL_LWLOCK_RELEASE(narrow);
    LIBVIRT_RPC_SOCKET_NEW(0, 3, (unsigned long)-1, 77, "here", 0);
    UNHEARD_OF(9);
    return 0;
}
"""


@pytest.fixture(scope="module")
def famous(run: Any, tmp_path_factory: pytest.TempPathFactory, compiled: Any, header_of: Any) -> Path:
    """Build a program that has probes of well-known names, and no description of them."""
    folder = tmp_path_factory.mktemp("famous")
    folder.chmod(0o755)
    header_of(folder, "app.d", PROVIDER)
    compiled(folder, "app.c", PROGRAM, "-O1")
    run("objcopy", "--remove-section=.usdtbuild.provider", "app", cwd=folder)
    return folder / "app"


def test_a_version_s_arguments_have_its_names(famous: Path, usdtbuild: Any) -> None:
    hits = usdtbuild("trace", "--", famous).stdout
    shown = re.sub(r"arg0=\d{6,}", "arg0=TEXT", hits)
    assert re.findall(r"(?m)((?:postgresql|libvirt|unheard):\w+ .*=.*)$", shown) == [
        "postgresql:buffer__read__start fork=0 block=1 tablespace=2 database=3 relation=4 backend=5 extend=1",
        "postgresql:buffer__read__done fork=0 block=1 tablespace=2 database=3 relation=4 backend=5 hit=1",
        "postgresql:query__start arg0=TEXT arg1=7",  # PostgreSQL's has one argument
        "postgresql:transaction__start id=4294967295",
        "postgresql:lwlock__release arg0=5",  # two bytes are no pointer
        'libvirt:rpc_socket_new socket=0x0 fd=3 error_fd=-1 pid=77 local="here" remote=NULL',
        "unheard:of arg0=9",
    ]


def test_a_provider_file_of_the_user_comes_first(famous: Path, usdtbuild: Any) -> None:
    famous.with_name("mine.d").write_text("provider postgresql { probe transaction__start(int mine); };\n")
    hits = usdtbuild("trace", "-P", "*:transaction*", "--provider", famous.with_name("mine.d"), "--", famous).stdout
    assert "postgresql:transaction__start mine=-1" in hits


def test_every_declaration_is_found_by_its_provider() -> None:
    text = FILE.read_text("utf-8")
    names = set(re.findall(r"^provider (\w+) \{$", text, re.MULTILINE))
    assert {"postgresql", "mysql", "libvirt", "qemu", "ruby", "node", "python", "libstdcxx", "libc"} <= names
    found = [one for name in names for one in declared(name)]
    assert sum(len(one.probes) for one in found) == text.count("    probe ")
    shapes = [(one.name, probe.name, len(probe.arguments)) for one in found for probe in one.probes]
    assert len(set(shapes)) == len(shapes)  # of two with as many arguments the second would never be meant
    assert all(argument.name for one in found for probe in one.probes for argument in probe.arguments)


@pytest.mark.parametrize("name", ["", ".*", "python {", "unheard", "x" * 10000])
def test_a_name_from_a_file_is_no_pattern(name: str) -> None:
    assert declared(name) == ()


def test_a_program_of_no_known_provider_costs_no_parser(famous: Path) -> None:
    code = (
        "import sys\nfrom usdtbuild.inspection.targets import Loaded, files\n"
        "from usdtbuild.tracing.selection import Wanted, targets_in\n"
        f"(image,) = files({str(famous)!r}, print)\n"
        "print(len([*targets_in(Loaded(image, 0), Wanted((sys.argv[1],)))]))\n"
        "print('usdtbuild.provider.parser' in sys.modules)\n"
    )
    for pattern, said in (("unheard:*", "1\nFalse"), ("libvirt:*", "1\nTrue")):
        done = subprocess.run([sys.executable, "-c", code, pattern], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == said


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_declarations_are_those_of_debian_s_packages(package: str, run: Any, need: Any, tmp_path: Path) -> None:
    done = run(need("apt-get"), "download", package, cwd=tmp_path, code=None)
    archives = [*tmp_path.glob("*.deb")]
    if not archives:
        pytest.skip(f"this system's archive has no {package}: {done.stderr.strip()[-100:]}")
    run(need("dpkg-deb"), "-x", archives[0], tmp_path / "root")
    found: dict[tuple[str, str], bool] = {}
    for path in (tmp_path / "root").rglob("*"):
        if path.is_symlink() or not path.is_file() or b".note.stapsdt" not in path.read_bytes():
            continue
        for probe in (one for image in files(str(path), print) for one in inspect(image).probes):
            if probe.provider != "hotspot_jni":
                found[probe.provider, probe.name] = all(_is_declared(probe, site.arguments) for site in probe.sites)
    assert not [name for name, is_declared in found.items() if not is_declared]
    assert len(found) >= PACKAGES[package] - 1


def _is_declared(probe: Any, arguments: Any) -> bool:
    operands = [one.operand for one in arguments]
    return not operands or len(known_arguments(probe.provider, probe.name, operands, 8)) == len(operands)
