"""The timeline: one page that any browser opens without the network, with threads as lanes and pairs as spans.

The page's own parts are in page/; uPlot, which draws axes and reads the mouse, is there as its authors publish it,
with its licence. What was traced goes into the page as JSON that can't end its element, reaches the document as text
only, and a content security policy lets no script run but the two that belong to the page.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from ...text import one_line
from ..model import Event, Report, Target
from ..spans import POINT, Spans
from . import Hits
from .bars import duration
from .values import value_text

MOST_HITS = 200_000  # some 30 MB of page; browsers draw that in 20 ms
_PAGE = Path(__file__).parent / "page"
_PLACE = re.compile(r"\{\{(\w+)\}\}")


class _Item(NamedTuple):
    """What is drawn: `end` is -1 for a point in time, -2 for what didn't end."""

    begin: int
    end: int
    name: str
    arguments: str


class Html(Hits):
    """Writes the page at the end. `heading` says what was traced; `notes` is what a user must be told."""

    def __init__(self, stream: IO[str], heading: str = "", most: int = MOST_HITS) -> None:
        self._stream, self._heading, self._most = stream, one_line(heading), most
        self._spans = Spans()
        self._items: dict[tuple[int, int], list[_Item]] = {}  # by process and thread
        self._first = self._last = 0
        self._hits = 0
        self.notes: list[str] = []

    def start(self, targets: Sequence[Target]) -> None:
        """Learn the targets."""
        super().start(targets)
        self._spans.start(targets)

    def events(self, events: Sequence[Event]) -> None:
        """Take them in, as far as a page holds them."""
        room = max(0, self._most - self._hits)
        if events and not self._hits:
            self._first = events[0].time
        self._hits += len(events)
        for event in events[:room]:
            self._last = max(self._last, event.time)
            if self._spans.roles[event.target].kind == POINT:
                self._add(event, -1, self._titles[event.target], self._arguments(event))
            else:
                span = self._spans.add(event)
                if span is not None:
                    self._add(span.begin, span.end.time, span.name, self._both(span.begin, span.end))

    def _add(self, begin: Event, end: int, name: str, arguments: str) -> None:
        item = _Item(begin.time - self._first, end if end < 0 else end - self._first, one_line(name), arguments)
        self._items.setdefault((begin.pid, begin.tid), []).append(item)

    def _arguments(self, event: Event) -> str:
        pairs = zip(self._names[event.target], self._targets[event.target].arguments, event.values)
        return "\n".join(f"{name} = {value_text(argument, value)}" for name, argument, value in pairs)

    def _both(self, begin: Event, end: Event) -> str:
        first = self._arguments(begin)
        more = [line for line in self._arguments(end).split("\n") if line and line not in first.split("\n")]
        return "\n".join([first, *(f"at the end: {line}" for line in more)]).strip("\n")

    def finish(self, report: Report) -> None:
        """Write the page."""
        for event in self._spans.unfinished():
            self._add(event, -2, self._spans.roles[event.target].label(event), self._arguments(event))
        if self._hits > self._most:
            self.notes.append(
                f"the page shows the first {self._most:,} of {self._hits:,} hits; a .json file takes all of them, and"
                " Perfetto (ui.perfetto.dev) opens it"
            )
        data = json.dumps(self._data(report), separators=(",", ":"))
        script = f"{_read('uPlot.iife.min.js')}\n", f"{_read('timeline.js')}"
        parts = {
            "title": html.escape(f"Trace of {self._heading}" if self._heading else "Trace"),
            "policy": f"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
                      f"script-src {' '.join(map(_hashed, script))}",
            "style": _read("uPlot.min.css") + _read("timeline.css"),
            "data": data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),
            "library": script[0],
            "script": script[1],
        }  # fmt: skip
        at, page = 0, _read("timeline.html")
        for match in _PLACE.finditer(page):
            self._stream.write(page[at : match.start()] + parts[match[1]])
            at = match.end()
        self._stream.write(page[at:])

    def _data(self, report: Report) -> dict[str, Any]:
        names: dict[str, int] = {}
        lanes: list[dict[str, Any]] = []
        items: list[list[Any]] = []
        for (pid, tid), found in sorted(self._items.items(), key=_main_first):
            rows = _rows(found)
            lane = {"tid": tid, "pid": pid, "name": one_line(report.threads.get(tid, "")), "rows": 1 + max(rows)}
            for item, row in zip(sorted(found, key=_order), rows):
                number = names.setdefault(item.name, len(names))
                lasted = item.end if item.end < 0 else item.end - item.begin
                items.append([len(lanes), row, item.begin, lasted, number, item.arguments])
            lanes.append(lane)
        return {
            "heading": self._heading, "facts": self._facts(report), "notes": self.notes,
            "length": max(1, self._last - self._first), "lanes": lanes, "names": list(names), "items": items,
        }  # fmt: skip

    def _facts(self, report: Report) -> list[str]:
        started = time.gmtime((self._first + report.wall_offset) // 1_000_000_000)
        facts = [
            _several(self._hits, "hit"), _several(len(self._items), "thread"),
            duration(max(0, self._last - self._first)),
        ]  # fmt: skip
        if self._hits:
            facts.append(time.strftime("%Y-%m-%d %H:%M:%S UTC", started))
        if report.engines:
            facts.append(f"traced with {' and '.join(report.engines)}")
        if any(report.lost):
            facts.append(f"{_several(sum(report.lost), 'hit')} lost")
        if self._spans.without_begin:
            facts.append(f"{_several(self._spans.without_begin, 'end')} without a begin")
        return facts


def _several(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' if count != 1 else ''}"


def _main_first(lane: tuple[tuple[int, int], object]) -> tuple[int, bool, int]:
    """Threads of a process stand together, its first one first."""
    pid, tid = lane[0]
    return pid, pid != tid, tid


def _order(item: _Item) -> tuple[float, float]:
    """Earlier before later, what lasts longer before what it holds; points come last."""
    return item.begin, {-1: 0.0, -2: -float("inf")}.get(item.end, -float(item.end))


def _rows(items: list[_Item]) -> list[int]:
    """Return, for the items in their order, how deep each lies: below all that is going on when it begins."""
    rows: list[int] = []
    going: list[float] = []  # ends of what is going on, the outermost first
    for item in sorted(items, key=_order):
        while going and going[-1] <= item.begin:
            going.pop()
        rows.append(len(going))
        if item.end != -1:
            going.append(float("inf") if item.end == -2 else item.end)
    return rows


def _read(name: str) -> str:
    return (_PAGE / name).read_text("utf-8")


def _hashed(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
