"""`usdtbuild list PID`: a running program, its modules, deleted files, other mount namespaces, its semaphores."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.started import ready
from usdtbuild.inspection.process import ProcessMemory


@contextlib.contextmanager
def running(*command: Any) -> Iterator[int]:
    """Run a program that prints `ready` and waits; give its number, and end it."""
    with ready(*command) as process:
        yield process.pid
        process.kill()


def listed(usdtbuild: Any, pid: int, *options: Any) -> dict[str, dict[str, Any]]:
    files = json.loads(usdtbuild("list", "--json", pid, *options).stdout)["files"]
    return {Path(file["path"]).name: file for file in files}


def test_a_program_and_its_module_are_shown_where_they_are_loaded(
    sdt_program: Any, usdtbuild: Any, tmp_path: Path
) -> None:
    module = tmp_path / "module.so"
    shutil.copy(sdt_program("-shared", "-fPIC"), module)
    with running(sdt_program("-pie", "-fPIE"), module) as pid:
        found = listed(usdtbuild, pid, "-p", "app:*")
        assert set(found) == {"app", "module.so"}
        for file in found.values():
            assert file["process"]["pid"] == pid
            bias = int(file["process"]["load_bias"], 16)
            for probe in file["probes"]:
                for site in probe["sites"]:
                    address = int(site["runtime_address"], 16)
                    assert address == bias + int(site["address"], 16)
                    with ProcessMemory(pid) as memory:
                        assert memory.read(address, 1) == b"\x90"


def test_a_program_that_is_not_position_independent_has_no_bias(sdt_program: Any, usdtbuild: Any) -> None:
    with running(sdt_program("-no-pie", "-fno-pie")) as pid:
        file = listed(usdtbuild, pid)["app"]
        assert file["process"]["load_bias"] == "0x0"


def test_a_static_program_is_shown(sdt_program: Any, usdtbuild: Any) -> None:
    with running(sdt_program("-static-pie", "-fPIE")) as pid:
        assert {probe["provider"] for probe in listed(usdtbuild, pid)["app"]["probes"]} >= {"app"}


def test_the_table_shows_the_semaphores_values(sdt_program: Any, usdtbuild: Any) -> None:
    with running(sdt_program()) as pid:
        shown = usdtbuild("list", pid, "-p", "app:guarded").stdout
        assert "loaded at 0x" in shown
        assert shown.rstrip().endswith(" = 0")


def test_a_semaphore_that_was_incremented_shows_its_value(sdt_program: Any, usdtbuild: Any) -> None:
    with running(sdt_program()) as pid:
        (site,) = listed(usdtbuild, pid, "-p", "app:guarded")["app"]["probes"][0]["sites"]
        assert site["semaphore"]["value"] == 0
        with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
            memory.seek(int(site["semaphore"]["runtime_address"], 16))
            memory.write(b"\x02\x01")
        (site,) = listed(usdtbuild, pid, "-p", "app:guarded")["app"]["probes"][0]["sites"]
        assert site["semaphore"]["value"] == 0x102


def test_a_deleted_program_is_still_read(sdt_program: Any, usdtbuild: Any, tmp_path: Path) -> None:
    path = tmp_path / "going"
    shutil.copy(sdt_program(), path)
    with running(path) as pid:
        path.unlink()
        assert listed(usdtbuild, pid)["going"]["path"] == str(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may open the deleted files of a process")
def test_a_deleted_module_is_still_read(sdt_program: Any, usdtbuild: Any, tmp_path: Path) -> None:
    module = tmp_path / "module.so"
    shutil.copy(sdt_program("-shared", "-fPIC"), module)
    with running(sdt_program(), module) as pid:
        module.unlink()
        assert "module.so" in listed(usdtbuild, pid)


@pytest.mark.parametrize("command", ["list", "calls", "functions", "trace"])
@pytest.mark.parametrize("rights", ["all", "none"])  # to open the deleted files of a process
def test_code_that_is_no_file_s_is_passed_over(command: str, rights: str, run: Any, need: Any, tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(
        """
import mmap, os, sys
file = os.memfd_create("made")
os.truncate(file, 2 * mmap.PAGESIZE)
code = [mmap.mmap(file, mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_EXEC, offset=offset)
        for offset in (mmap.PAGESIZE, 0)[:int(sys.argv[1])]]
print("ready", flush=True)
sys.stdin.read()
"""
    )
    words: list[Any] = [sys.executable, "-m", "usdtbuild", command]
    prefix = [need("setpriv"), "--bounding-set=-all"] if rights == "none" and os.geteuid() == 0 else []
    for mappings in (1, 2):
        with running(*prefix, sys.executable, tmp_path / "made.py", mappings) as pid:
            words[4:] = ["--count", "--duration", "0.1", "-p", pid] if command == "trace" else [pid]
            assert "/memfd:made" in Path(f"/proc/{pid}/maps").read_text()
            assert "memfd" not in run(*prefix, *words).stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may leave the mount namespace")
def test_files_of_another_mount_namespace_are_read(sdt_program: Any, usdtbuild: Any, tmp_path: Path, need: Any) -> None:
    if subprocess.run([need("unshare"), "--mount", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("no mount namespace can be made here (in a chroot, for one)")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    script = f'mount -t tmpfs none "{hidden}" && cp "{sdt_program()}" "{hidden}/inside" && exec "{hidden}/inside"'
    with running(need("unshare"), "--mount", "sh", "-c", script) as pid:
        assert not (hidden / "inside").exists()
        assert listed(usdtbuild, pid)["inside"]["path"] == str(hidden / "inside")


def test_without_rights_it_says_what_would_give_them(sdt_program: Any, run: Any, other_user: tuple[str, ...]) -> None:
    with running(sdt_program()) as pid:
        done = run(*other_user, sys.executable, "-m", "usdtbuild", "list", pid, code=1, cwd="/")
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"usdtbuild: process {pid}: can't be read: permission denied; run it as root")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can lack one of root's capabilities")
def test_root_hears_which_capability_is_missing(run: Any) -> None:
    without = "setpriv", "--bounding-set=-all", "--inh-caps=-all"  # some of the others would do on newer kernels
    with running("setpriv", "--reuid=1234", "--clear-groups", "sh", "-c", "echo ready; read line") as pid:
        done = run(*without, sys.executable, "-m", "usdtbuild", "list", pid, code=1)
    assert f"process {pid}: can't be read: permission denied; root lacks CAP_SYS_PTRACE here" in done.stderr


def test_one_s_own_process_needs_no_root(sdt_program: Any, run: Any, other_user: tuple[str, ...]) -> None:
    folder = Path(f"/tmp/usdtbuild-own-{os.getpid()}")  # pytest's own folders are closed to others
    folder.mkdir(mode=0o755)
    try:
        path = folder / "app"
        shutil.copy(sdt_program(), path)
        with running(*other_user, path) as pid:
            done = run(*other_user, sys.executable, "-m", "usdtbuild", "list", "--json", pid, cwd="/")
            assert {Path(file["path"]).name for file in json.loads(done.stdout)["files"]} >= {"app"}
    finally:
        shutil.rmtree(folder)


def test_kernel_threads_have_nothing_to_show(usdtbuild: Any) -> None:
    thread = next((p.name for p in Path("/proc").iterdir() if p.name.isdigit() and _is_kernel_thread(p)), None)
    if thread is None:
        pytest.skip("no kernel thread is visible here")
    assert "has no program in memory" in usdtbuild("list", thread, code=1).stderr


def _is_kernel_thread(folder: Path) -> bool:
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()[6:7] != [] and not (
            folder / "maps"
        ).read_bytes()
    except OSError:
        return False


def test_a_module_that_is_loaded_twice_is_shown_twice(
    sdt_program: Any, usdtbuild: Any, tmp_path: Path, run: Any
) -> None:
    source = tmp_path / "twice.c"
    source.write_text(
        """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    if (!dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW) || !dlopen(argv[1], RTLD_NOW)) { puts(dlerror()); return 1; }
    puts("ready"); fflush(stdout); return getchar();
}
"""
    )
    run("gcc", source, "-o", tmp_path / "twice")
    module = sdt_program("-shared", "-fPIC")
    with running(tmp_path / "twice", module) as pid:
        files = json.loads(usdtbuild("list", "--json", pid, "-p", "app:*").stdout)["files"]
        assert [file["path"] for file in files] == [str(module)] * 2
        assert len({file["process"]["load_bias"] for file in files}) == 2
