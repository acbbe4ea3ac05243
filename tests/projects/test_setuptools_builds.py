"""Extension modules with probes, built by setuptools: what is compiled when, and what is in the result.

One project, with every way to ask: a C extension named in pyproject.toml, a C++ extension with provider files among its
sources, and one without probes. With the oldest setuptools we support, and the newest.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.project

EXTENSION = """\
#include <Python.h>
%(include)s
static PyObject *call(PyObject *module, PyObject *number)
{
    long value = PyLong_AsLong(number);
    %(probes)s
    return PyLong_FromLong(value + 1);
}
static PyMethodDef methods[] = {{"call", call, METH_O, ""}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "%(name)s", 0, -1, methods, 0, 0, 0, 0};
PyMODINIT_FUNC PyInit_%(name)s(void) { return PyModule_Create(&definition); }
"""


def extension(name: str, include: str = "", probes: str = "") -> str:
    """A whole extension module with one function, call(number)."""
    return EXTENSION % {"name": name, "include": include, "probes": probes}


FILES = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools>=61", "usdtbuild"]
build-backend = "setuptools.build_meta"
[project]
name = "demo"
version = "1.0"
[tool.setuptools.packages.find]
where = ["src"]
[tool.usdtbuild.extensions."demo.one"]
providers = ["one.d"]
""",
    "setup.py": """\
from setuptools import Extension, setup
setup(ext_modules=[
    Extension("demo.one", ["src/one.c"]),
    Extension("demo.two", ["src/two.cpp", "probes/two.d", "one.d"]),
    Extension("demo.plain", ["src/plain.c"]),
])
""",
    "one.d": "provider one { probe called(long value); };\n",
    "probes/two.d": "provider two { probe called(long value, char *text); };\n",
    "src/demo/__init__.py": "",
    "src/one.c": extension("one", '#include "one.h"', "ONE_CALLED(value);"),
    "src/two.cpp": extension(
        "two", '#include "one.h"\n#include "two.h"', 'ONE_CALLED(value); TWO_CALLED(value, "two");'
    ),
    "src/plain.c": extension("plain"),
}
ALL = ["one.c", "plain.c", "two.cpp"]
INPLACE = ("build_ext", "--inplace")


def probes_of(usdtbuild: Any, *files: Path) -> list[str]:
    """The probes of finished files, as provider:probe."""
    shown = json.loads(usdtbuild("list", "--json", *files).stdout)
    return sorted(f"{p['provider']}:{p['name']}" for file in shown["files"] for p in file["probes"])


@pytest.fixture(scope="module", params=["newest", "oldest"])
def demo(request: Any, make_python_project: Any, tmp_path_factory: Any) -> Any:
    """The project, built in place."""
    project = make_python_project(tmp_path_factory.mktemp("demo"), request.param)
    project.write(FILES)
    project.setup(*INPLACE)
    project.first_build = project.compiled()
    return project


def test_first_build_compiles_each_source_once(demo: Any) -> None:
    assert demo.first_build == ALL


def test_the_modules_have_their_probes_and_work(demo: Any, usdtbuild: Any) -> None:
    assert probes_of(usdtbuild, demo.module("one")) == ["one:called"]
    assert probes_of(usdtbuild, demo.module("two")) == ["one:called", "two:called"]
    usdtbuild("verify", demo.module("one"), demo.module("two"))
    code = "from demo import one, two, plain; print(one.call(1), two.call(2), plain.call(3))"
    assert demo("-c", code, PYTHONPATH="src").split() == ["2", "3", "4"]


def test_launcher_is_there_for_post_processed_formats_alone(demo: Any, usdtbuild: Any) -> None:
    for formats, launched in (("dof,stapsdt", {"one.c", "two.cpp"}), ("", set())):
        said = demo.setup(*INPLACE, "--force", USDTBUILD_FORMATS=formats)
        lines = {Path(m[1]).name: m[0] for m in re.finditer(r"^.* -c (\S+) .*$", said, re.MULTILINE)}
        assert sorted(lines) == ALL
        assert {name for name, line in lines.items() if "launcher.py" in line} == launched
        assert probes_of(usdtbuild, demo.module("one")) == ["one:called"] * (2 if formats else 1)
        assert probes_of(usdtbuild, demo.module("plain")) == []
    demo.compiled()


def test_nothing_changed_compiles_nothing(demo: Any) -> None:
    demo.setup(*INPLACE)
    assert demo.compiled() == []


def test_touching_a_provider_file_compiles_nothing(demo: Any) -> None:
    os.utime(demo.source / "one.d")
    demo.setup(*INPLACE)
    assert demo.compiled() == []


def test_a_changed_provider_file_compiles_exactly_its_users(demo: Any) -> None:
    demo.edit("probes/two.d", "};", "probe more(); };")
    demo.setup(*INPLACE)
    assert demo.compiled() == ["two.cpp"]
    demo.edit("one.d", "};", "probe more(); };")
    demo.setup(*INPLACE)
    assert demo.compiled() == ["one.c", "two.cpp"]


def test_a_provider_file_with_an_older_date_is_noticed(demo: Any) -> None:
    demo.edit("one.d", "};", "probe old(); };")
    os.utime(demo.source / "one.d", (1_000_000_000, 1_000_000_000))  # as cp -p and tar bring them
    demo.setup(*INPLACE)
    assert demo.compiled() == ["one.c", "two.cpp"]


def test_a_changed_source_compiles_its_extension(demo: Any) -> None:
    demo.edit("src/one.c", "value + 1", "value + 1 + 0")
    demo.setup(*INPLACE)
    assert demo.compiled() == ["one.c"]


def test_other_settings_compile_what_they_are_for(demo: Any) -> None:
    demo.wait()
    demo.setup(*INPLACE, USDTBUILD_NOP="nop5")
    assert demo.compiled() == ["one.c", "two.cpp"]
    demo.setup(*INPLACE, USDTBUILD_NOP="nop5")
    assert demo.compiled() == []
    demo.wait()
    demo.setup(*INPLACE)
    assert demo.compiled() == ["one.c", "two.cpp"]


def test_a_wrong_use_is_the_compilers_error_and_the_next_build_mends_it(demo: Any) -> None:
    demo.edit("src/one.c", "ONE_CALLED(value)", "ONE_CALLED(value, 7)")
    said = demo.setup(*INPLACE, code=1)
    assert "src/one.c:" in said
    assert "Traceback" not in said
    demo.edit("src/one.c", "ONE_CALLED(value, 7)", "ONE_CALLED(value)")
    demo.compiled()
    demo.setup(*INPLACE)
    assert demo.compiled() == ["one.c"]


def test_an_error_in_a_provider_file_names_the_line(demo: Any) -> None:
    demo.edit("probes/two.d", "long value", "lung value")
    said = demo.setup(*INPLACE, code=1)
    assert "probes/two.d:1:" in said
    assert "lung value" in said
    assert said.rstrip().endswith("error: probes/two.d can't be turned into a header")
    assert "Traceback" not in said
    demo.edit("probes/two.d", "lung value", "long value")
    demo.setup(*INPLACE)
    assert demo.compiled() == []


def test_a_header_whose_provider_is_gone_is_gone_too(demo: Any) -> None:
    demo.edit("setup.py", ', "one.d"', "")
    said = demo.setup(*INPLACE, "--force", code=1)
    assert "one.h" in said
    demo.edit("setup.py", '"probes/two.d"', '"probes/two.d", "one.d"')
    demo.setup(*INPLACE)
    demo.compiled()


def test_parallel_builds_make_the_same(demo: Any) -> None:
    names = ("one", "two", "plain")
    before = {name: demo.module(name).read_bytes() for name in names}
    shutil.rmtree(demo.source / "build")
    for name in names:
        demo.module(name).unlink()
    demo.setup(*INPLACE, "-j2")
    assert demo.compiled() == ALL
    assert {name: demo.module(name).read_bytes() for name in names} == before


def test_source_distributions_have_the_provider_files(demo: Any, run: Any) -> None:
    demo.setup("-q", "sdist", "--dist-dir", demo.source.parent / "sdist")
    archive = next((demo.source.parent / "sdist").glob("*.tar.gz"))
    names = run("tar", "tf", archive).stdout.split()
    assert {"demo-1.0/one.d", "demo-1.0/probes/two.d"} <= set(names)
    assert not [name for name in names if name.endswith((".h", "/settings"))]


# --- with the newest setuptools ---------------------------------------------------------------------------------------


def test_editable_installs_have_the_probes_each_time(
    make_python: Any, make_python_project: Any, tmp_path: Path, usdtbuild: Any
) -> None:
    # An environment of its own, because the project is installed into it.
    project = make_python_project(tmp_path, make_python("usdtbuild", "setuptools", "wheel"))
    project.write(FILES)
    install = ("install", "-q", "--no-build-isolation", "--no-deps", "-e", ".")
    project.pip(*install)
    assert project.compiled() == ALL
    assert probes_of(usdtbuild, project.module("one")) == ["one:called"]
    shown = project("-c", "from demo import one; print(one.call(1), one.__file__)")
    assert shown.split() == ["2", str(project.module("one"))]
    project.edit("probes/two.d", "};", "probe more(); };")
    project.edit("src/two.cpp", "TWO_CALLED", "TWO_MORE(); TWO_CALLED")
    project.pip(*install)
    assert project.compiled() == ALL  # setuptools compiles editable projects anew each time
    assert probes_of(usdtbuild, project.module("two")) == ["one:called", "two:called", "two:more"]
