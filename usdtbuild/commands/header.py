"""`usdtbuild header`: the command line of `provider.generate`, with help and checks.

Plain command lines don't come here, see `provider.fast`.
"""

from __future__ import annotations

from functools import partial

import click

from ..errors import UsageError
from ..options import FORMATS
from ..provider.generate import HeaderRequest, generate, read_formats
from . import checked

_file = partial(click.option, default="", callback=checked.text)


@click.command()
@click.argument("source", metavar="FILE.d")
@_file("-o", "--output", metavar="FILE.h", help="The header; default: FILE.h here; - for stdout.")
@click.option("--provider", "only", metavar="NAME", multiple=True, help="Only this provider of the file; repeatable.")
@click.option("--formats", metavar="LIST", default="stapsdt", help="Records: stapsdt, dof, usdt; see below.",
              shell_complete=checked.completes(FORMATS))  # fmt: skip
@click.option("--none", is_flag=True, help="Macros that do nothing, on any platform; arguments are type-checked.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1, and a diff, unless the header is up to date.")
@_file("--doc", "documentation", metavar="FILE.md", help="Also write documentation in Markdown.")
@_file("--stamp", metavar="FILE", help="Touch this file, also when the header stays as it is.")
@_file("--depfile", metavar="FILE", help="Write what the header depends on, for Make and Ninja.")
@click.option("-C", "preprocess", is_flag=True, help="Run the C preprocessor first (CPP, CC, CPPFLAGS, CFLAGS).")
@click.option("-I", "include", metavar="DIR", multiple=True, help="With -C: search included files here.")
@click.option("-D", "define", metavar="NAME[=VALUE]", multiple=True, help="With -C: define a macro.")
@click.option("-U", "undefine", metavar="NAME", multiple=True, help="With -C: undefine a macro.")
def command(
    source: str,
    output: str,
    only: tuple[str, ...],
    formats: str,
    none: bool,
    check: bool,
    documentation: str,
    stamp: str,
    depfile: str,
    preprocess: bool,
    include: tuple[str, ...],
    define: tuple[str, ...],
    undefine: tuple[str, ...],
) -> None:
    """Turn a provider file into a header for C and C++.

    For provider app and probe req__done the header has the macros APP_REQ_DONE(...) and APP_REQ_DONE_ENABLED().
    On Linux the header makes complete probes, with SDT notes, and needs no other step. With -DUSDT_DISABLED the macros
    do nothing. For DTrace's records add --formats dof, usdt or stapsdt,dof: such probes are completed after the
    compiler, by `usdtbuild cc` or `usdtbuild instrument`.
    """
    if (include or define or undefine) and not preprocess:
        raise UsageError("-I, -D and -U are for the C preprocessor; add -C")
    both = {word.partition("=")[0] for word in define}.intersection(undefine)
    if both:
        raise UsageError(f"macro {min(both)} is both defined (-D) and undefined (-U)")
    given = {"-I": include, "-D": define, "-U": undefine}
    options = tuple(f"{letter}{word}" for letter, words in given.items() for word in words)
    text = partial(preprocessed, options) if preprocess else None
    request = HeaderRequest(
        source, output, none, documentation, stamp, depfile, text, only, read_formats(formats), check
    )
    generate(request)


def preprocessed(options: tuple[str, ...], source: str, keep_comments: bool) -> bytes:
    """Return what the user's C preprocessor makes of a file. Raises UsdtError."""
    from ..compilers.preprocess import preprocess

    return preprocess(source, options, keep_comments)
