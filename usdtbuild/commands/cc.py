"""`usdtbuild cc`: its help; the work is `launcher`'s, which `__main__` runs without coming here.

The options are declared so that the help shows them. They are read by `launch.settings.read_options`, because loading a
parser for command lines would cost more than a whole compile step may.
"""

from __future__ import annotations

import click

from ..launcher import main
from ..options import ABSOLUTE, FORMATS, LTO, NOPS, SAFE, SYSTEMS, TABLES, one_of


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
@click.option(
    "--nop",
    type=click.Choice(NOPS),
    default=SAFE,
    show_default=True,
    help="The NOP in place of a call: see usdtbuild instrument.",
)
@click.option("--formats", metavar="LIST", help=f"Records to write: {', '.join(FORMATS)}, with commas.")
@click.option("--target-os", metavar="OS", help=f"{one_of(tuple(SYSTEMS))}; else as the object says.")
@click.option(
    "--lto",
    type=click.Choice(LTO),
    default=LTO[0],
    show_default=True,
    help="What to do with an LTO object whose probes must be completed: compile it again without LTO, or stop.",
)
@click.option(
    "--provider",
    metavar="FILE.d",
    multiple=True,
    help="A provider file for objects without a description of their probes.",
)
@click.option(
    "--patchable-table",
    type=click.Choice(TABLES),
    default=ABSOLUTE,
    show_default=True,
    help="The table of -fpatchable-function-entry: the compiler's, or one that costs nothing at a program's start.",
)
@click.option(
    "--site-table",
    is_flag=True,
    help="Also a table of the sites that is loaded with the code: for usdt_live.h where the file can't be read.",
)
@click.option("--tool-version", metavar="TEXT", help="Ignored; makes a build system rebuild when it changes.")
def command() -> None:
    """Run a compiler, and instrument the objects that it writes.

    COMPILER ARGS is a whole command line: GCC, Clang or a compiler that takes their options, also behind ccache and
    the like. Messages, exit code and the names of all files stay as they are. With -c, each object is complete when
    the command ends; without -c, objects are completed before they are linked.

    \b
      usdtbuild cc -- gcc -O2 -c main.c -o main.o
      make CC="usdtbuild cc -- gcc"
    """
