"""`usdtbuild cc`: its help; the work is `launcher`'s, which `__main__` runs without coming here.

The options are declared so that the help shows them. They are read by `launch.settings.read_options`, because loading a
parser for command lines would cost more than a whole compile step may.
"""

from __future__ import annotations

import click

from ..launcher import main
from ..options import STEP_OPTIONS
from .steps import take


class _Launcher(click.Command):
    """A command that hands its words on as they are, unless help is wanted."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = args[: args.index("--")] if "--" in args else args[:1]
        if not args or "--help" in own or "-h" in own:
            return super().parse_args(ctx, ["--help"])
        ctx.args = args
        return args

    def invoke(self, ctx: click.Context) -> int:
        return main(ctx.args)


@click.command(
    cls=_Launcher,
    options_metavar="[OPTIONS] --",
    epilog="Exit codes: the compiler's own, 128 + n where signal n killed it; 1 an object can't be instrumented (it is "
    "removed); 2 usage; 126 the compiler can't be run; 127 there is no such compiler.",
)
@click.argument("compiler", metavar="COMPILER")
@click.argument("args", metavar="ARGS...", nargs=-1)
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what was done to each object with probes.")
@take(*STEP_OPTIONS)
def command() -> None:
    """Run a compiler, and instrument the objects that it writes.

    COMPILER ARGS is a whole command line: GCC, Clang or a compiler that takes their options, also behind ccache and
    the like. Messages, exit code and the names of all files stay as they are. With -c, each object is complete when
    the command ends; without -c, objects are completed before they are linked.

    \b
      usdtbuild cc -- gcc -O2 -c main.c -o main.o
      make CC="usdtbuild cc -- gcc"
    """
