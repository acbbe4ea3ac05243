"""`usdtbuild flags`: the compiler options a build needs, checked for the compiler and machine they are for."""

from __future__ import annotations

import os

import click

from ..errors import UsageError
from ..options import TABLES
from . import checked
from .as_json import dumps, headed
from .say import echo


@click.command(
    name="flags",
    short_help="Print the compiler options for patchable function entries, checked for this compiler.",
)
@click.option(
    "--patchable",
    is_flag=False,
    flag_value=checked.ALONE,
    default=None,
    callback=checked.optional,
    metavar="[N,M]",
    help="The option for patchable function entries; without N,M the smallest that is safe on the machine.",
)
@click.option("--compiler", metavar="CC", help="The compiler, with a launcher if there is one.  [default: $CC, or cc]")
@click.option(
    "--language", type=click.Choice(["c", "c++"]), help="The language; by default what the compiler's name says."
)
@click.option("--patchable-table", type=click.Choice(TABLES), help="The table that they will have: see usdtbuild cc.")
@click.option("--emulator", default="", metavar="CMD", help="What runs programs of the compiler's machine here.")
@click.option("--no-probe", is_flag=True, help="Don't compile and run a probe; a wrong compiler goes unnoticed.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTION...]")
def command(
    patchable: str | None,
    compiler: str | None,
    language: str | None,
    patchable_table: str | None,
    emulator: str,
    no_probe: bool,
    as_json: bool,
    options: tuple[str, ...],
) -> None:
    """Print the options to compile with, for patchable function entries.

    OPTIONs are those the project compiles with; give them, because some decide about the machine, and some can't go
    together with patchable entries. A probe is compiled, checked and run: a compiler that miscompiles the option is
    refused (exit code 1). Warnings and notes go to stderr.
    """
    from ..compilers.flags import choose, parse_pair

    if patchable is None:
        raise UsageError("say which options: --patchable, or --patchable N,M")
    pair = parse_pair(patchable, "--patchable") if patchable else None
    compiler = compiler or os.environ.get("CC") or "cc"
    chosen = choose(pair, compiler, options, language or "", emulator, not no_probe, patchable_table or "")
    if as_json:
        found = {
            "flags": list(chosen.flags),
            "machine": chosen.machine,
            "pair": list(chosen.pair) if chosen.pair else None,
            "warnings": list(chosen.warnings),
            "probe_ran": chosen.ran,
        }
        echo(dumps(headed("flags", found)))
        return
    echo(" ".join(chosen.flags))
    for warning in chosen.warnings:
        echo(f"usdtbuild: warning: {warning}", err=True)
