"""What a Python project can ask setuptools for, and what it is told when it asks for what can't be."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.errors import UsdtError
from usdtbuild.setuptools_options import ExtensionOptions, merge, read_keyword, read_table, with_environment

MODULE = """\
#include <Python.h>
#include "app.h"
static PyObject *call(PyObject *module, PyObject *number)
{
    long value = PyLong_AsLong(number);
    APP_CALLED(value);
    return PyLong_FromLong(value + 1);
}
static PyMethodDef methods[] = {{"call", call, METH_O, ""}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "NAME", 0, -1, methods, 0, 0, 0, 0};
PyMODINIT_FUNC PyInit_NAME(void) { return PyModule_Create(&definition); }
"""
PROVIDER = "provider app { probe called(long value); };\n"
PROJECT = '[project]\nname = "app"\nversion = "1"\n'
BUILD = ("build_ext", "--inplace")


def setup_py(*arguments: str, names: tuple[str, ...] = ("app",)) -> str:
    """A setup.py with a C extension for each name."""
    extensions = ", ".join(f'Extension("{name}", ["src/{name}.c"])' for name in names)
    words = (f"ext_modules=[{extensions}]", "name='app', packages=[], package_dir={'': 'src'}", *arguments)
    return f"from setuptools import Extension, setup\nsetup({', '.join(filter(None, words))})\n"


@pytest.fixture
def app(python_project: Any) -> Any:
    """A project with one extension, `app`, and a provider file that nothing asks for yet."""
    python_project.write({"setup.py": setup_py(), "app.d": PROVIDER, "src/app.c": MODULE.replace("NAME", "app")})
    return python_project


def formats_of(usdtbuild: Any, file: Path) -> set[str]:
    """The formats of a file's records."""
    return {probe["format"] for probe in json.loads(usdtbuild("list", "--json", file).stdout)["files"][0]["probes"]}


# --- reading, without any build ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"provider": ["a.d"]}, "there is no option provider; did you mean providers? (the options are providers, "),
        ({"extension": {}}, "there is no option extension; did you mean extensions?"),
        ({"nonsense": 1}, "there is no option nonsense (the options are"),
        ({"providers": 3}, "providers is a text or a list of texts, not 3"),
        ({"providers": ["a.d", ""]}, "providers is a text or a list of texts, not ['a.d', '']"),
        ({"providers": {"a": "b"}}, "providers is a text or a list of texts"),
        ({"providers": "a.h"}, "providers: a.h is no provider file; their names end in .d"),
        ({"formats": ["elf"]}, "formats is one of stapsdt, dof, usdt, not 'elf'"),
        ({"nop": "fast"}, "nop is one of safe, nop5, nop10, classic, not 'fast'"),
        ({"disabled": "yes"}, "disabled is true or false, not 'yes'"),
        ({"patchable-function-entry": 7}, 'patchable-function-entry is a text: "N,M", such as "7,5", or "auto"; not 7'),
        ({"patchable-function-entry": "seven"}, "patchable-function-entry: 'seven' is not N,M"),
        ({"patchable-function-entry": "5,7"}, "of 5 NOPs 7 can't be before the entry"),
        ({"patchable-table": "small"}, "patchable-table is one of absolute, relative, not 'small'"),
        ({"extensions": ["app"]}, "extensions holds a table for each extension"),
        ({"extensions": {"app": ["a.d"]}}, '[tool.usdtbuild.extensions."app"]: the options of an extension are a'),
        ({"extensions": {"app": {"extensions": {}}}}, 'extensions."app"]: there is no option extensions'),
        ([], "tool.usdtbuild is a table, not []"),
    ],
)
def test_wrong_tables_are_explained(table: Any, message: str) -> None:
    with pytest.raises(UsdtError) as caught:
        read_table(table)
    assert message in str(caught.value)
    assert str(caught.value).startswith("pyproject.toml, [tool.usdtbuild")


@pytest.mark.parametrize(
    ("value", "common", "of_app"),
    [
        ("a.d", ("a.d",), ()),
        (["a.d", Path("b.d")], ("a.d", "b.d"), ()),
        ({"app": "a.d"}, (), ("a.d",)),
        ({"*": ["a.d"], "app": {"providers": ["b.d"], "nop": "nop5"}}, ("a.d",), ("b.d",)),
    ],
)
def test_the_keyword_has_short_and_long_forms(value: Any, common: tuple[str, ...], of_app: tuple[str, ...]) -> None:
    request = read_keyword(value)
    assert request.common.get("providers", ()) == common
    assert request.extensions.get("app", {}).get("providers", ()) == of_app


def test_an_extensions_own_options_win_and_providers_add_up() -> None:
    own = {"providers": ["./a.d", "b.d"], "nop": "safe"}
    table = read_table({"providers": "a.d", "nop": "nop5", "formats": "dof", "extensions": {"x": own}})
    assert merge([table], "x", ("c.d",)) == ExtensionOptions(("a.d", "b.d", "c.d"), ("dof",), "safe")
    assert merge([table], "y", ()) == ExtensionOptions(("a.d",), ("dof",), "nop5")


def test_underscores_do_in_python() -> None:
    request = read_keyword({"app": {"patchable_function_entry": "7,5", "patchable_table": "relative"}})
    assert merge([request], "app", ()) == ExtensionOptions(patchable="7,5", table="relative")


def test_contradictions_are_errors() -> None:
    with pytest.raises(UsdtError, match="patchable-table goes with patchable-function-entry"):
        merge([read_table({"patchable-table": "relative"})], "app", ())
    with pytest.raises(UsdtError, match=r"one/a\.d and two/a\.d would be the same header"):
        merge([read_table({"providers": ["one/a.d", "two/a.d"]})], "app", ())


def test_who_builds_can_disable_and_choose_what_the_project_leaves_open() -> None:
    project = ExtensionOptions(("a.d",), formats=("dof",))
    environment = {"USDTBUILD_FORMATS": "stapsdt,usdt", "USDTBUILD_NOP": "nop5", "USDTBUILD_DISABLED": "0"}
    assert with_environment(project, environment) == ExtensionOptions(("a.d",), ("dof",), "nop5")
    assert with_environment(ExtensionOptions(("a.d",)), environment).formats == ("stapsdt", "usdt")
    assert with_environment(project, {"USDTBUILD_DISABLED": "1"}).disabled
    with pytest.raises(UsdtError, match="USDTBUILD_NOP is one of safe, nop5, nop10, classic, not 'best'"):
        with_environment(project, {"USDTBUILD_NOP": "best"})


# --- in builds --------------------------------------------------------------------------------------------------------


@pytest.mark.project
@pytest.mark.parametrize(
    ("pyproject", "keyword", "message"),
    [
        ('[tool.usdtbuild]\nproviders = ["missing.d"]', "", "error: extension app: there is no provider file missing"),
        ('[tool.usdtbuild.extensions."ap"]\nproviders = ["app.d"]', "", "there is no extension ap; there are app"),
        ('[tool.usdtbuild]\nprovider = ["app.d"]', "", "[tool.usdtbuild]: there is no option provider; did you mean"),
        ("", "usdt_providers={'app': 7}", "error in app setup command: setup(usdt_providers=...), app: providers is"),
        ('[tool.usdtbuild]\nproviders = "app.d"\npatchable-function-entry = "6,6"', "", "6,6"),
    ],
)
def test_wrong_projects_end_with_one_line(app: Any, pyproject: str, keyword: str, message: str) -> None:
    app.write({"pyproject.toml": pyproject, "setup.py": setup_py(keyword)})
    said = app.setup(*BUILD, code=1)
    assert message in said.splitlines()[-1]
    assert "Traceback" not in said
    assert app.compiled() == []


@pytest.mark.project
def test_an_extension_needs_more_than_a_provider_file(app: Any) -> None:
    app.edit("setup.py", "src/app.c", "app.d")
    assert app.setup(*BUILD, code=1).endswith("error: extension app has no source but provider files\n")


@pytest.mark.project
def test_an_optional_extension_may_fail(app: Any) -> None:
    app.write({"setup.py": setup_py("usdt_providers='app.d'").replace('"])', '"], optional=True)')})
    app.edit("app.d", "long", "lung")
    said = app.setup(*BUILD)
    assert "app.d:1:29: error: " in said
    assert 'building extension "app" failed: app.d can\'t be turned into a header' in said


@pytest.mark.project
def test_where_nothing_asks_nothing_is_different(app: Any) -> None:
    assert "app.h" in app.setup(*BUILD, code=1)
    assert not list(app.source.rglob("usdt"))


@pytest.mark.project
@pytest.mark.parametrize(
    ("pyproject", "keyword"),
    [
        ('[tool.usdtbuild]\nproviders = ["app.d"]', ""),
        ('[tool.usdtbuild.extensions.app]\nproviders = "app.d"', ""),
        ("", "usdt_providers='app.d'"),
        ("", "usdt_providers={'app': ['app.d']}"),
        (PROJECT + '[tool.setuptools]\next-modules = [{name = "app", sources = ["src/app.c", "app.d"]}]', "without"),
        # pyproject.toml's own build_ext comes after everybody else's.
        (PROJECT + '[tool.usdtbuild]\nproviders="app.d"\n[tool.setuptools.cmdclass]\nbuild_ext = "other.Other"', ""),
    ],
)
def test_each_way_to_ask_gives_probes(app: Any, usdtbuild: Any, pyproject: str, keyword: str) -> None:
    app.write({
        "pyproject.toml": pyproject,
        "setup.py": setup_py(keyword) if keyword != "without"
        else "from setuptools import setup\nsetup(packages=[], package_dir={'': 'src'})\n",
        "other.py": "from setuptools.command.build_ext import build_ext\nclass Other(build_ext):\n"
        "    def run(self):\n        print('the other one')\n        super().run()\n",
    })  # fmt: skip
    said = app.setup(*BUILD)
    assert ("the other one" in said) == ("cmdclass" in pyproject)
    assert "app:called" in usdtbuild("list", app.module("app")).stdout


@pytest.mark.project
def test_formats_of_extensions_differ_also_in_parallel_builds(app: Any, usdtbuild: Any) -> None:
    app.write({
        "setup.py": setup_py("usdt_providers={'*': 'app.d', 'dof': {'formats': 'dof'}}", names=("app", "dof", "both")),
        "pyproject.toml": '[tool.usdtbuild.extensions.both]\nformats = ["stapsdt", "dof"]',
        "src/dof.c": MODULE.replace("NAME", "dof"),
        "src/both.c": MODULE.replace("NAME", "both").replace("APP_CALLED(", "if (APP_CALLED_ENABLED()) APP_CALLED("),
    })  # fmt: skip
    app.setup(*BUILD, "-j2")
    # DTrace can make ..._ENABLED() true, too.
    assert "enabled-by-semaphore" not in usdtbuild("verify", app.module("both")).stdout
    assert formats_of(usdtbuild, app.module("app")) == {"stapsdt"}
    assert formats_of(usdtbuild, app.module("dof")) == {"dof"}
    assert formats_of(usdtbuild, app.module("both")) == {"stapsdt", "dof"}


@pytest.mark.project
def test_disabled_probes_are_nothing(app: Any, usdtbuild: Any) -> None:
    app.write({"setup.py": setup_py("usdt_providers='app.d'")})
    assert "launcher.py" not in app.setup(*BUILD, USDTBUILD_DISABLED="1")
    assert "no probes found" in usdtbuild("list", app.module("app"), code=None).stderr
    assert app("-c", "import app; print(app.call(4))", PYTHONPATH="src").strip() == "5"
    app.compiled()
    app.setup(*BUILD)
    assert app.compiled() == ["app.c"]
    assert "app:called" in usdtbuild("list", app.module("app")).stdout


@pytest.mark.project
@pytest.mark.parametrize("system", ["macosx-14.0-arm64", "win-amd64"])
def test_other_systems_get_the_module_without_probes(app: Any, usdtbuild: Any, system: str) -> None:
    app.write({"setup.py": setup_py("usdt_providers={'*': {'providers': 'app.d', 'patchable-function-entry': '7,5'}}")})
    said = app.setup(*BUILD, _PYTHON_HOST_PLATFORM=system)  # as cross builds of Python extensions say it
    assert "launcher.py" not in said
    assert "-fpatchable" not in said
    assert "no probes found" in usdtbuild("list", app.module("app"), code=None).stderr
    assert app("-c", "import app; print(app.call(4))", PYTHONPATH="src").strip() == "5"


@pytest.mark.project
@pytest.mark.skipif(platform.machine() != "x86_64", reason="7,5 is for x86-64")
def test_patchable_entries_are_checked_once_and_made(app: Any, usdtbuild: Any) -> None:
    tables = "'patchable-table': 'relative', 'site-table': True"
    options = f"'providers': 'app.d', 'patchable-function-entry': '7,5', {tables}"
    app.write({"setup.py": setup_py(f"usdt_providers={{'app': {{{options}}}}}")})
    said = app.setup(*BUILD)
    assert "-fpatchable-function-entry=7,5" in said
    assert "--patchable-table=relative --site-table" in said
    shown = json.loads(usdtbuild("functions", "--json", app.module("app")).stdout)
    assert '"call"' in json.dumps(shown)
    log = app.log.read_text()
    app.compiled()
    app.setup(*BUILD)
    assert not app.log.exists(), "a probe was compiled again"
    assert " -dM -E " in log, "the compiler was not asked"


@pytest.mark.project
def test_patchable_entries_need_no_probes(app: Any) -> None:
    app.write({
        "pyproject.toml": '[tool.usdtbuild]\npatchable-function-entry = "auto"',
        "src/app.c": MODULE.replace("NAME", "app").replace('#include "app.h"', "").replace("APP_CALLED(value);", ""),
    })  # fmt: skip
    said = app.setup(*BUILD)
    assert "-fpatchable-function-entry=" in said
    assert "launcher.py" not in said


def with_options(options: str) -> str:
    """A setup.py whose extension has these options beside its provider file."""
    return setup_py(f"usdt_providers={{'app': {{'providers': 'app.d', {options}}}}}")


PATCHABLE = "'patchable-function-entry': '7,5'"


@pytest.mark.project
@pytest.mark.skipif(platform.machine() != "x86_64", reason="7,5 is for x86-64")
def test_each_option_that_changes_compiles_anew(app: Any) -> None:
    """Where one comes, changes its value, and goes."""
    steps = ("", "'site-table': True", "'site-table': True, 'live': True", "", "'nop': 'nop5'",
             "'formats': ['stapsdt', 'usdt']", PATCHABLE, f"{PATCHABLE}, 'patchable-table': 'relative'",
             "'disabled': True")  # fmt: skip
    for options in steps:
        app.write({"setup.py": with_options(options)})
        app.setup(*BUILD)
        assert "app.c" in app.compiled(), options
    app.setup(*BUILD)
    assert app.compiled() == []


@pytest.mark.project
def test_an_extension_that_asks_no_more_is_compiled_anew(app: Any) -> None:
    plain = MODULE.replace("NAME", "app").replace('#include "app.h"', "").replace("APP_CALLED(value);", "")
    app.write({"src/app.c": plain, "src/b.c": plain.replace("app", "b"), "pyproject.toml": "", "b.d": PROVIDER})
    other = "usdt_providers={'app': {'live': True}, 'b': 'b.d'}"
    for keyword, compiled in ((other, ["app.c", "b.c"]), (other.replace("True", "False"), ["app.c"])):
        app.write({"setup.py": setup_py(keyword, names=("app", "b"))})
        app.setup(*BUILD)
        assert [name for name in app.compiled() if name in ("app.c", "b.c")] == compiled
        app.setup(*BUILD)
        assert app.compiled() == []
    assert b"usdt_live_" not in app.module("app").read_bytes()


@pytest.mark.project
@pytest.mark.skipif(platform.machine() != "x86_64", reason="7,5 is for x86-64")
@pytest.mark.slow
def test_the_live_runtime_itself_has_no_patchable_entries(app: Any, usdtbuild: Any) -> None:
    app.write({"setup.py": with_options(f"'live': True, {PATCHABLE}")})
    app.setup(*BUILD)
    shown = json.loads(usdtbuild("functions", "--json", app.module("app")).stdout)
    functions = shown["files"][0]["functions"]
    assert {each["name"] for each in functions if each["hotpatchable"]} == {"call", "PyInit_app"}
    assert b"usdt_live_" in app.module("app").read_bytes()
    app.compiled()
    app.setup(*BUILD, "--force")
    assert {"app.c", "live.c"} <= set(app.compiled())


@pytest.mark.project
@pytest.mark.skipif(platform.machine() != "x86_64", reason="7,5 is for x86-64")
def test_the_cxx_flaw_of_gcc_is_warned_of_where_the_table_has_it(app: Any) -> None:
    app.write({"src/app.cc": MODULE.replace("NAME", "app")})
    for table in ("absolute", "relative"):
        options = with_options(f"{PATCHABLE}, 'patchable-table': '{table}'")
        app.write({"setup.py": options.replace("app.c", "app.cc")})
        said = app.setup(*BUILD)
        flawed = "outside their COMDAT groups" in said
        assert not flawed or (table == "absolute" and 'or patchable-table = "relative"' in said)


# --- compilers --------------------------------------------------------------------------------------------------------


@pytest.mark.project
def test_ccache_caches_what_stands_behind_the_launcher(app: Any, usdtbuild: Any, need: Any, tmp_path: Path) -> None:
    need("ccache")
    app.write({"setup.py": setup_py("usdt_providers='app.d'")})
    variables = {"CC": "ccache gcc", "CCACHE_DIR": str(tmp_path / "cache")}
    app.setup(*BUILD, **variables)
    first = app.module("app").read_bytes()
    app.setup(*BUILD, "--force", **variables)
    counts = app.run("ccache", "--print-stats", env={**os.environ, **variables}).stdout
    assert re.search(r"^(direct|preprocessed)_cache_hit\t1$", counts, re.MULTILINE), counts
    assert app.module("app").read_bytes() == first
    assert "app:called" in usdtbuild("list", app.module("app")).stdout


@pytest.mark.project
def test_clang(app: Any, usdtbuild: Any, need: Any) -> None:
    need("clang")
    app.write({"setup.py": setup_py("usdt_providers='app.d'")})
    app.setup(*BUILD, CC="clang")
    assert "app:called" in usdtbuild("list", app.module("app")).stdout
    assert app("-c", "import app; print(app.call(4))", PYTHONPATH="src").strip() == "5"


@pytest.mark.project
def test_a_cross_compiler_in_cc(app: Any, usdtbuild: Any) -> None:
    if not shutil.which("aarch64-linux-gnu-gcc") or not Path("/usr/aarch64-linux-gnu/include/stdio.h").exists():
        pytest.skip("aarch64-linux-gnu-gcc and its C library are not installed")
    # Without Python.h, whose configuration is the building machine's.
    app.write({
        "setup.py": setup_py("usdt_providers='app.d'"),
        "src/app.c": '#include "app.h"\nlong call(long value) { APP_CALLED(value); return value + 1; }\n',
    })  # fmt: skip
    app.setup(*BUILD, CC="aarch64-linux-gnu-gcc", LDSHARED="aarch64-linux-gnu-gcc -shared")
    shown = usdtbuild("list", app.module("app")).stdout
    assert "aarch64" in shown
    assert "app:called" in shown
    usdtbuild("verify", app.module("app"))


# --- beside other packages' build_ext ---------------------------------------------------------------------------------


@pytest.mark.project
def test_cython(app: Any, usdtbuild: Any) -> None:
    code = 'cdef extern from "app.h":\n    void APP_CALLED(long)\n'
    code += "def call(long value):\n    APP_CALLED(value)\n    return value + 1\n"
    app.write({
        "src/in_setup.pyx": code,
        "src/in_build.pyx": code,
        "setup.py": """\
from Cython.Build import build_ext, cythonize
from setuptools import Extension, setup
setup(
    name="app", packages=[], package_dir={"": "src"}, cmdclass={"build_ext": build_ext},
    ext_modules=[
        *cythonize(Extension("in_setup", ["src/in_setup.pyx", "app.d"])),
        Extension("in_build", ["src/in_build.pyx", "app.d"]),
    ],
)
""",
    })  # fmt: skip
    app.setup(*BUILD)
    for name in ("in_setup", "in_build"):
        assert "app:called" in usdtbuild("list", app.module(name)).stdout
        assert app("-c", f"import {name}; print({name}.call(4))", PYTHONPATH="src").strip() == "5"
    app.compiled()
    app.setup(*BUILD)
    assert app.compiled() == []


@pytest.mark.project
def test_a_build_ext_that_replaces_the_compiler(app: Any, usdtbuild: Any) -> None:
    app.write({
        "setup.py": """\
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
class Own(build_ext):
    def build_extensions(self):
        self.compiler.compiler_so = ["gcc", "-fPIC", "-O1"]
        super().build_extensions()
    def run(self):
        super().run()
        assert self.compiler.compiler_so == ["gcc", "-fPIC", "-O1"], "the launcher was left there"
setup(name="app", packages=[], package_dir={"": "src"}, cmdclass={"build_ext": Own}, usdt_providers="app.d",
      ext_modules=[Extension("app", ["src/app.c"])])
""",
    })  # fmt: skip
    app.setup(*BUILD)
    assert "app:called" in usdtbuild("list", app.module("app")).stdout
