"""`usdt.assert_declared`: what passes, and what a failure tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

DECLARED = """
def test(usdt):
    Path("app.d").write_text({provider!r})
    usdt.assert_declared({binaries}, "app.d"{more})
"""


@pytest.fixture
def check(project: Any, built: Any) -> Any:
    """Compare what was built with the provider file, in which `old` is replaced by `new`."""

    def run_check(old: str = "", new: str = "", more: str = "", binaries: str = "BUILT / 'app'", **numbers: int) -> str:
        provider = (built.folder / "app.d").read_text()
        assert old in provider
        text = provider.replace(old, new, 1) if old else provider
        return str(project(DECLARED.format(provider=text, more=more, binaries=binaries), **(numbers or {"failed": 1})))

    return run_check


def test_what_is_declared_is_there(check: Any) -> None:
    check(passed=1)


def test_several_binaries_count_together(check: Any) -> None:
    check(binaries="[BUILT / 'app', BUILT / 'app.o']", passed=1)


def test_missing_probe_is_named_with_what_to_do(check: Any) -> None:
    said = check("probe asked", "probe gone(int); probe asked")
    assert "missing: app:gone" in said
    assert "call it, or take it out of the provider file" in said
    assert "Traceback" not in said


def test_probe_that_is_not_declared_is_named(check: Any) -> None:
    assert "not declared: app:asked" in check("probe asked(short);", "")


def test_number_of_arguments_is_compared(check: Any) -> None:
    said = check("int count", "int count, int more")
    assert "app:start" in said
    assert "[declared-type]" in said


def test_size_of_an_argument_is_compared(check: Any) -> None:
    assert "argument 1 (long count) has 8 bytes, and the record says 4" in check("int count", "long count")


def test_exceptions_can_be_named(check: Any) -> None:
    check("probe asked", "probe debug__one(int); probe asked", ', missing=["debug-*"]', passed=1)
    check("probe asked(short);", "", ', extra=["app:asked"]', passed=1)


def test_probes_of_another_provider_are_no_concern_of_the_file(
    check: Any, built: Any, run: Any, usdtbuild: Any, tmp_path: Path
) -> None:
    (tmp_path / "mod.d").write_text("provider mod { probe z(int n); };\n")
    usdtbuild("header", "mod.d", cwd=tmp_path)
    (tmp_path / "mod.c").write_text('#include "mod.h"\nvoid mod(int n) { MOD_Z(n); }\n')
    run("gcc", "mod.c", built.folder / "main.c", built.folder / "app.o", "-o", "both", cwd=tmp_path)
    assert "mod:z" in usdtbuild("list", tmp_path / "both").stdout
    check(binaries=repr(str(tmp_path / "both")), passed=1)


def test_file_without_probes_lacks_them_all(check: Any) -> None:
    said = check(binaries="sys.executable")
    assert "missing: app:start, app:numbers, app:asked, app:said, app:seven" in said


def test_missing_files_and_wrong_provider_files_fail_in_one_line(check: Any, project: Any) -> None:
    said = check(binaries="'nowhere/app'")
    assert "no such file" in said
    assert "E   " not in said
    assert "app.d:2:" in check("provider app {", "provider app [")


def test_object_that_was_not_instrumented_is_told_of(built: Any, run: Any, check: Any) -> None:
    run("gcc", "-fPIC", "-c", "app.c", "-o", "plain.o", cwd=built.folder)
    said = check(binaries="BUILT / 'plain.o'")
    assert "calls probes that nobody has turned into sites" in said


def test_semaphores_are_checked(built: Any, check: Any) -> None:
    odd = built.folder / "odd"
    odd.write_bytes((built.folder / "app").read_bytes())
    with odd.open("r+b") as file:
        section: Any = ELFFile(file).get_section_by_name(".probes")
        file.seek(section["sh_offset"])
        file.write(b"\1" * section["sh_size"])
    said = check(binaries="BUILT / 'odd'")
    assert "(app:asked) [semaphore-value]" in said
