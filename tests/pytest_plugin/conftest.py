"""A program and an extension module with probes, and a folder in which pytest runs tests that use the plugin."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PROVIDER = """
provider app {
    probe start(char *name, int count);
    probe numbers(int8_t small, uint32_t large, long long longest, double real, float half);
    probe asked(short);
    probe said(char *);
    probe seven(int, int, int, int, int, int, int last);
};
"""
SOURCE = """
#include <stdio.h>
#include <string.h>
#include "app.h"
int go(const char *name, int count);
int go(const char *name, int count)
{
    APP_START(name, count);
    APP_NUMBERS(-5, 4000000000u, -5000000000ll, 0.5, 1.25f);
    if (APP_ASKED_ENABLED())
        APP_ASKED(-300);
    if (count == 77) {
        APP_SAID("a literal that the program never reads");
        APP_SEVEN(1, 2, 3, 4, 5, 6, -7);
    }
    return count + 1;
}
"""
MAIN = """
#include <stdio.h>
#include <stdlib.h>
int go(const char *name, int count);
int main(int count, char **words)
{
    char line[100] = "";
    if (fgets(line, sizeof line, stdin))
        printf("read %s", line);
    for (int i = 1; i < count; i++)
        go(words[i], i);
    if (count == 1)
        go(NULL, 77);
    fprintf(stderr, "LINES=%s\\n", getenv("LINES") ? getenv("LINES") : "none");
    return count == 4 ? abort(), 0 : count;
}
"""
MODULE = """
#include <Python.h>
int go(const char *name, int count);
static PyObject *method(PyObject *self, PyObject *arguments)
{
    const char *name;
    int count;
    if (!PyArg_ParseTuple(arguments, "si", &name, &count))
        return NULL;
    return PyLong_FromLong(go(name, count));
}
static PyMethodDef methods[] = {{"go", method, METH_VARARGS, ""}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "appmodule", NULL, 0, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit_appmodule(void) { return PyModule_Create(&definition); }
"""


class Built(NamedTuple):
    """A folder with `app.d`, and what was made of it."""

    folder: Path
    program: Path
    module: Path


@pytest.fixture(scope="session")
def built(run: Any, usdtbuild: Any, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Everything, built once."""
    folder = tmp_path_factory.mktemp("built")
    for name, text in {"app.d": PROVIDER, "app.c": SOURCE, "main.c": MAIN, "module.c": MODULE}.items():
        (folder / name).write_text(text)
    usdtbuild("header", "--formats=dof", "app.d", "-o", "app.h", cwd=folder)
    usdtbuild("cc", "--", "gcc", "-O1", "-fPIC", "-c", "app.c", cwd=folder)
    run("gcc", "main.c", "app.o", "-o", "app", cwd=folder)
    include = sysconfig.get_path("include")
    if Path(include, "Python.h").exists():
        run("gcc", "-shared", "-fPIC", f"-I{include}", "module.c", "app.o", "-o", "appmodule.so", cwd=folder)
    return Built(folder, folder / "app", folder / "appmodule.so")


@pytest.fixture
def project(built: Built, run: Any, tmp_path: Path) -> Callable[..., str]:
    """Write tests and run pytest on them in a process of its own: `project("def test(usdt): ...", "-q", failed=1)`.

    The tests find the folder of what was built in BUILT. Returns what pytest said; the numbers of tests are checked.
    """

    def run_pytest(tests: str, *options: str, env: Any = None, **numbers: int) -> str:
        (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
        header = (
            f"import ctypes, os, sys\nfrom pathlib import Path\nimport pytest\nBUILT = Path({str(built.folder)!r})\n"
        )
        (tmp_path / "test_it.py").write_text(header + tests)
        words = [
            sys.executable,
            "-m",
            "pytest",
            "-rs",
            "-p",
            "no:cacheprovider",
            "-p",
            "usdtbuild.pytest_plugin",
            *options,
        ]
        # Other plugins take a second to load, each time.
        variables = {**(os.environ if env is None else env), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        said = str(run(*words, cwd=tmp_path, env=variables, code=None).stdout)
        summary = said.splitlines()[-1]
        for outcome in ("passed", "failed", "skipped", "error"):
            wanted = numbers.get(outcome, 0)
            assert (f"{wanted} {outcome}" in summary) if wanted else (f" {outcome}" not in summary), said
        return said

    return run_pytest
