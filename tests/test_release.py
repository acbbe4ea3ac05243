"""A release: what `make release-check` looks at, recipes for package managers, and the step for workflows on GitHub."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent
DECLARED = "provider app { probe tick(int); };\n"


@pytest.fixture(scope="module")
def filled(tool: Any, tmp_path_factory: Any) -> Path:
    """The recipes, filled in for a source distribution that lies beside them."""
    folder: Path = tmp_path_factory.mktemp("recipes")
    url = f"file://{folder}/usdtbuild.tar.gz"
    assert tool("release").main(["--recipes", str(folder), "--url", url]) == 0
    (sdist,) = folder.glob("usdtbuild-*.tar.gz")
    shutil.copy(sdist, folder / "usdtbuild.tar.gz")
    return folder


def test_links_of_the_readme_lead_to_the_tag(tool: Any) -> None:
    text = "[a](docs/a.md) ![b](docs/b.svg) [c](https://c.org) [d](#d) `[e]` (f)"
    wanted = "[a](S/blob/v1/docs/a.md) ![b](S/raw/v1/docs/b.svg) [c](https://c.org) [d](#d) `[e]` (f)"
    assert tool("readme_hook").absolute(text, "S", "v1") == wanted


def test_one_version_everywhere(tool: Any) -> None:
    tool("release").one_version(None)


def test_a_version_that_differs_is_told(tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    release = tool("release")
    monkeypatch.setattr(release, "version", lambda: "9.9.9")
    with pytest.raises(release.WrongError, match=r"CHANGELOG.md says .*9\.9\.9"):
        release.one_version(None)


def test_the_sources_of_uplot_are_of_its_version() -> None:
    banner = re.compile(r"\(v([\d.]+)\)")
    minified = (ROOT / "usdtbuild/tracing/outputs/page/uPlot.iife.min.js").read_text()[:200]
    source = (ROOT / "third_party/uPlot/uPlot.iife.js").read_text()[:1000]
    assert banner.findall(minified) == banner.findall(source) != []


def test_recipes_can_be_read(filled: Path, need: Any, run: Any, tmp_path: Path) -> None:
    for path in filled.rglob("*"):
        if path.is_file() and path.suffix != ".gz":
            assert not re.search(r"@[A-Z0-9_]+@", path.read_text()), path
    for name in ("conan/conanfile.py", "spack/package.py"):
        compile((filled / name).read_text(), name, "exec")
    assert json.loads((filled / "vcpkg/vcpkg.json").read_text())["name"] == "usdtbuild"
    text = re.sub(r"\{%.*%\}|[{}]{2}", "", (filled / "conda/meta.yaml").read_text())
    conda = yaml.safe_load(text)
    assert "click >=8.1" in conda["requirements"]["run"]
    # CMake reads the port: its commands do nothing here.
    port = (filled / "vcpkg/portfile.cmake").read_text()
    names = re.findall(r"^((?:x_)?vcpkg_\w+)\(", port, re.MULTILINE)
    stand_ins = "".join(f"function({name})\nendfunction()\n" for name in dict.fromkeys(names))
    (tmp_path / "read.cmake").write_text(
        f"set(CURRENT_PACKAGES_DIR {tmp_path})\n{stand_ins}include({filled}/vcpkg/portfile.cmake)\n"
    )
    run(need("cmake"), "-P", tmp_path / "read.cmake")
    assert "USDTBuildConfig.cmake" in (tmp_path / "share/usdtbuild/usdtbuild-config.cmake").read_text()


@pytest.mark.slow
def test_recipes_are_taken_by_what_reads_them(filled: Path, need: Any, run: Any, tmp_path: Path) -> None:
    run(need("nix-instantiate"), "--parse", filled / "nix/package.nix")
    assert "Syntax OK" in run(need("ruby"), "-c", filled / "homebrew/usdtbuild.rb").stdout
    (tmp_path / "SOURCES").mkdir()
    shutil.copy(filled / "usdtbuild.tar.gz", tmp_path / "SOURCES")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # the Python that has hatchling
    words = [need("rpmbuild"), "--define", f"_topdir {tmp_path}", "--nodeps", "-bb", filled / "rpm/usdtbuild.spec"]
    run(*words, env={**os.environ, "PATH": path})
    (package,) = tmp_path.rglob("*.rpm")
    inside = run("rpm", "-qpl", package).stdout.splitlines()
    assert {"/usr/bin/usdtbuild", "/usr/share/man/man1/usdtbuild.1"} <= set(inside)


@pytest.mark.slow
def test_all_checks_but_those_of_the_checkout_itself(tool: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    release = tool("release")
    monkeypatch.delitem(release.CHECKS, "everything is committed")
    monkeypatch.delitem(release.CHECKS, "no known vulnerabilities")  # tests/test_supply.py, and a network
    assert release.main([]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(("stale", "code"), [(False, 0), (True, 1)])
def test_the_workflow_step_does_what_it_says(
    stale: bool, code: int, usdtbuild: Any, need: Any, run: Any, tmp_path: Path
) -> None:
    """Its shell parts are run as GitHub runs them, but for the installation."""
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b/app.d").write_text(DECLARED)
    usdtbuild("header", "app.d", cwd=tmp_path / "a b")
    (tmp_path / "hello.d").write_text("import std.stdio;\n")  # the language D
    (tmp_path / "hello.h").write_text("int hello(void);\n")
    (tmp_path / "main.c").write_text('#include "a b/app.h"\nint main(int c, char **v) { (void)v; APP_TICK(c); }\n')
    run(need("gcc"), "main.c", "-o", "app", cwd=tmp_path)
    if stale:
        (tmp_path / "a b/app.d").write_text(DECLARED.replace("int", "int, char *"))
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"][1:]
    inputs = {"HEADERS": ".", "VERIFY": "app", "PROVIDER": "a b/app.d"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for step in steps:
        assert set(step["env"]) <= set(inputs)
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        run(*words, cwd=tmp_path, env={**os.environ, **inputs, "PATH": path}, code=code)
