"""Run a Python script on a whole machine of another kind: Debian's kernel, C library and Python in qemu.

    python3 tools/guest.py FOLDER SCRIPT FILES...                   aarch64; FILES are put beside the script
    python3 tools/guest.py --cpu cortex-a57 FOLDER ...              a processor without later extensions
    python3 tools/guest.py --machine riscv64 FOLDER ...             another machine, with a folder of its own

qemu's user mode has no ptrace, and no kernel that cleans instruction caches, so what traces other processes is seen to
work only here. The script runs as a user without any rights; its standard output is ours, and so is its exit code.
This checkout is there, too. FOLDER keeps Debian's packages and is filled the first time, by apt with settings of its
own, which needs the network, qemu-system, and dpkg; where something is missing the exit code is 77. It is not part of
the product.
"""

from __future__ import annotations

import argparse
import fcntl
import gzip
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, NamedTuple
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parent.parent
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Guest(NamedTuple):
    """A machine: Debian's name and suite, Python's version there, the processor, and the console's device."""

    debian: str
    suite: str
    python: str
    cpu: str
    console: str

    @property
    def packages(self) -> tuple[str, ...]:
        """Python with what tracing imports of its library's extensions, and a shell."""
        pieces = (f"libpython{self.python}-minimal", f"libpython{self.python}-stdlib", f"python{self.python}-minimal")
        libraries = ("libc6", "libgcc-s1", "zlib1g", "libffi8", "libbz2-1.0", "liblzma5", "libexpat1")
        return ("busybox-static", *libraries, *pieces)


GUESTS = {
    "aarch64": Guest("arm64", "bookworm", "3.11", "max,pauth-impdef=on", "ttyAMA0"),
    "riscv64": Guest("riscv64", "trixie", "3.13", "rv64", "ttyS0"),
    "loongarch64": Guest("loong64", "sid", "3.13", "la464", "ttyS0"),
}
# The exit code that says that something is missing here.
MISSING = 77
MODULES = ("click", "rich", "elftools", "markdown_it", "mdurl", "pygments")
INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t tmpfs -o mode=1777 tmp /tmp
export PATH=/usr/bin:/bin HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
cd /work
/usr/bin/python3 -c '
import ctypes, os, runpy, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
' /work/{script} 2>&1
echo "guest-exit-code=$?"
/bin/busybox poweroff -f
"""


def missing(machine: str) -> str:
    """Return what this machine lacks, '' if nothing."""
    for tool in (f"qemu-system-{machine}", "dpkg", "apt-get"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    return "" if Path(KEYS).exists() else f"there is no {KEYS}"


def fetch(folder: Path, guest: Guest) -> None:
    """Fill a folder with Debian's packages, if it isn't: `kernel` and `debs`."""
    if (folder / "kernel").exists():
        return
    apt, debs = folder / "apt", folder / "debs"
    for name in ("state/lists/partial", "cache/archives/partial", "etc"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    debs.mkdir(exist_ok=True)
    (apt / "status").touch()
    mirror = f"deb [arch={guest.debian} signed-by={KEYS}] http://deb.debian.org/debian {guest.suite} main\n"
    (apt / "sources.list").write_text(mirror, "utf-8")
    settings = {
        "Dir::State": apt / "state", "Dir::Cache": apt / "cache", "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "-", "Dir::State::status": apt / "status", "APT::Architecture": guest.debian,
        "APT::Architectures": guest.debian, "APT::Sandbox::User": "root",
    }  # fmt: skip
    (apt / "conf").write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()), "utf-8")
    env = {**os.environ, "APT_CONFIG": str(apt / "conf")}
    subprocess.run(["apt-get", "-q", "update"], env=env, check=True, stdout=sys.stderr)
    kernel = f"linux-image-{guest.debian}"
    for kind in ("image", "binary"):  # newer packages have the kernel itself in another one
        shown = ["apt-cache", "depends", kernel]
        text = subprocess.run(shown, env=env, check=True, capture_output=True, text=True).stdout
        kernel = (re.findall(rf"Depends: (linux-{kind}-\S+)", text) or [kernel])[0]
    if guest == GUESTS["aarch64"]:  # for others there is no such wheel
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--dest", str(debs)]
        kind = ["--platform", "manylinux2014_aarch64", "--python-version", guest.python]
        subprocess.run([*pip, *kind, f"capstone=={version('capstone')}"], check=True, stdout=sys.stderr)
    names = [*guest.packages, kernel]
    subprocess.run(["apt-get", "-q", "download", *names], cwd=debs, env=env, check=True, stdout=sys.stderr)
    with tempfile.TemporaryDirectory(dir=folder) as unpacked:
        (package,) = debs.glob("linux-*.deb")
        subprocess.run(["dpkg", "-x", package, unpacked], check=True)
        package.unlink()
        (kernel,) = (path for path in Path(unpacked).rglob("vmlinu[xz]*") if path.is_file())
        kernel.rename(folder / "kernel")


def unpack(folder: Path, root: Path, python: str, script: Path, files: list[Path]) -> None:
    """Make the guest's file system: Debian's packages, ours, the script and its files."""
    for package in sorted((folder / "debs").glob("*.deb")):
        subprocess.run(["dpkg", "-x", package, root], check=True)
    for name in ("doc", "man", "locale", "lintian"):
        shutil.rmtree(root / "usr/share" / name, ignore_errors=True)
    for name in ("proc", "sys", "dev", "tmp", "work"):
        (root / name).mkdir(exist_ok=True)
    for name in ("bin", "lib"):  # newer packages have all in /usr
        if not (root / name).exists():
            (root / name).symlink_to(f"usr/{name}")
    (root / "usr/bin/python3").symlink_to(f"python{python}")
    modules = root / "usr/lib/python3/dist-packages"
    modules.mkdir(parents=True, exist_ok=True)
    quiet = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "usdtbuild", modules / "usdtbuild", ignore=quiet)
    for name in MODULES:
        shutil.copytree(Path(_module(name)), modules / name, ignore=quiet)
    for wheel in (folder / "debs").glob("capstone-*.whl"):
        with ZipFile(wheel) as packed:
            packed.extractall(modules)
    # What the guest would do each time, and slowly.
    compiler = shutil.which(f"python{python}")
    words = ["-m", "compileall", "-qq", "--invalidation-mode", "unchecked-hash", "-s", root, "-p", "/"]
    if compiler is not None:
        subprocess.run([compiler, *words, modules, root / "usr/lib" / f"python{python}"], check=False)
    for file in (script, *files):
        shutil.copy(file, root / "work")
    (root / "init").write_text(INIT.replace("{script}", script.name), "utf-8")
    (root / "init").chmod(0o755)


def _module(name: str) -> str:
    module = __import__(name)
    assert module.__file__ is not None
    return str(Path(module.__file__).parent)


def archive(root: Path, out: BinaryIO) -> None:
    """Write a file system as the kernel takes it at its start (cpio, the format of SVR4), owned by root."""
    entries = [(path.relative_to(root), path.lstat().st_mode, path) for path in sorted(root.rglob("*"))]
    for number, (name, mode, path) in enumerate(entries, 1):
        _entry(out, number, str(name), mode, _data(path, mode))
    _entry(out, 0, "dev/console", stat.S_IFCHR | 0o600, b"")
    _entry(out, 0, "TRAILER!!!", 0, b"")


def _data(path: Path, mode: int) -> bytes:
    if stat.S_ISLNK(mode):
        return str(path.readlink()).encode()
    return path.read_bytes() if stat.S_ISREG(mode) else b""


def _entry(out: BinaryIO, number: int, name: str, mode: int, data: bytes) -> None:
    text = name.encode() + b"\0"
    device = (5, 1) if stat.S_ISCHR(mode) else (0, 0)
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(text), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + text
    out.write(header + b"\0" * (-len(header) % 4) + data + b"\0" * (-len(data) % 4))


def boot(kernel: Path, files: Path, machine: str, cpu: str, timeout: float) -> int:
    """Boot, show what the script says, and return its exit code; 1 if it came to none."""
    guest = GUESTS[machine]
    words = [f"qemu-system-{machine}", "-M", "virt", "-cpu", cpu or guest.cpu, "-smp", "2", "-m", "2G", "-nographic",
             "-nic", "none", "-no-reboot", "-kernel", str(kernel), "-initrd", str(files),
             "-append", f"console={guest.console} quiet panic=-1"]  # fmt: skip
    code = 1
    with subprocess.Popen(
        ["timeout", str(timeout), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as guest:
        assert guest.stdout is not None
        for line in guest.stdout:
            found = re.match(r"guest-exit-code=(\d+)", line)
            if found:
                code = int(found[1])
            else:
                print(line.rstrip("\r\n"), flush=True)
    return code


def main() -> int:
    """Do it."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cpu", default="", help="as qemu has it")
    parser.add_argument("--machine", choices=sorted(GUESTS), default="aarch64")
    parser.add_argument("--timeout", type=float, default=900, help="seconds")
    parser.add_argument("folder", type=Path)
    parser.add_argument("script", type=Path)
    parser.add_argument("files", type=Path, nargs="*")
    options = parser.parse_args()
    lacks, guest = missing(options.machine), GUESTS[options.machine]
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = options.folder.resolve()
    try:
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two may begin at once
            if not lacks:
                fetch(folder, guest)
    except subprocess.CalledProcessError as error:
        lacks = f"Debian's packages can't be fetched: {error}"
    if lacks:
        print(f"{sys.argv[0]}: {lacks}", file=sys.stderr)
        return MISSING
    with tempfile.TemporaryDirectory(dir=folder) as made:
        root, files = Path(made, "root"), Path(made, "files.gz")
        root.mkdir()
        unpack(folder, root, guest.python, options.script, options.files)
        with gzip.open(files, "wb", 1) as out:
            archive(root, out)  # type: ignore[arg-type]
        shutil.rmtree(root)
        return boot(folder / "kernel", files, options.machine, options.cpu, options.timeout)


if __name__ == "__main__":
    sys.exit(main())
