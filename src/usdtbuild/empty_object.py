"""What the user's compiler makes of an empty file: an object that tells what this build makes objects for.

The target triple wouldn't do: CC or CFLAGS may hold -m32 or an ABI's name, and linkers compare flags and marks that
only an object has.
"""

# ruff: noqa: PTH123

from __future__ import annotations

import os
import shutil
import subprocess
from tempfile import TemporaryDirectory

from .elf.read import ElfObject
from .errors import UsdtError
from .provider.preprocess import COMPILERS, words_of


def compile_nothing(bits: int = 0) -> ElfObject:
    """Return the object that `$CC $CFLAGS` makes of nothing, for 32 or 64 bits if `bits` says so. Raises UsdtError."""
    compiler = words_of("CC") or [next(filter(shutil.which, COMPILERS), COMPILERS[0])]
    model = [f"-m{bits}"] if bits else []
    with TemporaryDirectory(prefix="usdtbuild-") as folder:
        path = f"{folder}/empty.o"
        # Only code generation matters; -c and a language that needs no headers make the rest harmless.
        command = [*compiler, *words_of("CFLAGS"), *model, "-fno-lto", "-w", "-c", "-o", path, "-x", "c", os.devnull]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            what = f"can't run the compiler {command[0]}, to see what it makes objects for: {reason}"
            raise UsdtError(f"{what}; set CC") from None
        if done.returncode:
            said = "".join(f"\n  {line}" for line in done.stderr.decode("utf-8", "replace").splitlines())
            raise UsdtError(
                f"can't see what the compiler makes objects for: {' '.join(command)} failed with exit code "
                f"{done.returncode}; set CC and CFLAGS to what the program is compiled with{said}"
            )
        with open(path, "rb") as file:
            return ElfObject(file.read(), " ".join(compiler))
