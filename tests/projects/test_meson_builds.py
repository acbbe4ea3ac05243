"""Meson projects with every kind of target: what is compiled when, what may be switched on, and `usdtbuild-meson`.

One project is built with the oldest and the newest Meson, with GCC and Clang, and then edited; the tests may run in
any order, and each leaves the build up to date. It has a generator of headers and no more; the same project with the
subproject is configured in other ways, for formats that are written after the compiler. Compiler runs are counted by a
script that stands before the compiler, in CC and CXX. What the sample does is in test_samples.py.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from usdtbuild import __version__

from .conftest import Counted

pytestmark = pytest.mark.project

SLOW = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent.parent
CXX = {"gcc": "g++", "clang": "clang++"}
VARIANTS = [
    pytest.param(("oldest", "gcc"), id="oldest-gcc"),
    pytest.param(("newest", "clang"), id="newest-clang"),
    pytest.param(("oldest", "clang"), id="oldest-clang", marks=SLOW),
    pytest.param(("newest", "gcc"), id="newest-gcc", marks=SLOW),
]
LITERAL_VARIANTS = [pytest.param(("newest", "gcc"), id="newest-gcc"), VARIANTS[2]]

PROVIDER = "/* The first. */\nprovider app { probe go(int number, char *where); probe other(long); };\n"
INNER = "provider inner { probe hit(int); };\n"
# Each fires app:go once, asks whether app:other is watched, and adds one.
PART = '#include "app.h"\nint {name}(int n);\nint {name}(int n) {{ APP_GO(n, "{name}"); {more}return n + 1; }}\n'
ASK = "if (APP_OTHER_ENABLED()) APP_OTHER(n); "
MAIN = """\
#include "app.h"
#include <stdio.h>
int st(int), sh(int), two(int), plain(int);
int main(int count, char **words)
{
    (void)words;
    APP_GO(count, "main");
    printf("%d\\n", st(sh(two(plain(count)))));
    return 0;
}
"""
SOURCES = {
    "app.d": PROVIDER,
    "st.c": PART.format(name="st", more=ASK),
    "two.c": PART.format(name="two", more=""),
    "mod.c": PART.format(name="mod", more=ASK),
    "sh.cpp": '#include "app.h"\nextern "C" int sh(int n) { APP_GO(n, "sh"); return n + 1; }\n',
    "plain.c": "int plain(int n);\nint plain(int n) { return n + 1; }\n",
    "main.c": MAIN,
    "inner/inner.d": INNER,
    "inner/inner.c": (
        '#include "app.h"\n#include "inner.h"\nint main(void) { APP_GO(1, "in"); INNER_HIT(2); return 0; }\n'
    ),
}
USERS_OF_APP = ["inner.c", "main.c", "mod.c", "sh.cpp", "st.c", "two.c"]
EVERYTHING = sorted([*USERS_OF_APP, "plain.c"])
TARGETS = """\
st = static_library('st', 'st.c', 'plain.c', {app}{dep})
sh = shared_library('sh', 'sh.cpp', {app}{dep}, install: true)
shared_module('mod', 'mod.c', {app}{dep}, install: true)
executable('exe', 'main.c', 'two.c', {app}{dep}, link_with: [st, sh], install: true)
subdir('inner')
"""
HEAD = "project('all', 'c', 'cpp', meson_version: '>=1.0.0')\n"
SUBPROJECT = HEAD + (
    "usdt_provider = subproject('usdtbuild').get_variable('usdt_provider')\nusdt_dep = dependency('usdtbuild')\n"
)
PLAIN = HEAD + (
    "usdt_provider = generator(find_program('usdtbuild'), output: '@BASENAME@.h',\n"
    "  arguments: ['header', '@INPUT@', '-o', '@OUTPUT@'])\n"
)
USE = ", dependencies: usdt_dep"
PLAIN_FILES = {
    "meson.build": PLAIN + TARGETS.format(app="usdt_provider.process('app.d')", dep=""),
    "inner/meson.build": "executable('inner', 'inner.c', usdt_provider.process('../app.d', 'inner.d'))\n",
}
SUBPROJECT_FILES = {
    "meson.build": SUBPROJECT + TARGETS.format(app="usdt_provider.process('app.d')", dep=USE),
    "inner/meson.build": f"executable('inner', 'inner.c', usdt_provider.process('../app.d', 'inner.d'){USE})\n",
}
LITERAL_FILES = {
    "meson.build": HEAD + TARGETS.format(app="usdt_provider('app.d')", dep=""),
    "inner/meson.build": "executable('inner', 'inner.c', dependencies: usdt_provider('../app.d', 'inner.d'))\n",
}
# SDT notes of each finished file.
SITES = {
    "exe": {"app:go": 3, "app:other": 1}, "libsh.so": {"app:go": 1}, "libmod.so": {"app:go": 1, "app:other": 1},
    "inner/inner": {"app:go": 1, "inner:hit": 1},
}  # fmt: skip


class MesonProject(Counted):
    """A Meson project in a temporary folder, whose name has a space: `source`, `build`, and what builds them."""

    def __init__(self, run: Any, folder: Path, meson: str, compiler: str) -> None:
        super().__init__(folder, "the source")
        self.run, self.build, bin_folder = run, folder / "the build", folder / "bin"
        bin_folder.mkdir()
        # As pip installs them; the environment that the tests run in may have been made before they were named.
        for name, module in (("usdtbuild", "__main__"), ("usdtbuild-meson", "meson_wrapper")):
            script = bin_folder / name
            code = f"import sys\nfrom usdtbuild.{module} import main\nsys.exit(main())\n"
            script.write_text(f"#!{sys.executable}\n{code}")
            script.chmod(0o755)
        modules = ROOT / ".cache" / f"meson-{meson}"
        if not modules.is_dir():
            pytest.skip(f"{modules} is missing; `make test` installs it")
        self.meson: list[Any] = [sys.executable, "-m", "mesonbuild.mesonmain"]
        self.environment = dict(
            os.environ, PATH=f"{bin_folder}:{os.environ['PATH']}", PYTHONPATH=f"{modules}:{ROOT}",
            CC=f"{self.counter} {compiler}", CXX=f"{self.counter} {CXX[compiler]}",
        )  # fmt: skip
        self.wrapper = bin_folder / "usdtbuild-meson"

    def write(self, *several: dict[str, str], vendor: bool = True) -> None:
        """Write source files, and the subproject."""
        for files in several:
            self.write_all(files)
        if vendor:
            self.do(sys.executable, "-m", "usdtbuild", "vendor", "meson", self.source / "subprojects")

    def do(self, *command: Any, code: int | None = 0) -> str:
        """Run a command in the project's environment, and return what it said."""
        # Not the tests' own folder: with -pg, what Meson tries at configure time leaves gmon.out behind.
        done = self.run(*command, code=code, env=self.environment, cwd=self.log.parent)
        return str(done.stdout + done.stderr)

    def setup(self, *options: Any, code: int | None = 0) -> str:
        """Configure, and return what Meson said."""
        said = self.do(*self.meson, "setup", self.build, self.source, *options, code=code)
        self.compiled()
        return said

    def make(self, *options: Any, code: int | None = 0) -> str:
        """Build, and return what Ninja said."""
        return self.do("ninja", "-C", self.build, *options, code=code)

    def compiled(self) -> list[str]:
        """The sources compiled since the last call, sorted; what is tried at configure time is left out."""
        sources = [Path(line.rsplit(" -c ", 1)[1].rsplit("/", 1)[-1]).name for line in self.logged() if " -c " in line]
        return sorted(name for name in sources if (self.source / name).exists() or name == "inner.c")

    def notes(self, name: str, folder: Path | None = None) -> dict[str, int]:
        """The sites of a finished file by `provider:probe`, as readelf, which knows nothing of us, finds them."""
        said = self.run("readelf", "-nW", (folder or self.build) / name, env={**os.environ, "LC_ALL": "C"}).stdout
        return dict(Counter(f"{p}:{n}" for p, n in re.findall(r"Provider: (\S+)\n\s*Name: (\S+)", said)))

    def check(self) -> None:
        """The program works, and every finished file has the sites that its sources fire."""
        assert self.run(self.build / "exe").stdout == "5\n"
        assert {name: self.notes(name) for name in SITES} == SITES


@pytest.fixture(scope="session")
def make_meson(run: Any, need: Callable[[str], str]) -> Callable[..., MesonProject]:
    """Make an empty project in a folder: `make_meson(folder, "oldest", "clang")`."""

    def make(folder: Path, meson: str = "newest", compiler: str = "gcc") -> MesonProject:
        for program in ("ninja", compiler, CXX[compiler]):
            need(program)
        return MesonProject(run, folder, meson, compiler)

    return make


@pytest.fixture(scope="module", params=VARIANTS)
def built(request: pytest.FixtureRequest, tmp_path_factory: Any, make_meson: Callable[..., MesonProject]) -> Any:
    """The project with all kinds of targets, built with eight jobs."""
    project = make_meson(tmp_path_factory.mktemp("meson"), *request.param)
    project.write(SOURCES, PLAIN_FILES, vendor=False)
    project.setup()
    project.make("-j8")
    project.first_build = project.compiled()  # type: ignore[attr-defined] # what it compiled, before any test
    return project


@pytest.fixture
def other(make_meson: Callable[..., MesonProject], tmp_path: Path) -> Callable[..., MesonProject]:
    """The same project with the subproject, to be configured in some other way: `other("oldest", "clang")`."""

    def make(*variant: str) -> MesonProject:
        project = make_meson(tmp_path / "-".join(variant), *variant)
        project.write(SOURCES, SUBPROJECT_FILES)
        return project

    return make


def is_idle(project: MesonProject) -> bool:
    """Whether a build has nothing to do and runs no compiler."""
    return "no work to do" in project.make() and project.compiled() == []


# --- from the first build to the thousandth ---------------------------------------------------------------------------


def test_first_build_compiles_each_source_once(built: Any) -> None:
    assert built.first_build == EVERYTHING


def test_verify_finds_nothing_wrong(built: Any, usdtbuild: Any) -> None:
    usdtbuild("verify", "--provider", built.source / "app.d", built.build / "exe")
    usdtbuild("verify", *(built.build / name for name in SITES))


def test_editing_a_source_compiles_that_source(built: Any) -> None:
    built.edit("two.c", "return n + 1", "return 1 + n")
    built.make()
    assert built.compiled() == ["two.c"]
    built.edit("two.c", "return 1 + n", "return n + 1")
    built.make()
    assert built.compiled() == ["two.c"]
    assert is_idle(built)


def test_changed_provider_compiles_the_users_of_its_header(built: Any) -> None:
    for old, new in (("other(long)", "other(int)"), ("other(int)", "other(long)")):
        built.edit("app.d", old, new)
        built.make()
        assert built.compiled() == USERS_OF_APP
    for old, new in (("hit(int)", "hit(long)"), ("hit(long)", "hit(int)")):
        built.edit("inner/inner.d", old, new)
        built.make()
        assert built.compiled() == ["inner.c"]
    assert is_idle(built)


def test_touched_provider_compiles_nothing(built: Any) -> None:
    time.sleep(0.05)
    (built.source / "app.d").touch()
    assert "Generating" in built.make()
    assert built.compiled() == []
    assert is_idle(built)


@pytest.mark.parametrize(
    ("name", "right", "wrong", "said", "compiled"),
    [
        ("two.c", 'APP_GO(n, "two")', "APP_GO(n)", r"two\.c:3.*APP_GO|two\.c:3.*macro", ["two.c", "two.c"]),
        ("app.d", "probe go(int", "probe go((int", r"app\.d:2:\d+: error", []),
    ],
    ids=["wrong use of a probe", "mistake in the provider"],
)
def test_a_mistake_stops_the_build_until_it_is_mended(
    built: Any, name: str, right: str, wrong: str, said: str, compiled: list[str]
) -> None:
    built.edit(name, right, wrong)
    assert re.search(said, built.make(code=1))
    built.edit(name, wrong, right)
    built.make()
    assert built.compiled() == compiled
    assert is_idle(built)


@pytest.mark.parametrize("pause", [0.05, pytest.param(0.0, marks=SLOW), pytest.param(0.2, marks=SLOW)])
def test_killed_build_goes_on_where_it_stopped(built: Any, end_build: Callable[..., None], pause: float) -> None:
    built.edit("app.d", "other(long)", "other(short)")
    command = ["ninja", "-C", str(built.build), "-j2"]
    building = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=built.environment, start_new_session=True
    )
    end_build(building, "Ninja", built.log, pause)
    built.make()
    built.check()
    built.edit("app.d", "other(short)", "other(long)")
    built.make()
    built.compiled()
    built.check()
    assert is_idle(built)


def test_cleaning_and_building_makes_everything_again(built: Any) -> None:
    built.make("-t", "clean")
    built.make()
    assert built.compiled() == EVERYTHING
    built.check()


def test_probes_are_switched_off_and_on(other: Any) -> None:
    built = other("oldest", "gcc")
    built.setup()
    built.do(*built.meson, "configure", built.build, "-Dusdtbuild:probes=disabled")
    built.make()
    assert {name: built.notes(name) for name in SITES} == {name: {} for name in SITES}
    assert built.run(built.build / "exe").stdout == "5\n"
    assert "__dtrace" not in built.run("nm", built.build / "exe").stdout
    built.do(*built.meson, "configure", built.build, "-Dusdtbuild:probes=enabled")
    built.make()
    built.check()
    built.compiled()
    assert is_idle(built)


@pytest.mark.live
def test_bpftrace_sees_every_hit(built: Any, trace: Callable[..., list[str]], tmp_path: Path) -> None:
    short = tmp_path / "build"  # bpftrace takes no spaces
    short.symlink_to(built.build)
    # Numbers only: the kernel can't read a string in a page that the program hasn't touched yet.
    action = '{{ printf("{name} %d\\n", arg0); }}'
    script = "\n".join(f"usdt:{short / name}:app:go {action.format(name=name)}" for name in ("exe", "libsh.so"))
    assert trace(script, built.build / "exe") == ["exe 1", "exe 2", "libsh.so 3", "exe 4"]


# --- what may be switched on ------------------------------------------------------------------------------------------

PROCESSED = "-Dusdtbuild:formats=stapsdt,dof,usdt"
SETTINGS = [
    pytest.param(("oldest", "gcc"), ["--unity=on", "-Dwerror=true", "-Dwarning_level=2"], id="unity"),
    pytest.param(("newest", "gcc"), [PROCESSED, "-Db_lto=true"], id="processed-lto-gcc"),
    pytest.param(("oldest", "clang"), [PROCESSED, "-Db_lto=true"], id="processed-lto-clang", marks=SLOW),
    pytest.param(("oldest", "clang"), [PROCESSED, "--unity=on"], id="processed-unity-clang", marks=SLOW),
    *(
        pytest.param(variant, [PROCESSED, f"-Dbuildtype={kind}"], id=f"processed-{kind}-{variant[1]}", marks=SLOW)
        for kind in ("debug", "release")
        for variant in (("newest", "gcc"), ("oldest", "clang"))
    ),
]


@pytest.mark.parametrize(("variant", "options"), SETTINGS)
def test_probes_arrive_whatever_is_switched_on(
    other: Any, usdtbuild: Any, variant: tuple[str, str], options: list[str]
) -> None:
    project = other(*variant)
    project.setup(*options)
    project.make()
    project.compiled()
    project.check()
    usdtbuild("verify", *(project.build / name for name in SITES))
    assert is_idle(project)
    fat = variant[1] == "gcc" and "-Db_lto=true" in options  # else clang-tidy warns of an option it doesn't know
    assert ("-ffat-lto-objects" in (project.build / "compile_commands.json").read_text()) == fat


def test_stripped_installation_keeps_the_records(other: Any, tmp_path: Path) -> None:
    project = other("newest", "gcc")
    project.setup("--prefix=/usr", "--libdir=lib", "-Dbuildtype=release")
    project.make()
    project.do(*project.meson, "install", "-C", project.build, "--strip", "--destdir", tmp_path / "out")
    for name, place in (("exe", "bin"), ("libsh.so", "lib"), ("libmod.so", "lib")):
        assert sum(project.notes(name, tmp_path / "out/usr" / place).values()) >= sum(SITES[name].values())
        assert ".symtab" not in project.run("readelf", "-SW", tmp_path / "out/usr" / place / name).stdout


@pytest.mark.parametrize("compiler", ["gcc", pytest.param("clang", marks=SLOW)])
def test_cross_build_takes_the_machine_from_the_object(
    other: Any, need: Any, need_c_library: Any, run: Any, tmp_path: Path, compiler: str
) -> None:
    emulator, root = need("qemu-aarch64"), Path("/usr/aarch64-linux-gnu")
    need_c_library(need("aarch64-linux-gnu-gcc"))
    if compiler == "gcc" or not (root / "include/stdio.h").exists():
        need("aarch64-linux-gnu-g++")
    words = {
        "gcc": ("['aarch64-linux-gnu-gcc']", "['aarch64-linux-gnu-g++']"),
        "clang": ("['clang', '--target=aarch64-linux-gnu']", "['clang++', '--target=aarch64-linux-gnu']"),
    }[compiler]
    cross = tmp_path / "cross.ini"
    cross.write_text(
        f"[binaries]\nc = {words[0]}\ncpp = {words[1]}\n"
        "ar = 'aarch64-linux-gnu-ar'\nstrip = 'aarch64-linux-gnu-strip'\n"
        f"exe_wrapper = ['{emulator}', '-L', '{root}']\n"
        "[host_machine]\nsystem = 'linux'\ncpu_family = 'aarch64'\ncpu = 'aarch64'\nendian = 'little'\n"
    )
    project = other("oldest", "gcc")
    project.setup("--cross-file", cross, PROCESSED)
    project.make()
    assert run(emulator, "-L", root, project.build / "exe").stdout == "5\n"
    assert {name: project.notes(name) for name in SITES} == SITES
    assert "x0" in run("readelf", "-nW", project.build / "exe").stdout


@SLOW
def test_ccache_hits_and_keeps_settings_apart(other: Any, need: Any, tmp_path: Path) -> None:
    ccache = need("ccache")
    project = other("newest", "gcc")
    project.environment.update(CCACHE_DIR=str(tmp_path / "cache"), CC=f"{ccache} gcc", CXX=f"{ccache} g++")

    def objects_with_nop5(*options: str) -> int:
        shutil.rmtree(project.build, ignore_errors=True)
        project.setup(*options)
        project.make()
        project.check()
        return str(project.run("objdump", "-d", project.build / "libmod.so").stdout).count("0f 1f 44 00 00")

    before = objects_with_nop5()
    hits_before = _hits(project.do(ccache, "--print-stats"))
    assert objects_with_nop5() == before
    assert _hits(project.do(ccache, "--print-stats")) - hits_before >= len(EVERYTHING)
    assert objects_with_nop5("-Dusdtbuild:nop=nop5") > before


def _hits(stats: str) -> int:
    return sum(int(count) for count in re.findall(r"^(?:direct|preprocessed)_cache_hit\s+(\d+)", stats, re.M))


def test_update_of_usdtbuild_makes_headers_anew(other: Any, tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    for name in ("usdtbuild", "meson"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    project = other("newest", "gcc")
    modules, ours = project.environment["PYTHONPATH"].split(":")
    assert ours == str(ROOT)
    project.environment["PYTHONPATH"] = f"{modules}:{copy}"
    project.setup()
    project.make()
    project.compiled()
    version = copy / "usdtbuild/_version.py"
    time.sleep(0.05)
    version.write_text(version.read_text().replace('= "', '= "9'))
    assert "Generating" in project.make()
    assert project.compiled() == USERS_OF_APP
    assert is_idle(project)


def test_subproject_changes_no_command_but_for_what_it_is_asked_for(other: Any) -> None:
    project = other("newest", "gcc")
    project.setup()
    plain = words_for_compilers(project)
    assert not [line for line in plain if re.search(r" -B|-ffat-lto-objects", line)]
    project.setup("--reconfigure", "-Dusdtbuild:patchable_function_entry=7,5")
    patchable = words_for_compilers(project)
    assert patchable != plain
    assert [line.replace(" -fpatchable-function-entry=7,5", "") for line in patchable] == plain
    assert not (project.build / "subprojects/usdtbuild/hook").exists()


def words_for_compilers(project: MesonProject) -> list[str]:
    return re.findall(r"^ (?:ARGS|LINK_ARGS) = .*", (project.build / "build.ninja").read_text(), re.M)


def test_vendored_copy_and_pkg_config_file_name_the_version() -> None:
    for path, pattern in (
        ("meson/meson.build", r"  version: '(.+)'"),
        ("meson/live/meson.build", r"  version: '(.+)'"),
        ("usdtbuild/pkgconfig/usdtbuild.pc", r"Version: (.+)"),
    ):
        found = re.search(pattern, (ROOT / path).read_text())
        assert found
        assert found[1] == __version__


def test_pkg_config_file_leads_to_the_launcher(need: Any, usdtbuild: Any, run: Any, tmp_path: Path) -> None:
    environment = {**os.environ, "PKG_CONFIG_PATH": usdtbuild("--pkgconfig-dir").stdout.strip(), "LC_ALL": "C"}
    for name in ("app.d", "inner/inner.d", "inner/inner.c"):
        (tmp_path / Path(name).name).write_text(SOURCES[name])
    for name in ("app", "inner"):
        usdtbuild("header", "--formats=dof", tmp_path / f"{name}.d", "-o", tmp_path / f"{name}.h")

    def ask(*question: str) -> list[str]:
        return shlex.split(run(need("pkg-config"), *question, "usdtbuild", env=environment).stdout)

    launched = [*ask("--variable=launcher"), need("gcc")]
    run(*launched, "-c", "inner.c", "-o", "inner.o", cwd=tmp_path)
    assert "inner:hit" in usdtbuild("list", tmp_path / "inner.o").stdout
    run(*launched, "inner.c", "-o", "inner", cwd=tmp_path)  # compiled and linked in one go
    run(tmp_path / "inner")
    assert "Name: hit" in run("readelf", "-nW", tmp_path / "inner", env=environment).stdout


# --- patchable function entries ---------------------------------------------------------------------------------------


def test_patchable_entries_in_a_table_of_ours(other: Any, usdtbuild: Any) -> None:
    project = other("newest", "gcc")
    tables = ("-Dusdtbuild:patchable_table=relative", "-Dusdtbuild:site_table=true")
    project.setup("-Dusdtbuild:patchable_function_entry=7,5", *tables)
    project.make()
    project.check()
    shown = json.loads(usdtbuild("functions", "--json", project.build / "libsh.so").stdout)
    assert "sh" in json.dumps(shown)
    sections = project.run("readelf", "-SW", project.build / "libsh.so").stdout
    assert "__patchable_function_entries" not in sections
    assert ".usdtbuild.sites" in sections


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["-Dusdtbuild:patchable_function_entry=5,0"], "5,0 is too small"),
        (["-Dusdtbuild:patchable_function_entry=7,5", "-Dc_args=-pg"], "-pg and -fpatchable-function-entry=7,5"),
        (["-Dusdtbuild:patchable_function_entry=often"], "patchable"),
        (["-Dusdtbuild:formats=ctf"], "ctf"),
    ],
    ids=["numbers", "c_args", "word", "format"],
)
def test_what_cannot_be_had_is_an_error_when_meson_configures(other: Any, options: list[str], complaint: str) -> None:
    said = other("oldest", "gcc").setup(*options, code=1)
    assert complaint in said.split("ERROR", 1)[1]
    assert "Traceback" not in said


@SLOW
def test_compilers_of_different_make_are_told_apart(other: Any, need: Any) -> None:
    need("clang++")
    project = other("newest", "gcc")
    project.environment["CXX"] = "clang++"
    assert "language=cpp" in project.setup()
    # Each target has its own compiler's dependency.
    text = SUBPROJECT_FILES["meson.build"].replace(
        "usdt_dep = dependency('usdtbuild')\n",
        "usdt_dep = dependency('usdtbuild')\nusdt_cpp_dep = subproject('usdtbuild').get_variable('usdt_cpp_dep')\n",
    )
    project.write({"meson.build": re.sub(r"(shared_library\(.*)usdt_dep", r"\1usdt_cpp_dep", text)})
    project.make()
    project.check()


def test_forgotten_dependency_is_named_by_the_linker(other: Any) -> None:
    project = other("newest", "gcc")
    project.edit("inner/meson.build", USE, "")
    project.setup("-Dusdtbuild:formats=dof")
    assert re.search(r"undefined .*__dtrace_app___go___is_made_by_\w*Meson_usdt_dep", project.make(code=1))


def test_missing_program_is_an_error_that_says_what_to_do(other: Any) -> None:
    missing = "-Dusdtbuild:command=/nowhere/usdtbuild"
    said = other("oldest", "gcc").setup(missing, code=1)
    assert "pip install usdtbuild" in said
    assert "commit the headers" in said


# --- Python extensions ------------------------------------------------------------------------------------------------

EXTENSION = """\
#include <Python.h>
#include "inner.h"
static PyObject *hit(PyObject *self, PyObject *none) { (void)self; (void)none; INNER_HIT(7); Py_RETURN_NONE; }
static PyMethodDef methods[] = {{"hit", hit, METH_NOARGS, 0}, {0, 0, 0, 0}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "ext", 0, -1, methods, 0, 0, 0, 0};
PyMODINIT_FUNC PyInit_ext(void) { return PyModule_Create(&definition); }
"""


@pytest.mark.parametrize("meson", ["oldest", "newest"])
@pytest.mark.parametrize("way", ["subproject", "sources", "dependencies"])
def test_python_extension_module(make_meson: Any, tmp_path: Path, meson: str, way: str) -> None:
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("Python.h is missing")
    if meson == "oldest" and sys.version_info >= (3, 12):
        pytest.skip("the oldest Meson asks Python for distutils, which Python 3.12 and newer lack")
    head, words = {
        "subproject": (SUBPROJECT, "usdt_provider.process('inner.d'), dependencies: [usdt_dep, py.dependency()]"),
        "sources": (HEAD, "usdt_provider('inner.d'), dependencies: py.dependency()"),
        "dependencies": (HEAD, "dependencies: [py.dependency(), usdt_provider('inner.d')]"),
    }[way]
    text = f"{head}py = import('python').find_installation()\npy.extension_module('ext', 'ext.c', {words})\n"
    project = make_meson(tmp_path, meson)
    if way != "subproject":
        project.meson = [project.wrapper]
    project.write({"meson.build": text, "inner.d": INNER, "ext.c": EXTENSION}, vendor=way == "subproject")
    project.setup()
    project.make()
    module = next(project.build.glob("ext*.so"))
    assert project.notes(module.name) == {"inner:hit": 1}
    code = f"import sys; sys.path[:0] = [{str(project.build)!r}]; import ext; print(ext.hit())"
    assert project.do(sys.executable, "-c", code) == "None\n"


# --- usdtbuild-meson --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=LITERAL_VARIANTS)
def literal(request: pytest.FixtureRequest, tmp_path_factory: Any, make_meson: Callable[..., MesonProject]) -> Any:
    """The project written with `usdt_provider('app.d')`, without a subproject, built with usdtbuild-meson."""
    project = make_meson(tmp_path_factory.mktemp("literal"), *request.param)
    project.meson = [project.wrapper]
    project.write(SOURCES, LITERAL_FILES, vendor=False)
    project.setup()
    project.make()
    project.compiled()
    return project


def test_wrapper_builds_the_literal_call(literal: Any) -> None:
    literal.check()
    assert is_idle(literal)
    assert not (literal.source / "subprojects").exists()


def test_wrapper_is_run_again_when_ninja_configures_anew(literal: Any) -> None:
    text = (literal.source / "meson.build").read_text()
    more = "executable('more', 'inner/inner.c', usdt_provider('app.d', 'inner/inner.d'))\n"
    literal.edit("meson.build", "subdir('inner')\n", f"subdir('inner')\n{more}")
    literal.make()
    assert literal.notes("more") == {"app:go": 1, "inner:hit": 1}
    (literal.source / "meson.build").write_text(text)
    literal.make()
    literal.compiled()
    assert is_idle(literal)


def test_wrapper_compiles_the_users_of_a_changed_header(literal: Any) -> None:
    for old, new in (("other(long)", "other(int)"), ("other(int)", "other(long)")):
        literal.edit("app.d", old, new)
        literal.make()
        assert literal.compiled() == USERS_OF_APP
    assert is_idle(literal)


def test_wrapper_is_meson_in_everything_else(literal: Any) -> None:
    version = literal.do(literal.wrapper, "--version").strip()
    assert version == literal.do(sys.executable, "-m", "mesonbuild.mesonmain", "--version").strip()
    for place in (literal.build, literal.source / "meson.build"):  # configured, and read without being configured
        said = literal.run(literal.wrapper, "introspect", "--targets", place, env=literal.environment).stdout
        assert {"exe", "sh", "mod", "inner"} <= {target["name"] for target in json.loads(said)}


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        ("usdt_provider()", "needs a provider file"),
        ("usdt_provider('app.d', colour: 'red')", "no keyword colour"),
        ("usdt_provider('app.d', disabled: 'yes')", "disabled must be of type bool"),
        ("usdt_provider('app.d', language: 'ada')", "not 'ada'"),
        ("usdt_provider('app.d', nop: 'fast')", "nop is one of safe, nop5, nop10, classic, not 'fast'"),
        ("usdt_provider('none.d')", "none.d"),
    ],
)
def test_wrong_call_is_an_error_with_its_line(make_meson: Any, tmp_path: Path, call: str, complaint: str) -> None:
    project = make_meson(tmp_path, "newest")
    project.meson = [project.wrapper]
    project.write(SOURCES, {"meson.build": f"{HEAD}executable('two', 'two.c', {call})\n"}, vendor=False)
    said = project.setup(code=1)
    assert re.search(rf"meson\.build:2.*ERROR.*{re.escape(complaint)}", said), said
