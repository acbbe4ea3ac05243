"""What options' values must be beyond their click type: callbacks that refuse what would be taken for another."""

from __future__ import annotations

import math
import os
import re
import stat
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from ..elf.layout import ET_DYN, ET_EXEC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    from ..tracing.last import Last

    Text = TypeVar("Text", str, "str | None")
    Command = TypeVar("Command", bound=Callable[..., object])

_LONGEST = 1e9  # seconds: more than thirty years; what adds more to a clock is no time any more
_UNITS = {"": 1, "us": 1e-6, "ms": 0.001, "s": 1, "m": 60, "h": 3600}
_SHORTEST = 0.01  # seconds
_SIZES = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_MOST_HITS, _MOST_SIZE = 10_000_000, 1 << 30
_PORTS = 65535
ALONE = "\0"  # no word of a command line has a NUL


def seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return a time of more than nothing, given in seconds or with a unit. Raises BadParameter."""
    if value is None:
        return None
    number, unit = re.fullmatch(r"(.*?)(us|ms|s|m|h|)", value, re.DOTALL).groups()  # type: ignore[union-attr]
    try:
        found = float(number) * _UNITS[unit]
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is no time; one is a number of seconds, or has a unit: 200ms, 30s, 5m, 1.5h.", ctx, param
        ) from None
    if math.isnan(found) or not 0 < found <= _LONGEST:
        raise click.BadParameter(f"{found:g} is not in the range 0<x<={_LONGEST:.0f}.", ctx, param)
    return found


def last(ctx: click.Context, param: click.Parameter, value: str | None) -> Last | None:
    """Return how much is kept: a number of hits, of bytes with KB, MB or GB, or a time with its unit. Raises
    BadParameter."""
    from ..tracing.last import Last

    if value is None:
        return None
    found = re.fullmatch(r"([0-9]+)(KB|MB|GB|)", value, re.IGNORECASE)
    if found is None and not re.fullmatch(r"[0-9.]+(ms|s|m|h)", value):
        raise click.BadParameter(
            f"{value!r} is no number of hits (1000), no size (64MB), and no time (200ms, 30s, 5m).", ctx, param
        )
    if found is None:
        return Last(seconds=seconds(ctx, param, value) or 0.0)
    number, unit = int(found[1]), found[2].upper()
    size = number * _SIZES.get(unit, 0)
    if not 0 < number <= _MOST_HITS or size > _MOST_SIZE:
        raise click.BadParameter(f"{value} is not in the range 1<=x<={_MOST_HITS}, or 1KB<=x<=1GB.", ctx, param)
    return Last(size=size) if unit else Last(hits=number)


def interval(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return a time as `seconds`, that is long enough to look at something each time. Raises BadParameter."""
    found = seconds(ctx, param, value)
    if found is not None and found < _SHORTEST:
        raise click.BadParameter(f"{value} is too short; 10ms is the shortest interval.", ctx, param)
    return found


def nanoseconds(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return a time as `seconds`, in nanoseconds. Raises BadParameter."""
    found = seconds(ctx, param, value)
    return None if found is None else round(found * 1e9)


def completes(words: Iterable[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return what a shell completes an option's value with: one of these words, or several with commas."""

    def found(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
        before, comma, last = begun.rpartition(",")
        return [f"{before}{comma}{word}" for word in words if word.startswith(last)]

    return found


def names(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> str | None:
    """Return names, given together or each by itself, joined by commas. Raises BadParameter."""
    if not value:
        return None
    found = [one.strip() for text in value for one in text.split(",")]
    if "" in found:
        raise click.BadParameter("a name is empty; names are joined by commas, as in thread,size.", ctx, param)
    twice = next((one for one in found if found.count(one) > 1), None)
    if twice is not None:
        raise click.BadParameter(f"{twice} is named twice.", ctx, param)
    return ",".join(found)


def programs(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths of ELF programs, from the root on; links stay, which may lead elsewhere later. Raises
    BadParameter."""
    for path in value:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "is no path"
            raise click.BadParameter(f"{path}: {why.lower()}.", ctx, param) from None
        head = os.read(descriptor, 18) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
        os.close(descriptor)
        if head.startswith(b"#!"):
            raise click.BadParameter(f"{path} is a script: its interpreter runs it; use -p PID.", ctx, param)
        kinds = {int.from_bytes(head[16:], order) for order in ("little", "big")}
        if not (head.startswith(b"\x7fELF") and kinds & {ET_EXEC, ET_DYN}):
            raise click.BadParameter(f"{path} is no ELF program.", ctx, param)
    return tuple(map(os.path.abspath, value))


def text(ctx: click.Context, param: click.Parameter, value: Text) -> Text:
    """Return what was given, if that is something. Raises BadParameter.

    The parser takes the word behind an option as its value, also where that is the `--` before a command.
    """
    if ctx.get_parameter_source(param.name or "") == ParameterSource.DEFAULT or value is None:
        return value
    if value == "--":
        raise click.BadParameter("its value is missing: '--', which stands there, begins the command.", ctx, param)
    if not value.strip():
        raise click.BadParameter("it is empty.", ctx, param)
    return value


def texts(ctx: click.Context, param: click.Parameter, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return several texts, if none of them is empty. Raises BadParameter."""
    for one in value or ():
        text(ctx, param, one)
    return value


def pair(ctx: click.Context, param: click.Parameter, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the names of two probes, if neither is the option that stands behind the first. Raises BadParameter."""
    for one in value or ():
        if one.startswith("-"):
            raise click.BadParameter(
                f"two names are needed, of the probes that begin and end; {one!r} is none.", ctx, param
            )
    return texts(ctx, param, value)


def optional(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return what was given behind `=`, '' for an option that stands alone. Raises BadParameter.

    click hands over the same for `--graph=` and `--graph`, so the option's `flag_value` is ALONE.
    """
    if value is None or value == ALONE:
        return None if value is None else ""
    return text(ctx, param, value)


def user(command: Command) -> Command:
    """Add the option that says who reads files."""
    option = click.option(
        "--user", default="", metavar="NAME", callback=text,
        help="As root: read files as this user.  [default: who called sudo, or nobody]",
    )  # fmt: skip
    return option(command)


def address(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return HOST:PORT with a port that there can be, or a socket's path. Raises BadParameter."""
    if (value := text(ctx, param, value)) is None:
        return None
    port = value.rpartition(":")[2]
    if "/" not in value and port.isdecimal() and not 0 < int(port) <= _PORTS:
        raise click.BadParameter(f"the port {port} is not in the range 1<=x<={_PORTS}.", ctx, param)
    return value


def listening(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """Return host and port of [HOST:]PORT; without a host the loopback's. Port 0 is any. Raises BadParameter."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    if not port.isdecimal() or int(port) > _PORTS or (":" in host and not host.startswith("[")):
        raise click.BadParameter(f"{value!r} is no address; one is a port, or HOST:PORT: 0.0.0.0:9400.", ctx, param)
    return host.strip("[]") or "127.0.0.1", int(port)


def servers(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Return debuginfod servers: those that are named, or else DEBUGINFOD_URLS'. Raises BadParameter."""
    asked = optional(ctx, param, value)
    if asked is None:
        return None
    found = tuple(one.rstrip("/") for one in (asked or os.environ.get("DEBUGINFOD_URLS", "")).split())
    if not found:
        raise click.BadParameter("DEBUGINFOD_URLS names no server; name one: --debuginfod URL.", ctx, param)
    for one in found:
        if not one.startswith(("http://", "https://")) or not one.isprintable():
            raise click.BadParameter(f"{one!r} is no URL of a debuginfod server, as https://HOST is.", ctx, param)
    return found


def url(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return where a collector takes spans: the path is that of OTLP, if none is given. Raises BadParameter."""
    if value is None:
        return None
    try:
        parts = urlsplit(value)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or not value.isprintable():
        raise click.BadParameter(f"{value!r} is no URL of a collector; one is http://localhost:4318.", ctx, param)
    return parts._replace(path="/v1/traces").geturl() if parts.path in ("", "/") else value
