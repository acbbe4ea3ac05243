"""A flame graph as SVG: one file that any browser opens and zooms, and any viewer shows.

The writer is our own: of the libraries that draw flame graphs, those for Python are unmaintained, and those in
JavaScript (d3-flame-graph) draw into a page, while a file that is an image also goes into documents. What a flame
graph is: Brendan Gregg, "The Flame Graph", CACM 59(6), 2016. Colours say nothing, but stay with a name.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from ..model import Report
from .bars import duration
from .stacks import Node, StacksOutput, totals

_WIDTH, _MARGIN, _ROW, _TOP = 1200, 10, 18, 56
_NARROWEST = 0.2  # pixels; what is narrower can't be seen or pointed at
_DEEPEST = 400  # frames above each other
_CHARACTER = 6.6  # pixels, of the 11 pixel monospace font


class _Box(NamedTuple):
    name: str
    depth: int
    left: float
    width: float
    value: int


class Flame(StacksOutput):
    """Writes the picture at the end."""

    _left_out = 0

    def finish(self, report: Report) -> None:
        """Write the picture."""
        root, unit = self._stacks.finish(report.ended)
        boxes = list(self._boxes(root))
        height = _TOP + (max((box.depth for box in boxes), default=0) + 1) * _ROW + _MARGIN
        page = Path(__file__).parent / "page"
        total = boxes[0].value if boxes else 0
        said = f"{_amount(total, unit)} in all"
        if unit == "hits" and not self.calls:
            said += "; hits are counted, because nothing that was traced has an end"
        if self._left_out:
            said += f"; {self._left_out:,} frames are too narrow or too deep to be drawn, a .folded file has them"
        write = self._stream.write
        write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}"'
              f' height="{height}" font-family="monospace" font-size="11">\n')  # fmt: skip
        write(f"<style>{(page / 'flame.css').read_text('utf-8')}</style>\n")
        write('<rect class="ground" width="100%" height="100%"/>\n')
        write(f'<text class="title" x="{_MARGIN}" y="22">Flame graph</text>\n')
        write(f'<text class="said" x="{_MARGIN}" y="40">{escape(said)}</text>\n')
        write(f'<text class="button" id="reset" x="{_WIDTH - 200}" y="22">Reset zoom</text>\n')
        write(f'<text class="button" id="search" x="{_WIDTH - 90}" y="22">Search</text>\n')
        write(f'<text class="said" id="matched" x="{_WIDTH - 200}" y="40"></text>\n<g id="frames">\n')
        self._stream.writelines(_drawn(box, total, unit, height) for box in boxes)
        write(f"</g>\n<script><![CDATA[\n{(page / 'flame.js').read_text('utf-8')}]]></script>\n</svg>\n")

    def _boxes(self, root: Node) -> Iterator[_Box]:
        sums = totals(root)
        scale = (_WIDTH - 2 * _MARGIN) / sums[root] if sums[root] else 0.0
        waiting = [("all", root, 0, 0)]
        while waiting:
            name, node, depth, before = waiting.pop()
            width = sums[node] * scale
            if (width < _NARROWEST and depth) or depth > _DEEPEST:
                self._left_out += 1
                continue
            yield _Box(name, depth, _MARGIN + before * scale, width, sums[node])
            below = []
            for child in sorted(node.below):
                below.append((child, node.below[child], depth + 1, before))
                before += sums[node.below[child]]
            waiting += reversed(below)


def _drawn(box: _Box, total: int, unit: str, height: int) -> str:
    top = height - _MARGIN - (box.depth + 1) * _ROW
    part = box.value / total if total else 1
    room = int((box.width - 6) / _CHARACTER)
    shown = box.name if len(box.name) <= room else box.name[: room - 2] + ".." if room >= 4 else ""
    return (
        f'<g class="frame" data-name={quoteattr(box.name)}>'
        f"<title>{escape(box.name)}\n{_amount(box.value, unit)}, {part:.2%}</title>"
        f'<rect x="{box.left:.2f}" y="{top}" width="{box.width:.2f}" height="{_ROW - 1}" rx="2" fill="{_colour(box)}"/>'
        f'<text x="{box.left + 3:.2f}" y="{top + 12}">{escape(shown)}</text></g>\n'
    )


def _amount(value: int, unit: str) -> str:
    return duration(value) if unit == "ns" else f"{value:,} hits"


def _colour(box: _Box) -> str:
    if box.depth == 0:
        return "#c9ced6"
    hashed = zlib.crc32(box.name.encode("utf-8", "replace"))
    return f"hsl({10 + hashed % 42},{70 + (hashed >> 8) % 20}%,{62 + (hashed >> 16) % 12}%)"
