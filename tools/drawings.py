"""Pictures of the program of the tutorial: what `list` and `verify` show on a terminal, and the way of a probe.

Everything in them comes from running the commands. Terminals become SVG (rich reads their colours), the way of a probe
a page that tools/pictures.py takes a picture of. Not here: traces.
"""

from __future__ import annotations

import fcntl
import html
import os
import pty
import re
import struct
import subprocess
import termios
import textwrap
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
_COLUMNS = 100
# rich's own format asks the network for a font.
_SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
_STEPS = """\
<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; padding: 18px; background: #fff; color: #1b1f24; font: 15px sans-serif; width: 1144px; }}
section {{ border: 1px solid #d0d7de; border-radius: 8px; margin-bottom: 14px; display: flex; position: relative; }}
section:not(:last-child)::after {{ content: "▼"; position: absolute; bottom: -16px; left: 96px; color: #57606a; }}
h2 {{ font-size: 15px; margin: 0 0 4px; }}
.what {{ width: 250px; flex: none; padding: 12px 14px; background: #f6f8fa; border-radius: 8px 0 0 8px; }}
.what p {{ margin: 0; color: #57606a; }}
pre {{ margin: 0; padding: 12px 14px; font: 14px/1.45 "DejaVu Sans Mono", monospace; white-space: pre; }}
b {{ color: #cf222e; font-weight: 600; }}
</style>{}
"""


def build(folder: Path, ours: tuple[str, ...]) -> None:
    """Write the tutorial's files and build its program, with probes and, as `plain.o`, with nothing done to them."""
    page = (ROOT / "docs/tutorial.md").read_text()
    for name, text in re.findall(r"`(kitchen\.[dc])`:\n\n```\w+\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(text)
    for words in (
        (*ours, "header", "--formats=dof", "kitchen.d", "-o", "kitchen.h"),
        ("gcc", "-O2", "-c", "kitchen.c", "-o", "plain.o"),
        (*ours, "cc", "--", "gcc", "-O2", "-c", "kitchen.c", "-o", "kitchen.o"),
        ("gcc", "kitchen.o", "-o", "kitchen"),
    ):
        subprocess.run(words, cwd=folder, check=True)


def terminal(folder: Path, ours: tuple[str, ...], commands: tuple[str, ...], path: Path) -> None:
    """Run `usdtbuild` commands on a terminal, and draw what is then on it."""
    console = Console(record=True, width=_COLUMNS, file=StringIO(), force_terminal=True)
    for command in commands:
        console.print(Text.assemble(("$ ", "bold green"), command))
        shown = Text.from_ansi(on_terminal(folder, (*ours, *command.split()[1:])).rstrip())
        console.print(shown)
    path.write_text(console.export_svg(title=commands[0].split(" -")[0], code_format=_SVG, unique_id=path.stem))


def on_terminal(folder: Path, words: tuple[str, ...]) -> str:
    """Return what a command writes to a terminal of so many columns, with its colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, _COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "", "NO_COLOR": ""}
    with subprocess.Popen(words, cwd=folder, stdout=theirs, stderr=theirs, stdin=theirs, env=environment):
        os.close(theirs)
        content = b""
        while piece := _read(ours):
            content += piece
    os.close(ours)
    return content.decode().replace("\r\n", "\n")


def _read(terminal_: int) -> bytes:
    try:
        return os.read(terminal_, 1 << 16)
    except OSError:  # the other side has closed it
        return b""


def way(folder: Path, ours: tuple[str, ...], path: Path) -> None:
    """Write a page with the way of one probe, from its declaration to a hit."""

    def said(*words: str) -> str:
        return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout

    source, declared = ((folder / f"kitchen.{kind}").read_text() for kind in "cd")
    plain = said("objdump", "-dr", "--no-show-raw-insn", "plain.o")
    place = int(_find(r"(\w+): R_\S+\s+__dtrace_kitchen___order__start", plain), 16) - 1
    before = _around(plain, place, r"^ *{:x}:.*\n.*__dtrace_kitchen___order__start")
    before = re.sub(r"(?<=order__start)\w+(\S+)", r"...\1", before)
    after = _around(said("objdump", "-d", "kitchen.o"), place, r"^ *{:x}:.*\n.*nop.*")
    notes = said("readelf", "-nW", "kitchen")
    steps = (
        ("A provider file declares it", "kitchen.d", _find(r"(?m)^( *probe order__start.*)", declared)),
        ("The source fires it", "kitchen.c, with the header that usdtbuild header made",
         _find(r"(?m)^( *KITCHEN_ORDER_START.*)", source)),
        ("The compiler writes a branch", "objdump, before: the arguments are in a call's registers", before),
        ("usdtbuild cc makes a NOP of it", "objdump, after: of the same length, at the same place", after),
        ("A record says where, and what", "readelf -n of the linked program: not loaded when it runs",
         _find(r"(?s)( *Provider: kitchen\n *Name: order__start\n.*?Arguments: [^\n]*)", notes)),
        ("A tracer makes it fire", "usdtbuild trace -- ./kitchen; bpftrace, perf and gdb read the same record",
         "\n".join(re.findall(r".*order__start.*", said(*ours, "trace", "--", "./kitchen"))[:3])),
    )  # fmt: skip
    drawn = "".join(_step(title, what, textwrap.dedent(text)) for title, what, text in steps)
    path.write_text(_STEPS.format(drawn))


def _around(disassembly: str, place: int, wanted: str) -> str:
    """Return the instructions at a place, with two before it and one behind."""
    found = re.search(wanted.format(place), disassembly, re.MULTILINE)
    if not found:
        raise SystemExit(f"there is no {wanted} in\n{disassembly}")
    before = disassembly[: found.start()].splitlines()[-2:]
    behind = disassembly[found.end() :].splitlines()[1:2]
    lines = textwrap.dedent("\n".join([*before, *found[0].splitlines(), *behind]).expandtabs()).splitlines()
    marked = range(len(before), len(lines) - len(behind))
    return "\n".join(f"**{line}**" if number in marked else line for number, line in enumerate(lines))


def _find(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if not found:
        raise SystemExit(f"there is no {pattern} in\n{text}")
    return found[1]


def _step(title: str, what: str, text: str) -> str:
    shown = re.sub(r"(?m)^\*\*(.*)\*\*$", r"<b>\1</b>", html.escape(text, quote=False))
    return f'<section><div class="what"><h2>{title}</h2><p>{html.escape(what)}</p></div><pre>{shown}</pre></section>'
