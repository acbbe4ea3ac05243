"""Get a machine ready for `make demo` and `make test`: system packages, the virtual environment, tracefs.

    python3 tools/prepare.py demo     what the demonstration needs
    python3 tools/prepare.py check    what `make check` needs
    python3 tools/prepare.py test     what the tests need
    python3 tools/prepare.py all      what all tests need: also the other machines' compilers, and qemu
    python3 tools/prepare.py missing test   print which of it apt has and is not installed

Runs on a machine that has Python 3 and nothing else of ours, so it imports the standard library only. As root it
installs missing Debian or Ubuntu packages with apt; as a user it names them in one line and goes on where the rest is
enough. A second run finds everything in place and takes a fraction of a second. It is not part of the product.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
SEARCH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"))
TRACEFS = Path("/sys/kernel/tracing")


class Need(NamedTuple):
    """One thing the system must have.

    `found` is a program, an absolute path, or a header's path below an include folder; `packages` are the apt packages
    that bring it, the first that apt knows is taken; `must` means that nothing can be shown without it; `root` that
    only root can use it; `pip` is a package of Python's index that does as well.
    """

    found: str
    packages: tuple[str, ...]
    must: bool = False
    root: bool = False
    pip: str = ""


DEMO = (
    Need("gcc", ("gcc",), must=True),
    Need("g++", ("g++",), must=True),
    Need("include:stdio.h", ("libc6-dev",), must=True),
    Need("cmake", ("cmake",), pip="cmake"),
    Need("ninja", ("ninja-build",), pip="ninja"),
    Need("gdb", ("gdb",)),
    Need("bpftrace", ("bpftrace",), root=True),
)
# Package names are Debian's; the later ones of a row are Ubuntu's, or those of newer releases.
CHECK = (
    *(need for need in DEMO if need.must),
    Need("gdb", ("gdb",)),
    Need("ld.gold", ("binutils-gold", "binutils")),
    Need("clang", ("clang",)),
    Need("ld.lld", ("lld",)),
    Need("llvm-objcopy", ("llvm",)),
    Need("ld.mold", ("mold",)),
    Need("make", ("make",), must=True),
    Need("include:sys/sdt.h", ("systemtap-sdt-dev",)),
    Need(str(Path(sysconfig.get_path("include"), "Python.h")), ("python3-dev",)),
    Need("eu-strip", ("elfutils",)),
    Need("patch", ("patch",)),
    Need("strace", ("strace",)),
)
TEST = (
    *CHECK,
    *(need for need in DEMO if need not in CHECK),
    Need("perf", ("linux-perf", "linux-tools-generic"), root=True),
    Need("tplist-bpfcc", ("bpfcc-tools",), root=True),
    Need("gdbserver", ("gdbserver",)),
    Need("valgrind", ("valgrind",)),
    Need("ccache", ("ccache",)),
    Need("distcc", ("distcc",)),
    Need("include:gtest/gtest.h", ("libgtest-dev",)),
    Need("sccache", ("sccache",)),
    Need("musl-gcc", ("musl-tools",)),
    Need("autoreconf", ("autoconf",)),
    Need("automake", ("automake",)),
    Need("libtoolize", ("libtool",)),
    Need("scons", ("scons",)),
    Need("pkg-config", ("pkg-config",)),
    Need("uftrace", ("uftrace",)),
    Need("babeltrace2", ("babeltrace2",)),
    Need("qemu-aarch64", ("qemu-user",)),
)
# The other machines: what their compilers are called, and their C libraries' packages.
MACHINES = {
    "aarch64-linux-gnu": "arm64",
    "arm-linux-gnueabi": "armel",
    "arm-linux-gnueabihf": "armhf",
    "i686-linux-gnu": "i386",
    "mips-linux-gnu": "mips",
    "mips64-linux-gnuabi64": "mips64",
    "mips64el-linux-gnuabi64": "mips64el",
    "mipsel-linux-gnu": "mipsel",
    "powerpc-linux-gnu": "powerpc",
    "powerpc64-linux-gnu": "ppc64",
    "powerpc64le-linux-gnu": "ppc64el",
    "riscv64-linux-gnu": "riscv64",
    "s390x-linux-gnu": "s390x",
    "sparc64-linux-gnu": "sparc64",
}
CXX_MACHINES = ("aarch64-linux-gnu", "riscv64-linux-gnu", "s390x-linux-gnu")
ALL = (
    *TEST,
    Need("bazel", ("bazel-bootstrap",)),  # brings 44 packages
    # The first LLVM that knows all the machines (LoongArch, s390x and SPARC in its linker).
    Need("clang-19", ("clang-19",)),
    Need("ld.lld-19", ("lld-19",)),
    Need("llvm-objdump-19", ("llvm-19",)),
    Need("gdb-multiarch", ("gdb-multiarch",)),
    Need("chromium", ("chromium",)),  # for the pages that `trace` writes; Ubuntu's is no package but a snap
    # What runs, or checks, scripts for other tracers.
    Need("bpftool", ("bpftool", "linux-tools-generic"), root=True),
    Need("include:bpf/libbpf.h", ("libbpf-dev",)),
    Need("stap", ("systemtap",)),
    # What looks at the recipes of packaging/.
    Need("rpmbuild", ("rpm",)),
    Need("nix-instantiate", ("nix-bin",)),
    Need("ruby", ("ruby",)),
    Need("go", ("golang-go",)),  # whose pprof reads profiles
    Need("promtool", ("prometheus",)),  # scrapes `trace --prometheus`
    Need("systemd-nspawn", ("systemd-container",), root=True),  # runs its service
    Need("curl", ("curl",)),
    Need("x86_64-linux-gnux32-gcc", ("gcc-x86-64-linux-gnux32",)),
    *(Need(f"{machine}-gcc", (f"gcc-{machine}",)) for machine in MACHINES),
    *(Need(f"{machine}-g++", (f"g++-{machine}",)) for machine in CXX_MACHINES),
    *(Need(f"/usr/{machine}/include/stdio.h", (f"libc6-dev-{port}-cross",)) for machine, port in MACHINES.items()),
)
NEEDS = {"demo": DEMO, "check": CHECK, "test": TEST, "all": ALL}
# Versions and hashes of all that comes from Python's index: `make lock` writes them.
LOCKED = ROOT / "tools/locked"
# Build tools that the sample projects are built with beside the distribution's: the oldest we support, and the newest.
TOOLS = ("cmake-oldest", "cmake-newest", "meson-oldest", "meson-newest", "setuptools-oldest")


def main(arguments: list[str]) -> int:
    """Prepare the machine for the purpose named on the command line; return the exit code."""
    if len(arguments) == 2 and arguments[0] == "missing" and arguments[1] in NEEDS:
        return print_missing(NEEDS[arguments[1]])
    if len(arguments) != 1 or arguments[0] not in NEEDS:
        print(__doc__, file=sys.stderr)
        return 2
    if sys.version_info < (3, 10):  # noqa: UP036 - this file meets whatever python3 the machine has
        return fail(f"Python 3.10 or newer is needed, and {sys.executable} is {sys.version.split()[0]}.")
    purpose = arguments[0]
    is_root = os.geteuid() == 0
    missing = [need for need in NEEDS[purpose] if not is_there(need) and (is_root or not need.root)]
    wanted = [need.packages for need in missing]
    if not (VENV / "bin/python").exists() and not can_make_venv():
        wanted.append(("python3-venv",))
    if wanted and is_root and shutil.which("apt-get"):
        install(wanted)
        missing = [need for need in missing if not is_there(need)]
        wanted = [need.packages for need in missing]
    if wanted:
        name_missing(wanted)
    without = [need.found.replace("include:", "") for need in missing if need.must]
    if without:
        return fail(f"Nothing can be built without {', '.join(without)}.")
    if not (VENV / "bin/python").exists() and not can_make_venv():
        return fail("Python's venv module is missing (Debian and Ubuntu: python3-venv).")
    make_venv(purpose, [need.pip for need in missing if need.pip and not is_there(need)])
    if purpose not in ("demo", "check"):
        fetch_tools((*TOOLS, "parquet") if purpose == "all" else TOOLS)
        fetch_wheels()
    if purpose == "all":
        fetch_dtrace()
    if is_root:
        mount_tracefs()
    return 0


def print_missing(needs: tuple[Need, ...]) -> int:
    """Print the names of what isn't there and apt could install; return 0."""
    for need in needs:
        if not is_there(need) and known([need.packages]):
            print(Path(need.found).name if need.found.startswith("/") else need.found.removeprefix("include:"))
    return 0


def is_there(need: Need) -> bool:
    """Tell whether the machine has the program, file or header."""
    if need.found.startswith("/"):
        return Path(need.found).exists()
    if need.found.startswith("include:"):
        header = need.found[len("include:") :]
        folders = (Path("/usr/include"), Path("/usr/local/include"), *Path("/usr/include").glob("*-linux-gnu*"))
        return any((folder / header).exists() for folder in folders)
    if need.found == "perf":
        # Ubuntu's /usr/bin/perf is a script that fails without the tools of the running kernel.
        return runs("perf", "--version")
    return bool(shutil.which(need.found, path=SEARCH) or (need.pip and (VENV / "bin" / need.found).exists()))


def can_make_venv() -> bool:
    """Tell whether this Python can make an environment with pip in it; Debian's can't without python3-venv."""
    return runs(sys.executable, "-c", "import ensurepip, venv")


def runs(*command: str) -> bool:
    """Run a command for its exit code alone."""
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


# --- system packages ------------------------------------------------------------------------------------------


def install(wanted: list[tuple[str, ...]]) -> None:
    """Install with apt one package of each row, as far as apt knows one."""
    packages = known(wanted)
    print(f"Installing with apt: {' '.join(packages or [row[0] for row in wanted])}", flush=True)
    if len(packages) == len(wanted) and apt("install", *packages):
        return
    # Package lists that are empty, or so old that their files are gone from the mirror.
    apt("update")
    packages = known(wanted)
    if not apt("install", *packages):
        for package in packages:  # one that can't be had must not cost us the others
            apt("install", package)


def known(wanted: list[tuple[str, ...]]) -> list[str]:
    """Return, of each row, the first package that apt can install; nothing of rows where there is none."""
    if not shutil.which("apt-cache"):
        return []
    names = [name for row in wanted for name in row]
    shown = subprocess.run(
        ["apt-cache", "--no-all-versions", "show", *names], capture_output=True, text=True, check=False
    )
    available = {line.split()[1] for line in shown.stdout.splitlines() if line.startswith("Package: ")}
    return [name for row in wanted for name in [name for name in row if name in available][:1]]


def apt(verb: str, *packages: str) -> bool:
    """Run apt-get quietly and without questions; show its last lines if it fails."""
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    options = ["--no-install-recommends", "-o", "DPkg::Lock::Timeout=120"] if verb == "install" else []
    done = subprocess.run(
        ["apt-get", "-y", "-qq", verb, *options, *packages],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        print("\n".join((done.stdout + done.stderr).splitlines()[-5:]), file=sys.stderr, flush=True)
    return done.returncode == 0


def name_missing(wanted: list[tuple[str, ...]]) -> None:
    """Say in one line what is missing; where apt doesn't know the packages, under Debian's names."""
    names = " ".join((known([row]) or row)[0] for row in wanted)
    print(f"Missing, install as root for the whole picture: apt-get install {names}", file=sys.stderr, flush=True)


# --- the virtual environment ----------------------------------------------------------------------------------


def make_venv(purpose: str, extra: list[str]) -> None:
    """Make `.venv` with this checkout installed in it, editable; do nothing where that has been done already."""
    listed = [LOCKED / f"{'demo' if purpose == 'demo' else 'test'}.txt"]
    if extra:
        listed.append(LOCKED / "programs.txt")
    recipe = f"{sys.version} {ROOT}\n".encode() + b"".join(
        path.read_bytes() for path in (*listed, ROOT / "pyproject.toml")
    )
    digest = hashlib.sha256(recipe).hexdigest()
    stamp = VENV / (".prepared-demo" if purpose == "demo" else ".prepared-test")
    done = stamp.exists() and stamp.read_text() == digest and runs(str(VENV / "bin/python"), "-c", "import usdtbuild")
    if done:
        return
    if not runs(str(VENV / "bin/python"), "-m", "pip", "--version"):
        print("Making a virtual environment in .venv", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    print("Installing the Python packages into .venv", flush=True)
    lists = [word for path in listed for word in ("-r", str(path))]
    if pip("install", "--require-hashes", *lists) or pip(
        "install", "--no-deps", "--no-build-isolation", "-e", str(ROOT)
    ):
        raise SystemExit("pip could not install the Python packages; its message is above.")
    stamp.write_text(digest)


def fetch_tools(names: tuple[str, ...]) -> None:
    """Put the packages of each list into a folder of its own below .cache, where the tests look for it; do so once."""
    for name in names:
        fetch(name, "install", "--no-deps", "--target")


def fetch_wheels() -> None:
    """Put wheels for the tests' own builds into .cache/wheelhouse, for `pip install --no-index --find-links`."""
    fetch("wheelhouse", "download", "--dest")


def fetch(name: str, verb: str, *options: str) -> None:
    """Let pip fill the folder .cache/NAME with what is listed; do nothing where it has done so already."""
    folder, listed = ROOT / ".cache" / name, LOCKED / f"{name}.txt"
    stamp = folder / ".fetched"
    if stamp.exists() and stamp.read_text() == listed.read_text():
        return
    print(f"Fetching for the tests: {name}", flush=True)
    unfinished = folder.with_suffix(f".{os.getpid()}")
    words = ("--only-binary", ":all:", "--require-hashes", "-r", str(listed), *options, str(unfinished))
    if pip(verb, *words) == 0:
        (unfinished / ".fetched").write_text(listed.read_text())
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    else:  # a machine that this version was never built for; the tests that need it are skipped
        shutil.rmtree(unfinished, ignore_errors=True)


def fetch_dtrace() -> None:
    """Unpack Debian testing's DTrace, which no release has yet, and all it needs into .cache/dtrace; do so once."""
    folder = ROOT / ".cache/dtrace"
    if folder.exists() or not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return
    print("Fetching for the tests: dtrace", flush=True)
    unfinished = folder.with_suffix(f".{os.getpid()}")
    for name in ("lists/partial", "archives/partial"):
        (unfinished / "apt" / name).mkdir(parents=True)
    mirrors = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)"], capture_output=True, text=True, check=False
    ).stdout.splitlines() or [""]
    (unfinished / "apt/sources.list").write_text(f"deb {mirrors[0]} testing main\n")
    # With lists and a state of its own apt touches nothing of the system's, and takes nothing for installed.
    options = {"Etc::SourceList": f"{unfinished}/apt/sources.list", "Etc::SourceParts": "-",
               "State::Lists": f"{unfinished}/apt/lists", "State::status": "/dev/null",
               "Cache": f"{unfinished}/apt"}  # fmt: skip
    apt_get = ["apt-get", "-qq", *(word for name, value in options.items() for word in ("-o", f"Dir::{name}={value}"))]
    if runs(*apt_get, "update"):
        runs(*apt_get, "-y", "--no-install-recommends", "--download-only", "install", "dtrace")
    for package in (unfinished / "apt/archives").glob("*.deb"):
        runs("dpkg-deb", "-x", str(package), str(unfinished))
    shutil.rmtree(unfinished / "apt")
    if (unfinished / "usr/sbin/dtrace").exists():
        unfinished.rename(folder)
    else:  # no Debian, or no network; the tests that need it are skipped
        shutil.rmtree(unfinished, ignore_errors=True)


def pip(*arguments: str) -> int:
    """Run the environment's pip, quietly; return its exit code."""
    environment = dict(os.environ, PIP_ROOT_USER_ACTION="ignore", PIP_DISABLE_PIP_VERSION_CHECK="1")
    command = [str(VENV / "bin/python"), "-m", "pip", "--quiet", "--no-input", *arguments]
    return subprocess.run(command, env=environment, check=False).returncode


# --- tracing --------------------------------------------------------------------------------------------------


def mount_tracefs() -> None:
    """Mount tracefs, which perf and bpftrace need, where a minimal system or container hasn't."""
    if TRACEFS.is_dir() and not (TRACEFS / "README").exists():
        runs("mount", "-t", "tracefs", "nodev", str(TRACEFS))


def fail(message: str) -> int:
    """Print why nothing more can be done; return exit code 1."""
    print(message, file=sys.stderr)
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd))
        sys.exit(fail(f"This command failed, with exit code {error.returncode}: {command}"))
