"""What the worker says to the front, kept until the front takes it: who empties rings must not wait for a reader."""

from __future__ import annotations

import select
from collections import deque
from typing import TYPE_CHECKING

from .job import Mark, Message, Raw, Seen

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from .spool import Writer

# Hits of breakpoints are in memory here, and a program that is slowed down by them anyway may wait for the front.
_MOST_SEEN = 50


class Outbox:
    """Messages in their order; none of raw records before these are in the spool. `closed`: the front is gone."""

    def __init__(self, link: Connection, spool: Writer) -> None:
        self.closed = False
        self._link, self._spool = link, spool
        self._raw = 0  # bytes in the spool that the front has been told of
        self._waiting: deque[Message] = deque()
        self._seen = 0

    def put(self, message: Message) -> None:
        """Keep a message; nothing is sent, so that it may be said while a program stands."""
        if isinstance(message, Mark) and self._waiting and isinstance(self._waiting[-1], Mark):
            self._waiting.pop()  # nothing came between the two
        self._seen += isinstance(message, Seen)
        self._waiting.append(message)

    def holds(self, kind: type) -> bool:
        """Whether a message of a kind hasn't been sent yet."""
        return any(isinstance(one, kind) for one in self._waiting)

    def put_last(self, message: Message) -> None:
        """Keep a message instead of all that were not sent: what the front must know after a failure."""
        self._waiting.clear()
        self._seen = 0
        self._waiting.append(message)

    def send(self) -> None:
        """Send what can be sent without waiting; more than that where too much is kept.

        The kernel calls a socket writable while a quarter of its buffer, some 50 KB, is in use (unix_writable() in
        net/unix/af_unix.c). What is said while a program runs is a fraction of what is left.
        """
        while self._waiting and self._is_written():
            if self._seen <= _MOST_SEEN and not select.select([], [self._link], [], 0)[1]:
                break
            self._next()

    def send_all(self) -> None:
        """Send everything, however long it takes. Raises TracerError, OSError."""
        while self._waiting:
            message = self._waiting[0]
            if isinstance(message, Raw) and not self.closed:
                self._spool.wait(self._raw + message.size)
            self._next()

    def _is_written(self) -> bool:
        message = self._waiting[0]
        return not isinstance(message, Raw) or self._raw + message.size <= self._spool.written

    def _next(self) -> None:
        message = self._waiting.popleft()
        self._seen -= isinstance(message, Seen)
        if isinstance(message, Raw):
            self._raw += message.size
        try:
            if not self.closed:
                self._link.send(message)
        except OSError:
            self.closed = True
