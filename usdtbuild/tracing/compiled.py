"""C of ours that runs in other processes: compiled when it is first needed, by the compiler of this machine, and kept.

What is kept lies in a folder that nobody else may write to, under a name that says of which sources, compiler and
version it is; it appears whole, so that several may make it at once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .. import __version__
from ..files import who_may_change
from .errors import TracerError

# Not _FORTIFY_SOURCE: its inline functions can't be called from ours that leave vector registers alone.
_HARDENED = ("-fstack-protector-strong", "-Wl,-z,relro,-z,now")


def compiled(
    stem: str, sources: Sequence[Path], headers: Sequence[Path], includes: Sequence[Path], *, needs: str
) -> Path:
    """Return a shared library of these sources, made if the cache hasn't got it yet; `stem` begins its name.

    `needs` is who needs it, for messages. Raises TracerError.
    """
    words = os.environ.get("CC", "").split() or ["cc"]
    compiler = shutil.which(words[0])
    if compiler is None:
        raise TracerError(f"{needs} needs a C compiler, and there is no {words[0]}; set CC to one")
    digest = hashlib.sha256(f"{__version__}\0{words}\0{compiler}\0{Path(compiler).stat().st_mtime_ns}".encode())
    for path in [*sources, *headers]:
        digest.update(path.read_bytes())
    folder = cache("live")
    made = folder / f"{stem}-{__version__}-{digest.hexdigest()[:16]}.so"
    if not made.is_file() or made.is_symlink() or who_may_change(str(made)):
        handle, name = tempfile.mkstemp(dir=folder, prefix="making-", suffix=".so")
        os.close(handle)
        options = [
            "-std=gnu99",
            "-O2",
            "-fPIC",
            "-shared",
            "-fvisibility=hidden",
            "-DUSDT_LIVE_ANY_LIBC",
            *_HARDENED,
            *(f"-I{path}" for path in includes),
        ]
        line = [compiler, *words[1:], *options, *map(str, sources), "-lpthread", "-ldl", "-o", name]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            Path(name).unlink()
            raise TracerError(f"{needs} could not be compiled: {done.stderr.strip() or done.returncode}")
        Path(name).chmod(0o755)
        Path(name).replace(made)
    return made


def cache(name: str) -> Path:
    """Return a folder that is ours alone: programs will run, and we believe, what lies there. Raises TracerError.

    Root has one of its own, whatever HOME says: sudo and su may leave another user's there.
    """
    home = "/var/cache" if os.geteuid() == 0 else os.path.expanduser("~/.cache")  # noqa: PTH111 (may be no home at all)
    named = os.environ.get("XDG_CACHE_HOME")
    problem = ""
    for base in (named, "/var/cache") if named and os.geteuid() == 0 else (named or home,):
        folder = Path(os.path.realpath(base)) / "usdtbuild" / name
        try:
            there = next(one for one in (folder, *folder.parents) if one.exists())
            open_to = who_may_change(str(there))
            if not open_to:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                open_to = who_may_change(os.path.realpath(folder))
        except OSError as error:
            problem = f"{folder} can't be made: {error.strerror}; set XDG_CACHE_HOME to one of yours"
            continue
        if not open_to:
            return folder
        problem = f"others may write to {open_to}, so nothing there is used; set XDG_CACHE_HOME to another"
    raise TracerError(problem)
