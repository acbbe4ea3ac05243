"""The Debian package: built in a clean chroot, liked by lintian, and installed in another, where its probe fires.

Needs root, debootstrap and Debian's archive.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.slow


def test_package_is_built_liked_and_installed(debian: Any, inside: Any, run: Any, tmp_path: Path) -> None:
    if not (ROOT / "debian").is_dir():
        pytest.skip("a source distribution has no debian/")
    build, install = debian("build"), debian("install")
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
    shutil.copytree(build / f"src/usdtbuild-{version}", install / "source")
    shutil.copytree(ROOT / "debian", install / "source/debian", dirs_exist_ok=True)
    inside(install, "apt-get update && apt-get install -y --no-install-recommends autopkgtest")
    # autopkgtest installs the package, and what debian/tests/control asks for besides.
    said = inside(install, "autopkgtest --no-built-binaries /package.deb /source -- null", code=None)
    assert re.search(r"^fire +PASS", said.stdout, re.MULTILINE), said.stdout[-3000:] + said.stderr[-3000:]
    assert said.returncode == 0
