"""Compiles that others have done, or do: ccache, sccache and Bazel's cache, and distcc, which compiles elsewhere.

With a header alone nothing of ours is in the command, so both work as they do without probes. The launcher stands
before them, for formats that need it.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.project

FILES = 9
SOURCE = '#include "app.h"\nint f{n}(int n);\nint f{n}(int n) {{ APP_GO(n, "f{n}"); return n + 1; }}\n'
WAYS = {
    "header": ([], "stapsdt", {"stapsdt"}),
    "launcher": ([sys.executable, "-m", "usdtbuild", "cc", "--formats=dof", "--"], "dof", {"dof"}),
}


def write_checkout(folder: Path, usdtbuild: Any, formats: str) -> Path:
    """Write a project of nine files into a folder."""
    folder.mkdir()
    (folder / "app.d").write_text("provider app { probe go(int number, char *where); };\n")
    usdtbuild("header", f"--formats={formats}", "app.d", cwd=folder)
    for n in range(FILES):
        (folder / f"f{n}.c").write_text(SOURCE.format(n=n))
    return folder


def formats_of(usdtbuild: Any, binary: Path) -> set[str]:
    """The formats of the probes in a finished file."""
    return set(re.findall(r'"format": "(\w+)"', usdtbuild("list", "--json", binary).stdout))


@pytest.mark.parametrize("way", WAYS)
def test_ccache_of_one_checkout_serves_another(way: str, run: Any, need: Any, usdtbuild: Any, tmp_path: Path) -> None:
    before, formats, found = WAYS[way]
    ccache = need("ccache")
    for number, name in enumerate(("one", "two")):
        folder = write_checkout(tmp_path / name, usdtbuild, formats)
        environment = {
            **os.environ, "CCACHE_DIR": str(tmp_path / "cache"), "CCACHE_NOHASHDIR": "1", "CCACHE_BASEDIR": str(folder)
        }  # fmt: skip
        for n in range(FILES):
            compile_it = ["gcc", "-O2", "-g", f"-I{folder}", "-c", folder / f"f{n}.c", "-o", f"f{n}.o"]
            run(*before, ccache, *compile_it, cwd=folder, env=environment)
        stats = run(ccache, "--print-stats", env=environment).stdout
        hits = sum(int(count) for count in re.findall(r"^(?:direct|preprocessed)_cache_hit\s+(\d+)", stats, re.M))
        assert hits == number * FILES, stats
        run("gcc", "-shared", "-o", "all.so", *(f"f{n}.o" for n in range(FILES)), cwd=folder)
        assert formats_of(usdtbuild, folder / "all.so") == found


@pytest.fixture
def distcc(need: Any, tmp_path: Path) -> Iterator[dict[str, str]]:
    """A server of distcc on loopback; the variables of the environment with which distcc uses it and nothing else."""
    need("distcc")
    server = need("distccd")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path / "distccd.log"
    words = ["--no-detach", "--daemon", "--allow", "127.0.0.1", "--listen", "127.0.0.1", "--port", str(port)]
    more = ["--enable-tcp-insecure", "--log-level=info", "--log-stderr", "--jobs=2"]
    with log.open("w") as out, subprocess.Popen([server, *words, *more], stderr=out) as process:
        try:
            for _ in range(200):
                with socket.socket() as client:
                    if client.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield {
                **os.environ, "DISTCC_HOSTS": f"127.0.0.1:{port}", "DISTCC_FALLBACK": "0", "DISTCC_DIR": str(tmp_path),
                "DISTCC_SKIP_LOCAL_RETRY": "1", "LOG": str(log),
            }  # fmt: skip
        finally:
            process.terminate()


@pytest.mark.parametrize("way", WAYS)
def test_distcc_compiles_on_another_machine(
    way: str, run: Any, usdtbuild: Any, tmp_path: Path, distcc: dict[str, str]
) -> None:
    before, formats, found = WAYS[way]
    folder = write_checkout(tmp_path / "source", usdtbuild, formats)
    run(*before, "distcc", "gcc", "-O2", "-c", "f0.c", "-o", "f0.o", cwd=folder, env=distcc)
    deadline = time.monotonic() + 20  # the server writes its log after it has answered
    while "COMPILE_OK" not in Path(distcc["LOG"]).read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    run("gcc", "-shared", "-o", "f0.so", "f0.o", cwd=folder)
    assert formats_of(usdtbuild, folder / "f0.so") == found


def test_sccache_needs_nothing(run: Any, need: Any, usdtbuild: Any, tmp_path: Path) -> None:
    sccache = need("sccache")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "SCCACHE_DIR": str(tmp_path / "cache"), "SCCACHE_SERVER_PORT": str(port)}
    folder = write_checkout(tmp_path / "source", usdtbuild, "stapsdt")
    run(sccache, "--start-server", env=environment)
    try:
        for _ in range(2):
            for n in range(FILES):
                run(sccache, "gcc", "-O2", "-c", f"f{n}.c", "-o", f"f{n}.o", cwd=folder, env=environment)
        stats = run(sccache, "--show-stats", env=environment).stdout
    finally:
        run(sccache, "--stop-server", env=environment, code=None)
    assert re.search(rf"^Cache hits +{FILES}$", stats, re.M), stats
    run("gcc", "-shared", "-o", "all.so", *(f"f{n}.o" for n in range(FILES)), cwd=folder)
    assert formats_of(usdtbuild, folder / "all.so") == {"stapsdt"}


def bazel_rules(folder: Path) -> list[str]:
    """Write the repositories of rules that Bazel would fetch; return the options that name them."""
    rules = {
        "cc": "cc_library cc_binary cc_test cc_import cc_toolchain cc_toolchain_suite cc_toolchain_alias",
        "java": "java_library java_binary java_import java_test java_toolchain java_runtime java_package_configuration "
        "java_plugin",
        "proto": "proto_library proto_lang_toolchain",
    }
    for name, words in rules.items():
        package = folder / f"rules_{name}" / name
        package.mkdir(parents=True)
        for file in (package / "BUILD", package.parent / "BUILD", package.parent / "WORKSPACE"):
            file.touch()
        for rules_file in ("defs.bzl", "toolchain_utils.bzl"):
            (package / rules_file).write_text("".join(f"{word} = native.{word}\n" for word in words.split()))
    return [f"--override_repository=rules_{name}={folder / f'rules_{name}'}" for name in rules]


@pytest.mark.slow
def test_bazel_compiles_in_its_sandbox_and_shares_what_it_made(
    run: Any, need: Any, usdtbuild: Any, tmp_path: Path
) -> None:
    bazel = need("bazel")
    options = [f"--disk_cache={tmp_path / 'cache'}", *bazel_rules(tmp_path)]
    sources = ", ".join(f'"f{n}.c"' for n in range(FILES))
    for number, name in enumerate(("one", "two")):
        folder = write_checkout(tmp_path / name, usdtbuild, "stapsdt")
        (folder / "WORKSPACE").touch()
        (folder / "BUILD").write_text(f'cc_binary(name = "all.so", linkshared = 1, srcs = [{sources}, "app.h"])\n')
        said = run(
            bazel, f"--output_user_root={tmp_path / 'out'}", "--batch", "build", *options, ":all.so", cwd=folder
        ).stderr
        assert bool(re.search(rf"{FILES + 1} (disk|remote) cache hit", said)) == bool(number), said
        assert formats_of(usdtbuild, folder / "bazel-bin/all.so") == {"stapsdt"}
    run("chmod", "-R", "u+w", tmp_path / "out")
