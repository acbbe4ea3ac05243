"""A trace in the Common Trace Format 1.8, which babeltrace2 and Trace Compass read: a folder of two files.

`stream` has packets of events, written as they come; `metadata` says in TSDL what is in them, and is written at the
end, when all targets are known. Format: diamon.org/ctf/v1.8.3. The libraries that write it are bound to C programs
(babeltrace2's, barectf), and what we need of it is this page.

Each argument is a field of its C type. A string is a text, and beside it a field says whether that is all of it, and
whether it is one at all: CTF knows no NULL, and strings are UTF-8, without the byte 0; other bytes are hexadecimal.
`missing` has a bit for each argument that could not be read.
"""

from __future__ import annotations

import io
import re
import struct
from typing import IO, TYPE_CHECKING

from ..model import FLOAT, MISSING, POINTER, STRING, Argument, Event, Report, Target, Value
from . import EVENTS, Output
from .values import argument_names, plain_value, title

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


_PACKET = struct.Struct("<IQQQQQ")  # magic, first and last time, bits that are used, bits, hits lost so far
_EVENT = struct.Struct("<IQIII")  # number of the target, time, process, thread, missing arguments
_MAGIC = 0xC1FC1FC1
_SIZES = {1: "b", 2: "h", 4: "i", 8: "q"}
_LARGEST = 1 << 16  # bytes of a packet, and one event more
_WHOLE, _NULL, _UNREADABLE, _CUT, _HEX = range(5)
_STATES = "enum : uint8_t { whole, NULL, unreadable, cut, bytes }"

_FILES = ("metadata", "stream")
_OURS, _BEGINNING = b'tracer_name = "usdtbuild"', 4096

_HEAD = """/* CTF 1.8 */
typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;
typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;
trace {{
	major = 1;
	minor = 8;
	byte_order = le;
	packet.header := struct {{ uint32_t magic; }};
}};
env {{ domain = "ust"; tracer_name = "usdtbuild"; }};
clock {{ name = monotonic; freq = 1000000000; offset_s = {seconds}; offset = {nanoseconds}; }};
typealias integer {{ size = 64; align = 8; signed = false; map = clock.monotonic.value; }} := time_t;
stream {{
	packet.context := struct {{
		time_t timestamp_begin; time_t timestamp_end; uint64_t content_size; uint64_t packet_size;
		uint64_t events_discarded;
	}};
	event.header := struct {{ uint32_t id; time_t timestamp; }};
	event.context := struct {{ uint32_t _vpid; uint32_t _vtid; uint32_t _missing; }};
}};
"""


def others(folder: Path) -> str:
    """Return a file in a folder that isn't of an earlier trace of ours, '' if there is none. Raises OSError."""
    found = sorted(one.name for one in folder.iterdir())
    strange = [name for name in found if name not in _FILES]
    if found and not strange:
        with (folder / _FILES[0]).open("rb") if _FILES[0] in found else io.BytesIO() as metadata:
            strange = [] if _OURS in metadata.read(_BEGINNING) else found
    return strange[0] if strange else ""


class Ctf(Output):
    """Writes them; `open_file` opens a file of the folder."""

    needs = EVENTS

    def __init__(self, open_file: Callable[[str], IO[bytes]]) -> None:
        self._open = open_file
        self._stream: IO[bytes] | None = None
        self._packet = bytearray()
        self._first = self._last = 0

    def start(self, targets: Sequence[Target]) -> None:
        """Learn the targets."""
        super().start(targets)
        if self._stream is None:
            self._stream = self._open("stream")

    def events(self, events: Sequence[Event]) -> None:
        """Write them, a packet when it is full."""
        for event in events:
            arguments = self._targets[event.target].arguments
            # Times must not fall. Hits come in their order, but for those of several processes that end together.
            self._last = max(self._last, event.time)
            self._first = self._first or self._last
            missing = sum(1 << i for i, value in enumerate(event.values[:32]) if value is MISSING)
            whose = event.pid & 0xFFFFFFFF, event.tid & 0xFFFFFFFF
            self._packet += _EVENT.pack(event.target, self._last, *whose, missing)
            for i, argument in enumerate(arguments):
                self._packet += _packed(argument, event.values[i] if i < len(event.values) else MISSING)
            if len(self._packet) >= _LARGEST:
                self._flush(0)

    def _flush(self, lost: int) -> None:
        assert self._stream is not None
        bits = (_PACKET.size + len(self._packet)) * 8
        self._stream.write(_PACKET.pack(_MAGIC, self._first, self._last, bits, bits, lost))
        self._stream.write(self._packet)
        self._packet.clear()
        self._first = 0

    def finish(self, report: Report) -> None:
        """Write the last packets, one without events if hits were lost, which says how many, and the metadata."""
        self._first = self._first or self._last
        self._flush(0)
        if any(report.lost):
            self._first = self._last
            self._flush(sum(report.lost))
        seconds, nanoseconds = divmod(report.wall_offset, 10**9)
        text = [_HEAD.format(seconds=seconds, nanoseconds=nanoseconds)]
        for number, target in enumerate(self._targets):
            fields = "".join(
                f"\t\t{_type(argument)} {name};\n" + (f"\t\t{_STATES} {name}_is;\n" if argument.kind == STRING else "")
                for name, argument in zip(_fields(target), target.arguments)
            )
            shown = title(target).replace("\\", "\\\\").replace('"', '\\"')
            text.append(f'event {{\n\tid = {number};\n\tname = "{shown}";\n\tfields := struct {{\n{fields}\t}};\n}};\n')
        self._open("metadata").write("".join(text).encode("utf-8", "backslashreplace"))


def _fields(target: Target) -> list[str]:
    """Return what arguments are called, each otherwise; the underscore before a name keeps it from being a keyword, and
    readers don't show it."""
    found: list[str] = []
    for number, name in enumerate(argument_names(target)):
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)
        taken = {f"_{plain}", f"_{plain}_is"} & {one + end for one in found for end in ("", "_is")}
        found.append(f"_arg{number}_{plain}" if taken or plain != name else f"_{plain}")
    return found


def _size(argument: Argument) -> int:
    return argument.size if argument.size in _SIZES else 8


def _type(argument: Argument) -> str:
    if argument.kind == STRING:
        return "string"
    if argument.kind == FLOAT:
        return "floating_point { exp_dig = 11; mant_dig = 53; align = 8; }"
    base = "; base = 16" if argument.kind == POINTER else ""
    sign = "true" if argument.signed and argument.kind != POINTER else "false"
    return f"integer {{ size = {8 * _size(argument)}; align = 8; signed = {sign}{base}; }}"


def _packed(argument: Argument, value: Value) -> bytes:
    if argument.kind == STRING:
        text, state = _text(argument, value)
        return text.encode() + bytes((0, state))
    if argument.kind == FLOAT:
        return struct.pack("<d", value if isinstance(value, (int, float)) else 0)
    number = value if isinstance(value, int) else 0
    size = _size(argument)
    return struct.pack(f"<{_SIZES[size].upper()}", number & ((1 << 8 * size) - 1))


def _text(argument: Argument, value: Value) -> tuple[str, int]:
    """Return what stands for a string, and which of the states it is."""
    if value is MISSING or value is None:
        return "", _UNREADABLE if value is MISSING else _NULL
    shown = plain_value(argument, value)
    if isinstance(value, bytes) and (0 in value or "bytes" in (shown if isinstance(shown, dict) else ())):
        return value.hex(), _HEX
    if not isinstance(shown, dict):
        return str(shown), _WHOLE
    return str(shown.get("text", shown.get("unreadable"))), _CUT if "text" in shown else _UNREADABLE
