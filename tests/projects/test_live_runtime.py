"""The runtime of usdt_live.h in each build system: a project asks in one line, and its own test switches probes."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLE = ROOT / "sample_projects" / "live-metrics"
pytestmark = [
    pytest.mark.project,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the samples are run, and natively on x86-64 only"),
]

MESON = """
project('live-metrics', 'c')
usdt_provider = subproject('usdtbuild', default_options: 'live=true').get_variable('usdt_provider')
shop = static_library('shop', 'shop.c', usdt_provider.process('shop_probes.d'), dependencies: dependency('usdtbuild'))
live = dependency('usdtbuild-live')
server = executable('server', 'server.c', 'metrics.c', link_with: shop, dependencies: live)
test('page', server, args: '--self-test')
test('probes fire', executable('test_probes', 'test_probes.c', link_with: shop, dependencies: live))
"""
MODULE = r"""
#include <Python.h>
#include "usdt_live.h"
#include "shop.h"
static PyObject *probe(PyObject *self, PyObject *args)
{
	int on = usdt_live_probe_on("shop:*", NULL, NULL), i;
	for (i = 0; i < 5; i++) SHOP_ORDER_START("pear", i);
	usdt_live_probe_off("*");
	return Py_BuildValue("iK", on, usdt_live_count(USDT_LIVE_PROBES, "shop:order-start"));
}
static PyMethodDef methods[] = {{"probe", probe, METH_NOARGS, ""}, {0}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "shop", "", -1, methods, 0, 0, 0, 0};
PyMODINIT_FUNC PyInit_shop(void) { return PyModule_Create(&definition); }
"""
SETUP = """
from setuptools import Extension, setup
setup(name="shop", version="1", ext_modules=[Extension("shop", ["module.c"])])
"""


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of a shell in which this checkout's command is on the path."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def test_cmake_target(run: Any, need: Any, tmp_path: Path, environment: dict[str, str]) -> None:
    need("cmake")
    need("ninja")
    build = tmp_path / "build"
    run("cmake", "-S", SAMPLE, "-B", build, "-G", "Ninja", f"-DUSDTBuild_DIR={ROOT / 'cmake'}", env=environment)
    assert "launcher" not in (build / "build.ninja").read_text()  # the header's NOPs have room for a jump
    run("cmake", "--build", build, env=environment)
    out = run("ctest", "--test-dir", build, env=environment).stdout
    assert "100% tests passed, 0 tests failed out of 3" in out


def test_probes_are_tested_with_googletest(run: Any, need: Any, tmp_path: Path, environment: dict[str, str]) -> None:
    need("cmake")
    need("ninja")
    build, sample = tmp_path / "build", SAMPLE.parent / "probes-in-googletest"
    configure = ("cmake", "-S", sample, "-B", build, "-G", "Ninja", f"-DUSDTBuild_DIR={ROOT / 'cmake'}")
    done = run(*configure, env=environment, code=None)
    if done.returncode and "GTest" in done.stderr:
        pytest.skip("GoogleTest is not installed")
    assert done.returncode == 0, done.stderr
    run("cmake", "--build", build, env=environment)
    assert "[  PASSED  ] 4 tests." in run(build / "cache_tests").stdout
    # A probe that tells something else fails them.
    project = tmp_path / "wrong"
    shutil.copytree(sample, project)
    source = project / "cache.cpp"
    source.write_text(source.read_text().replace("clock_ - oldest.used", "clock_"))
    run("cmake", "-S", project, *configure[3:4], tmp_path / "other", *configure[5:], env=environment)
    run("cmake", "--build", tmp_path / "other", env=environment)
    out = run(tmp_path / "other" / "cache_tests", code=1).stdout
    assert "[  FAILED  ] Probes.TellTheAgeOfWhatIsForgotten" in out


def test_meson_dependency(run: Any, need: Any, tmp_path: Path, environment: dict[str, str]) -> None:
    need("ninja")
    folders = [environment["PATH"], *map(str, sorted((ROOT / ".cache").glob("meson-*/bin")))]  # the newest first
    meson = shutil.which("meson", path=os.pathsep.join(folders))
    if meson is None:
        pytest.skip("meson is not installed")
    environment = {**environment, "PYTHONPATH": str(Path(meson).parent.parent)}
    project = tmp_path / "project"
    shutil.copytree(SAMPLE, project)
    (project / "shop.d").rename(project / "shop_probes.d")
    run(sys.executable, "-m", "usdtbuild", "vendor", "meson", cwd=project, env=environment)
    (project / "meson.build").write_text(MESON.partition("live = ")[0])
    run(meson, "setup", "without", cwd=project, env=environment)
    compiled = json.loads((project / "without/compile_commands.json").read_text())
    assert [one["file"] for one in compiled] == ["../shop.c"]
    (project / "meson.build").write_text(MESON)
    run(meson, "setup", "build", cwd=project, env=environment)
    out = run(meson, "test", "-C", "build", cwd=project, env=environment).stdout
    assert re.search(r"^Ok: +2 *$", out, re.MULTILINE)
    assert re.search(r"^Fail: +0 *$", out, re.MULTILINE)


def test_setuptools_option(run: Any, tmp_path: Path, environment: dict[str, str]) -> None:
    pytest.importorskip("setuptools")
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "module.c").write_text(MODULE)
    shutil.copy(SAMPLE / "shop.d", tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.usdtbuild]\nproviders = ["shop.d"]\nlive = true\n')
    run(sys.executable, "setup.py", "-q", "build_ext", "--inplace", cwd=tmp_path, env=environment)
    out = run(sys.executable, "-c", "import shop; print(shop.probe())", cwd=tmp_path).stdout
    sites, hits = map(int, re.findall(r"\d+", out))
    assert hits == 5
    assert sites >= 1  # a compiler may unroll the loop
