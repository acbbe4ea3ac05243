"""Arguments that nobody declared and that look as if they were text: what to tell a user of them, once.

The program may have put any number there, so of its memory a few bytes are read, a few times, by whoever traces it.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Collection, Sequence

from ..text import one_line
from .job import Message, Noted, Sites, Targets
from .maps import Memory
from .model import INTEGER, Event
from .patch.rings import Decoder
from .spool import Bytes

_TRIES, _NEEDED = 6, 2  # looks at an argument's values, and how many must be text
_SHORTEST, _LONGEST = 4, 32  # characters of what is taken for text; bytes that are read
_MOST_CHUNKS, _FEW = 200, 32  # of records that are looked at in a trace; records of each
_MOST_TOLD = 3
_ADDRESS = 8  # bytes; our engines trace no 32-bit programs
_LOWEST = 0x10000  # addresses below are never mapped (vm.mmap_min_addr)


class Looks:
    """Looks at the first values of arguments that nobody declared, and says which are text."""

    def __init__(self, processes: Collection[int], tell: Callable[[Message], None], *, is_over: bool) -> None:
        """`processes` are those that hits can be of, now and later."""
        self._processes, self._tell, self._is_over = processes, tell, is_over
        self._open: dict[tuple[int, int], list[int]] = {}  # target and argument -> looks, and how many saw text
        self._titles: dict[int, str] = {}
        self._decoders: dict[int, Decoder] = {}  # by ring set
        self._chunks = self._told = 0

    def learn(self, message: Message) -> None:
        """Take new targets, and how records of a ring set are read."""
        if isinstance(message, Sites):
            self._decoders[message.rings] = Decoder(message.shape, message.specs)
        elif isinstance(message, Targets):
            for target in message.targets:
                self._titles[target.number] = one_line(target.title)
                for at, one in enumerate(target.arguments):
                    if not one.type and one.kind == INTEGER and one.size == _ADDRESS:
                        self._open[target.number, at] = [0, 0]

    def beside(self, write: Callable[[Bytes], bool], rings: int) -> Callable[[Bytes], bool]:
        """Return what writes records of a ring set, and looks at them as long as there is anything to find out."""
        if self._is_over or not self._open:
            return write

        def look_and_write(raw: Bytes) -> bool:
            decoder = self._decoders[rings]
            self._chunks += 1
            self._is_over |= self._chunks == _MOST_CHUNKS
            few = decoder.checked(bytes(raw[: _FEW * decoder.slot]), set(self._processes))
            self.at_events(decoder.events(few, int))
            return write(raw)

        return look_and_write

    def at_events(self, events: Sequence[Event]) -> None:
        """Look at some hits."""
        for event in events if self._open and not self._is_over else ():
            for at, value in enumerate(event.values):
                looks = self._open.get((event.target, at))
                if looks is not None and event.pid in self._processes:
                    looks[0] += 1
                    looks[1] += isinstance(value, int) and is_text(event.pid, value)
                    self._judge(event.target, at, *looks)

    def _judge(self, target: int, at: int, times: int, texts: int) -> None:
        if texts == _NEEDED and self._told < _MOST_TOLD:
            self._told += 1
            title = self._titles[target]
            how = shlex.quote(f"{title}:arg{at}:string")
            self._tell(Noted(f"{title}: arg{at} looks like text; --as {how} shows it", always=True))
        if texts == _NEEDED or times == _TRIES:
            del self._open[target, at]


def is_text(pid: int, value: int) -> bool:
    """Whether a number is the address of readable text in a process."""
    if not _LOWEST <= value < 1 << 63:
        return False
    try:
        with contextlib.closing(Memory(pid)) as memory:
            found = memory.text(value, _LONGEST)
        text = (found or b"").decode("utf-8")
    except UnicodeDecodeError as error:  # a character may be cut
        text = error.object[: error.start].decode("utf-8") if error.start >= _LONGEST - 3 else ""
    except (OSError, OverflowError):
        return False
    return len(text) >= _SHORTEST and all(one.isprintable() or one in "\t\n\r" for one in text)
