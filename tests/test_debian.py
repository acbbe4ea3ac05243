"""The Debian package: built in a clean chroot, liked by lintian, and installed in another, where its probe fires.

Needs root, debootstrap and Debian's archive.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
RELEASE = "trixie"  # the first with hatchling 1.27 and capstone 5
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def inside(run: Any, need: Any) -> Any:
    """Run a command in a chroot with a /proc of its own that goes away with it: `inside(chroot, "make", ...)`."""
    if not (ROOT / "debian").is_dir():
        pytest.skip("a source distribution has no debian/")
    if os.geteuid() != 0:
        pytest.skip("a chroot needs root")
    need("debootstrap")
    need("unshare")

    def run_inside(chroot: Path, script: str, **more: Any) -> Any:
        variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        inner = f'mount -t proc proc {chroot}/proc && exec chroot {chroot} sh -ec "$0"'
        return run("unshare", "--mount", "sh", "-ec", inner, script, env=variables, timeout=1800, **more)

    return run_inside


@pytest.fixture(scope="module")
def chroot(inside: Any, run: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A smallest Debian, and a copy of it."""
    folder = tmp_path_factory.mktemp("debian")
    first = folder / "build"
    done = run("debootstrap", "--variant=minbase", RELEASE, first, code=None, timeout=1800)
    if done.returncode:
        pytest.skip(f"debootstrap got no {RELEASE}: {done.stdout.splitlines()[-1]}")
    run("cp", "-a", first, folder / "install")
    yield first, folder / "install"
    shutil.rmtree(folder, ignore_errors=True)


def test_package_is_built_liked_and_installed(chroot: Any, inside: Any, run: Any, tmp_path: Path) -> None:
    build, install = chroot
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, ROOT)
    (sdist,) = tmp_path.glob("*.tar.gz")
    version = sdist.name[len("usdtbuild-") : -len(".tar.gz")]
    (build / "src").mkdir()
    shutil.copy(sdist, build / f"src/usdtbuild_{version}.orig.tar.gz")
    run("tar", "xf", sdist, "--no-same-owner", cwd=build / "src")
    shutil.copytree(ROOT / "debian", build / f"src/usdtbuild-{version}/debian")
    needed = "build-essential lintian"
    inside(
        build, f"apt-get update && apt-get install -y {needed} && cd /src/usdtbuild-{version} && apt-get build-dep -y ."
    )
    inside(build, f"cd /src/usdtbuild-{version} && dpkg-buildpackage -us -uc")
    said = inside(build, "cd /src && lintian usdtbuild_*.changes", code=None).stdout
    assert not re.findall(r"^[EW]: .*$", said, re.MULTILINE), said
    (package,) = (build / "src").glob("*.deb")
    shutil.copy(package, install / "package.deb")
    shutil.copy(ROOT / "debian/tests/fire", install / "fire")
    depends = "cmake gcc gdb libc6-dev make"  # as in debian/tests/control
    assert depends.split() == re.findall(r"[\w-]+", (ROOT / "debian/tests/control").read_text().split("@,")[1])[:5]
    inside(install, f"apt-get update && apt-get install -y --no-install-recommends /package.deb {depends}")
    assert "$1 = 3" in inside(install, "/fire").stdout
