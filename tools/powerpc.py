"""Trace first calls that four threads make at once on a PowerPC kernel: what no emulator of user programs can show.

    tools/powerpc.py [--folder FOLDER]

It takes Debian's kernel, gdbserver and C library for ppc64el through apt (into FOLDER, which is made if it isn't there,
and nowhere else), boots them in qemu-system-ppc64, and counts what `usdtbuild trace --remote` sees of a program whose
code loads the slots of its PLT: 40 functions, 6 calls by each thread, the first ones at once, with and without their
returns. Needs qemu-system-ppc, powerpc64le-linux-gnu-gcc with its libraries, dpkg-deb, apt and the network. It takes
some minutes, and is run by hand; it is not part of the product.

Only such a kernel takes a reservation away (lwarx, stwcx.) when a thread is stepped.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

FUNCTIONS, THREADS, ROUNDS = 40, 4, 3
PREFIX = "powerpc64le-linux-gnu"
PACKAGES = ("gdbserver", "busybox-static", "libc6", "libstdc++6", "libgcc-s1")
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
APT = """Dir "{folder}";
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Etc "{folder}/etc";
APT::Architecture "ppc64el";
APT::Architectures {{"ppc64el";}};
APT::Sandbox::User "";
"""
INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox --install -s /bin
export PATH=/bin
insmod /e1000.ko
ifconfig lo 127.0.0.1 up
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
while :; do gdbserver --once 0.0.0.0:2345 /t/program; done
"""
PROGRAM = """#include <pthread.h>
#include <stdio.h>
{declarations}
static int (*const slots[])(int) = {{ {slots} }};
static pthread_barrier_t barrier;
static void *work(void *sum)
{{
	for (int round = 0; round < {rounds}; round++)
		for (int n = 0; n < {functions}; n++) {{
			pthread_barrier_wait(&barrier);
			*(long *)sum += slots[n](round);
			*(long *)sum += slots[n](round + 100);
		}}
	return 0;
}}
int main(void)
{{
	static long sums[{threads}], all;
	static pthread_t threads[{threads}];
	pthread_barrier_init(&barrier, 0, {threads});
	for (int n = 0; n < {threads}; n++)
		pthread_create(&threads[n], 0, work, &sums[n]);
	for (int n = 0; n < {threads}; n++) {{
		pthread_join(threads[n], 0);
		all += sums[n];
	}}
	printf("sum %ld\\n", all);
	return 0;
}}
"""


def main() -> int:
    """Do all of it; return 0 if every call was seen once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where what is downloaded stays (default: a temporary folder)")
    folder = parser.parse_args().folder
    for tool in ("qemu-system-ppc64", f"{PREFIX}-gcc", "dpkg-deb", "apt-get"):
        if not shutil.which(tool):
            print(f"{tool} is not installed", file=sys.stderr)
            return 2
    with tempfile.TemporaryDirectory() as temporary:
        work = (folder or Path(temporary)).absolute()
        work.mkdir(parents=True, exist_ok=True)
        download(work)
        build(work)
        pack(work / "root", work / "initrd.gz")
        return trace(work)


def download(work: Path) -> None:
    """Fetch and unpack the packages, with apt's own checks, unless that was done before."""
    if (work / "root/boot").is_dir():
        return
    apt = work / "apt"
    for name in ("state/lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    source = f"deb [signed-by={KEYS}] http://deb.debian.org/debian bookworm main\n"
    (apt / "etc/sources.list").write_text(source)
    (apt / "apt.conf").write_text(APT.format(folder=apt))
    environment = {**os.environ, "APT_CONFIG": str(apt / "apt.conf")}
    subprocess.run(["apt-get", "-q", "update"], env=environment, check=True)
    shown = subprocess.run(
        ["apt-cache", "depends", "linux-image-powerpc64le"],
        env=environment, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    kernel = re.findall(r"Depends: (linux-image-\S+)", shown)
    subprocess.run(["apt-get", "-q", "download", *kernel, *PACKAGES], env=environment, check=True, cwd=apt)
    for package in apt.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, work / "unpacked"], check=True)
    root = work / "root"
    unpacked = work / "unpacked"
    (root / "bin").mkdir(parents=True)
    for name in ("bin/busybox", "usr/bin/gdbserver"):
        shutil.copy(unpacked / name, root / "bin")
    shutil.copytree(unpacked / "lib64", root / "lib64", symlinks=True)
    libraries = Path("lib", PREFIX)
    shutil.copytree(unpacked / libraries, root / libraries, symlinks=True)
    for path in (unpacked / "usr" / libraries).glob("libstdc++*"):
        shutil.copy(path, root / libraries, follow_symlinks=False)
    shutil.copy(next((unpacked / "lib/modules").rglob("e1000.ko")), root)
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)
    shutil.copytree(unpacked / "boot", work / "boot", dirs_exist_ok=True)
    (root / "boot").mkdir()  # all of it is there


def build(work: Path) -> None:
    """Build the program and its library into the system."""
    numbers, target = range(FUNCTIONS), work / "root/t"
    target.mkdir(exist_ok=True)
    text = PROGRAM.format(
        declarations="".join(f"int slot_{n}(int);\n" for n in numbers), slots=", ".join(f"slot_{n}" for n in numbers),
        functions=FUNCTIONS, threads=THREADS, rounds=ROUNDS,
    )  # fmt: skip
    (work / "program.c").write_text(text)
    slots = "".join(f"int own_{n}(int);\nint slot_{n}(int v) {{ return own_{n}(v); }}\n" for n in numbers)
    (work / "slots.c").write_text(slots)
    (work / "library.c").write_text("".join(f"int own_{n}(int v) {{ return v + {n}; }}\n" for n in numbers))
    library = target / "libown.so"
    gcc = [f"{PREFIX}-gcc", "-O1"]
    subprocess.run(
        [*gcc, "-shared", "-fPIC", "library.c", "-Wl,-soname,libown.so", "-o", library], check=True, cwd=work
    )
    options = ["-fno-plt", "-pthread", "-Wl,-z,lazy", "-Wl,-rpath,/t"]
    words: list[str | Path] = [*gcc, *options, "program.c", "slots.c", library, "-o", target / "program"]
    subprocess.run(words, check=True, cwd=work)


def pack(root: Path, output: Path) -> None:
    """Write a folder as the kernel takes it for its first file system (cpio, "newc", gzip)."""
    with gzip.open(output, "wb", 1) as file:
        for number, (name, mode, data, device) in enumerate(_entries(root), 1):
            encoded = name.encode() + b"\0"
            fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
            head = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
            file.write(head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4))


def _entries(root: Path) -> Iterator[tuple[str, int, bytes, tuple[int, int]]]:
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        data = str(path.readlink()).encode() if stat.S_ISLNK(mode) else path.read_bytes() if stat.S_ISREG(mode) else b""
        yield str(path.relative_to(root)), mode, data, (0, 0)
    yield "dev", stat.S_IFDIR | 0o755, b"", (0, 0)
    yield "dev/console", stat.S_IFCHR | 0o600, b"", (5, 1)
    yield "TRAILER!!!", 0, b"", (0, 0)


def trace(work: Path) -> int:
    """Boot, trace twice, and say what was seen; return 0 if that was every call."""
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    kernel = next((work / "boot").glob("vmlinux*"))
    words = ["qemu-system-ppc64", "-M", "pseries", "-cpu", "POWER9", "-smp", "2", "-m", "1024", "-nodefaults"]
    words += ["-nographic", "-serial", "stdio", "-kernel", str(kernel), "-initrd", str(work / "initrd.gz")]
    words += ["-append", "console=hvc0 quiet", "-device", "e1000,netdev=n,romfile="]
    words += ["-netdev", f"user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:2345"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT) as machine:
        try:
            results = [_traced(work, machine, port, options) for options in ((), ("--returns",))]
        finally:
            machine.kill()
    return 0 if all(results) else 1


def _traced(work: Path, machine: subprocess.Popen[bytes], port: int, options: tuple[str, ...]) -> bool:
    _wait_for(machine, b"Listening on port")
    start = time.monotonic()
    words: list[str | Path] = [
        sys.executable,
        "-m",
        "usdtbuild",
        "trace",
        "--remote",
        f"localhost:{port}",
        "--sysroot",
        work / "root",
    ]
    words += ["--module", "program", "-L", "own_*", *options, "--", work / "root/t/program"]
    shown = subprocess.run(words, check=False, capture_output=True, text=True)
    calls = Counter(re.findall(r"(own_\d+) arg1=0x(\w+)", shown.stdout))
    returned = Counter(re.findall(r"(own_\d+):return result=0x(\w+)", shown.stdout))
    values = [round_ + more for round_ in range(ROUNDS) for more in (0, 100)]
    right = {(f"own_{n}", f"{value:x}"): THREADS for n in range(FUNCTIONS) for value in values}
    results: Counter[tuple[str, str]] = Counter()
    for n in range(FUNCTIONS):
        results.update({(f"own_{n}", f"{value + n:x}"): THREADS for value in values})
    total = THREADS * sum(n + value for n in range(FUNCTIONS) for value in values)
    ended = _wait_for(machine, b"sum ", b"Child ").decode("utf-8", "replace").strip()
    print(
        f"{' '.join(options) or 'calls'}: {calls.total()} of {sum(right.values())} calls, {returned.total()} returns,"
        f" in {time.monotonic() - start:.0f} s; exit code {shown.returncode}{shown.stderr and ': ' + shown.stderr}"
    )
    print(f"    the program: {ended}")
    seen = calls == right and returned == (results if options else Counter())
    return seen and not shown.returncode and ended == f"sum {total}"


def _wait_for(machine: subprocess.Popen[bytes], *texts: bytes) -> bytes:
    """Return the machine's next line with one of some texts."""
    assert machine.stdout is not None
    seen = b""
    for line in machine.stdout:
        seen += line
        if any(text in line for text in texts):
            return line
    raise SystemExit(f"the machine ended: {seen[-2000:].decode('utf-8', 'replace')}")


if __name__ == "__main__":
    sys.exit(main())
