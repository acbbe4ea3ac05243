"""A profile as pprof and the programs that show such profiles read it: the tree of stacks, compressed.

Format: profile.proto of github.com/google/pprof. Its few messages are written here: protobuf would be a library, and
generated code, for two kinds of fields.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable

from ..model import Report
from .stacks import StacksOutput, walk

# Numbers of fields.
_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRINGS, _TIME, _DURATION = 1, 2, 4, 5, 6, 9, 10
_BYTES = 2  # the wire type of texts and messages; that of numbers is 0


class Pprof(StacksOutput):
    """Writes the profile at the end: nanoseconds of spans, or, where nothing has an end, hits."""

    def finish(self, report: Report) -> None:
        """Write a sample for each stack; functions and locations are one each for each name."""
        root, unit = self._stacks.finish(report.ended)
        strings = {"": 0}
        kind = ("time", "nanoseconds") if unit == "ns" else ("hits", "count")
        what = b"".join(_number(i + 1, strings.setdefault(one, len(strings))) for i, one in enumerate(kind))
        parts, known = [_message(_SAMPLE_TYPE, what)], dict[str, int]()
        for names, node in walk(root):
            for name in names:
                if name not in known:
                    number = known[name] = len(known) + 1
                    text = strings.setdefault(name, len(strings))
                    parts.append(_message(_FUNCTION, _number(1, number) + _number(2, text) + _number(3, text)))
                    parts.append(_message(_LOCATION, _number(1, number) + _message(4, _number(1, number))))
            if node.own:
                places = _packed(known[name] for name in reversed(names))  # the innermost first
                parts.append(_message(_SAMPLE, _message(1, places) + _message(2, _packed([node.own]))))
        parts += [_message(_STRINGS, one.encode("utf-8", "backslashreplace")) for one in strings]
        parts.append(_number(_TIME, report.started + report.wall_offset))
        parts.append(_number(_DURATION, max(0, report.ended - report.started)))
        self._stream.write(gzip.compress(b"".join(parts), mtime=0))


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _packed(values: Iterable[int]) -> bytes:
    return b"".join(map(_varint, values))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(content)) + content
