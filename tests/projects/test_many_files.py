"""A project of hundreds of C files with the launcher before every compile and link, and probes in three of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PROBES = {"echoed": "coreutils/echo.o", "named": "coreutils/dirname.o", "said_true": "coreutils/true.o"}
pytestmark = [pytest.mark.project, pytest.mark.slow]


@pytest.fixture(scope="module")
def busybox(run: Any, need: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """busybox, built without and with probes by the benchmark that says what the launcher costs."""
    need("make")
    need("gcc")
    fetched = run(sys.executable, ROOT / "tools" / "sources.py", "busybox", timeout=1500, code=None)
    if fetched.returncode:
        pytest.skip(fetched.stderr.strip())
    folder = tmp_path_factory.mktemp("busybox")
    run(sys.executable, ROOT / "benchmarks" / "builds.py", "--build", folder, timeout=3600)
    return folder


def test_objects_without_probes_are_the_compiler_s(busybox: Path) -> None:
    plain = {str(path.relative_to(busybox / "plain")): path for path in (busybox / "plain").rglob("*.o")}
    compiled = [name for name, path in plain.items() if path.with_suffix(".c").exists()]
    assert len(compiled) >= 500
    changed = {name for name in compiled if (busybox / "probed" / name).read_bytes() != plain[name].read_bytes()}
    assert changed == set(PROBES.values())


def test_make_has_nothing_left_to_do(busybox: Path, run: Any) -> None:
    """Dates and dependency files are as the compiler leaves them."""
    again = run("make", "SKIP_STRIP=y", cwd=busybox / "plain").stdout
    assert " CC " not in again
    command = (busybox / "probed" / "coreutils" / ".echo.o.cmd").read_text()
    compiler = command.split(":=", 1)[1].split(" -Wp,")[0].strip()
    assert " CC " not in run("make", "SKIP_STRIP=y", f"CC={compiler}", cwd=busybox / "probed").stdout


def test_the_program_has_its_probes(busybox: Path, usdtbuild: Any, run: Any) -> None:
    program = busybox / "probed" / "busybox_unstripped"
    found = json.loads(usdtbuild("list", "--json", program).stdout)["files"][0]["probes"]
    assert {probe["name"]: len(probe["sites"]) for probe in found} == dict.fromkeys(PROBES, 1)
    said = json.loads(usdtbuild("verify", "--json", program).stdout)["files"][0]["findings"]
    assert [each for each in said if each["severity"] != "note"] == []
    assert run(program, "dirname", "/a/b").stdout == "/a\n"


@pytest.mark.live
def test_the_probes_fire(busybox: Path, trace: Any) -> None:
    program = busybox / "probed" / "busybox_unstripped"
    script = f"""
        usdt:{program}:box:echoed {{ printf("echoed %d\\n", arg0); }}
        usdt:{program}:box:named {{ printf("named %s\\n", str(arg0)); }}
        usdt:{program}:box:said_true {{ printf("true\\n"); }}
    """
    seen = trace(script, program, "sh", "-c", f"echo a b; {program} dirname /a/b; {program} true")
    # What a word of `echo` is: itself, the blank behind it, and the end of the line.
    assert sorted(seen) == ["echoed 4", "named /a/b", "true"]
