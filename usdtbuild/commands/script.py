"""`usdtbuild script`: programs for other tracers, with the names and types of a file's probes."""

from __future__ import annotations

import shlex

import click

from .. import apart
from ..errors import InputError, UsageError
from ..limits import PROVIDER_FILE
from ..model import Provider
from ..provider.enumerators import Values, declared
from ..provider.parser import check_content
from ..scripts import LANGUAGES
from ..scripts.wish import PROGRAM, Wish, of_file, of_providers, plain_path
from ..tracing.filters import Filter
from ..tracing.selection import Wanted
from . import checked
from .looking import look
from .say import echo


@click.command(name="script", short_help="Write a program for another tracer that watches a file's probes.")
@click.argument("language", type=click.Choice([*LANGUAGES]))
@click.argument("file", metavar="BINARY|FILE.d")
@click.option("-P", "--probe", "probes", metavar="GLOB", multiple=True, help="Only these: provider:probe, or probe.")
@click.option("--provider", "providers", metavar="FILE.d", multiple=True, help="Provider files that name arguments.")
@click.option("--filter", "wanted_hits", metavar="TEST", help="Only hits like this: 'size > 4096 and name == \"x\"'.")
@click.option("--count", is_flag=True, help="Count hits instead of printing them.")
@click.option(
    "--by",
    metavar="KEY[,KEY...]",
    multiple=True,
    callback=checked.names,
    help="Count, or add up, by arguments, thread, process, probe.",
)
@click.option("--sum", "sum_of", metavar="ARG", default="", help="Sum and mean of an argument.")
@click.option("--histogram", metavar="ARG", default="", help="How an argument's values are distributed.")
@click.option("--latency", nargs=2, metavar="BEGIN END", callback=checked.pair,
              help="How long it takes a thread from one probe to another.")  # fmt: skip
@checked.user
def command(
    language: str, file: str, probes: tuple[str, ...], providers: tuple[str, ...], wanted_hits: str | None, count: bool,
    by: str | None, sum_of: str, histogram: str, latency: tuple[str, str] | None, user: str,
) -> int:  # fmt: skip
    """Write a commented program in the LANGUAGE of another tracer, which prints a file's probes or adds them up.

    The probes are those of a BINARY, or, with a place for the program's path, those of a provider file. What a language
    has no way to say is refused. It begins with how to run it.
    """
    chosen = [name for name, value in (("--sum", sum_of), ("--histogram", histogram), ("--latency", latency)) if value]
    if len(chosen) > 1 or (count and chosen):
        raise UsageError(f"{' and '.join([*['--count'] * count, *chosen])} don't go together in one script")
    where = None if wanted_hits is None else Filter(wanted_hits)
    patterns = probes or latency or ()
    asked = shlex.join(["usdtbuild", "script", language, file, *_given(click.get_current_context())])

    def run(_: object) -> int:
        read = [_declared(path) for path in (*providers, *([file] if file.endswith(".d") else []))]
        named = tuple(one for _, found in read for one in found.items())
        wanted = Wanted(patterns, providers=tuple(one for found, _ in read for one in found), enumerators=named)
        if file.endswith(".d"):
            program, targets = PROGRAM, tuple(of_providers(read[-1][0], wanted))
        else:
            program, targets = plain_path(file), tuple(of_file(file, wanted))
        if not targets:
            raise InputError(file, f"no probe matches {' or '.join(patterns)}" if patterns else "no probes found")
        keys = tuple(by.split(",")) if by else ()
        wish = Wish(program, targets, asked, where, count, keys, sum_of, histogram, latency)
        echo(LANGUAGES[language](wish.used()), nl=False)
        return 0

    return look(user, (file, *providers), run)


def _declared(path: str) -> tuple[tuple[Provider, ...], dict[str, Values]]:
    """Return what a provider file declares, which the parent opens, and the enumerators in it. Raises ParseError,
    InputError."""
    opened = apart.open_named(path)
    if opened is None:
        raise InputError(path, "is a folder")
    with opened:
        data = bytes(opened.view[: PROVIDER_FILE + 1])
    check_content(data, path)
    return declared(data, path)


def _given(context: click.Context) -> list[str]:
    found = []
    for option in context.command.params:
        value = context.params.get(str(option.name))
        if isinstance(option, click.Option) and value and option.name != "user":
            name = option.opts[-1]
            if option.multiple and not isinstance(value, str):
                found += [word for one in value for word in (name, one)]
            elif option.is_flag:
                found.append(name)
            else:
                found += [name, *(value if isinstance(value, tuple) else (value,))]
    return found
