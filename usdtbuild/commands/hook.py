"""`usdtbuild hook`: options that make a compiler instrument its objects, for builds without a compiler launcher."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from ..errors import UsageError
from ..options import RELATIVE
from .say import echo
from .steps import take


@click.command(
    name="hook",
    options_metavar="[OPTIONS] --",
    short_help="Print options that make a compiler instrument its own objects.",
)
@click.option("--into", metavar="DIR", required=True, help="Where the files that the options name are written.")
@take("--formats", "--nop", "--target-os", chosen=False)
@click.option("--patchable", metavar="N,M|auto", default="", help="Also options for patchable function entries.")
@take("--patchable-table", "--site-table", chosen=False)
@click.option("--off", is_flag=True, help="No probes: print only what --patchable asks for.")
@click.option("--one-line", is_flag=True, help="Print one line, quoted for a shell, as CFLAGS takes it.")
@click.argument("compiler", metavar="COMPILER", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    into: str, formats: str, nop: str | None, target_os: str, patchable: str, patchable_table: str | None,
    site_table: bool, off: bool, one_line: bool, compiler: tuple[str, ...],
) -> None:  # fmt: skip
    """Print options for a compiler, one a line, that make it instrument the objects it writes.

    COMPILER is GCC or Clang with what belongs to it, such as ccache before it or --target behind it. It gets an
    assembler of ours, which runs the real one; that this works is tried with a probe. Where the build can run
    `usdtbuild cc` before the compiler, prefer that: it also takes sources with -flto.

    \b
      make CFLAGS="-O2 $(usdtbuild hook --one-line --into build/hook -- gcc)"
    """
    from ..launch.hook import install, take_patchable
    from ..launch.settings import read_options

    given = {"--formats": formats, "--nop": nop, "--target-os": target_os, "--patchable-table": patchable_table}
    options = [f"{name}={value}" for name, value in given.items() if value]
    options += ["--site-table"] * site_table
    try:
        read_options([*options, "--", *compiler])
    except ValueError as problem:
        raise UsageError(f"hook: {problem}") from None
    if patchable_table and not patchable:
        raise UsageError("hook: --patchable-table goes with --patchable")
    flags: list[str] = []
    if not off or patchable_table == RELATIVE:
        flags += install(compiler, Path(into), options)
    if patchable:
        chosen, warnings = take_patchable(patchable, compiler, patchable_table or "")
        flags += chosen
        for warning in warnings:
            echo(f"usdtbuild: warning: {warning}", err=True)
    lines = [shlex.join(flags)] if one_line else flags
    sys.stdout.write("".join(f"{line}\n" for line in lines))
