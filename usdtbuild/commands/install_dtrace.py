"""`usdtbuild install-dtrace`: puts an executable `dtrace` into a folder, for builds that find it by that name.

It is a few lines of shell that start this interpreter on this package, by absolute paths and without the user's Python
environment; so it works from any folder, as any user, and however the build sets PATH or PYTHONPATH.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from ..errors import InputError, Told
from ..files import write_whole
from ..outputs import Outputs
from .say import echo

NAME = "dtrace"
# -I and -S leave out the user's variables, the working directory and site-packages, none of which is needed.
_SCRIPT = """\
#!/bin/sh
# Written by `usdtbuild install-dtrace`: runs usdtbuild-dtrace, which makes USDT headers (-h) and objects (-G).
exec {interpreter} -I -S -c '
import sys
sys.path.append(sys.argv.pop(1))
from usdtbuild.dtrace import main
sys.exit(main())
' {folder} "$@"
"""


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--force", is_flag=True, help="Replace a program that is there and isn't ours.")
def command(folder: str, force: bool) -> None:
    """Put an executable `dtrace` into DIR, which a build then finds with PATH=DIR:$PATH or DTRACE=DIR/dtrace.

    DIR is made if it isn't there.
    """
    target = Path(folder, NAME)
    with Told(target, "can't be read"):
        foreign = target.exists() and not (target.is_file() and b"usdtbuild" in target.read_bytes()[:4096])
    if foreign and not force:
        raise InputError(str(target), "is there and isn't ours", "choose another folder, or give --force")
    with Outputs() as outputs:
        outputs.folder(str(target.parent), deep=True)
        write_whole(str(target), script().encode("utf-8", "surrogateescape"), 0o777)
    echo(str(target.absolute()))


def script() -> str:
    """Return the program's text."""
    folder = Path(__file__).resolve().parent.parent.parent
    return _SCRIPT.format(interpreter=shlex.quote(sys.executable), folder=shlex.quote(str(folder)))
