"""Writes the comment that a generated header begins with: its probes, how to ask for them, list them and trace them.

It's for whoever opens the header in an editor. All of it comes from the provider file, so the same file makes the same
text.
"""

from __future__ import annotations

from .._version import __version__
from ..model import Provider, macro_name
from ..text import shown
from . import describe
from .printer import signature

# Of a comment, that many lines; the provider file has the rest.
_MOST_LINES = 12


def write(providers: tuple[Provider, ...], as_dtrace: bool) -> str:
    """Return the comment for a header with these providers."""
    names = ", ".join(provider.name for provider in providers) or "none"
    digests = " ".join(describe.digest(provider) for provider in providers) or "none"
    command = "dtrace -h" if as_dtrace else "usdtbuild header"
    lines = [
        f"Static probes (USDT). Providers: {names}.",
        f"Written by {command} (usdtbuild {__version__}, digest {digests}); change the provider file, not this one.",
        *(line for provider in providers for line in _provider(provider, as_dtrace)),
    ]
    if any(provider.probes for provider in providers):
        lines += ["", *_usage(next(provider for provider in providers if provider.probes))]
    return "/* " + "\n".join(f"   {line}".rstrip() for line in map(_safe, lines))[3:] + " */"


def _provider(provider: Provider, as_dtrace: bool) -> list[str]:
    lines = ["", *_comment(provider.comment)] if provider.comment else []
    for probe in provider.probes:
        arguments = signature(probe.arguments)
        if as_dtrace and "*" in arguments:  # projects put a const before `char *` by sed
            arguments = arguments.replace("const ", "").replace(" *", " const *")
        lines += ["", f"{macro_name(provider.name, probe.written)}({arguments})"]
        lines += [f"    {line}" for line in _comment(probe.comment)]
    return lines


def _comment(text: str) -> list[str]:
    lines = text.split("\n") if text else []
    return [*lines[:_MOST_LINES], "..."] if len(lines) > _MOST_LINES else lines


def _usage(provider: Provider) -> list[str]:
    from .documentation import bpftrace

    probe = provider.probes[0]
    name = macro_name(provider.name, probe.written)
    return [
        f"if ({name}_ENABLED()) ... tells whether a tracer watches; every probe has such a macro.",
        "Arguments are evaluated once, and converted to these types.",
        "To list and trace the probes of a program:",
        f"    bpftrace -l 'usdt:PROGRAM:{provider.name}:*'    perf buildid-cache --add PROGRAM && perf list sdt",
        f"    {bpftrace(provider, probe)}",
        "    usdtbuild list PROGRAM    usdtbuild trace -- PROGRAM    gdb PROGRAM: info probes stap",
        "-DUSDT_DISABLE compiles the probes away: the macros then only check their arguments.",
    ]


def _safe(line: str) -> str:
    """Return a line that may stand in a C comment, whatever a provider file says."""
    return shown(line).replace("*/", "* /").replace("/*", "/ *").replace("??/", "?? /")
