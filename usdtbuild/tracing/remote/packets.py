"""The wire of the gdb remote protocol: packets with checksums, acknowledged or not, escaped and run-length encoded.

`$text#cc`, where cc is the sum of the text's bytes (gdb's manual, "Remote Protocol", "Overview"). Nothing here knows
what packets mean.
"""

from __future__ import annotations

import math
import re
import select
import socket
import time

from ...errors import reason
from ...limits import PACKET
from ..errors import TracerError

_ESCAPE, _ESCAPED_BY, _REPEAT = 0x7D, 0x20, 0x2A
_PATIENCE = 30.0  # seconds for an answer that doesn't depend on the program
_LEAST, _GRACE = 2.0, 8.0  # when the trace should be over: seconds for one, and for all that are left
_INTERRUPT = b"\x03"
_STOP = re.compile(rb"[ST][0-9a-f]{2}")  # a stop reply, which nothing but to go on is answered by


class Link:
    """A connection to a server. All methods raise TracerError when it is gone or says what isn't the protocol."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        self.name = name
        self.end = math.inf  # when the trace should be over, in seconds of time.monotonic()
        self._socket = connection
        self._received = bytearray()
        self._acknowledges = True
        self._may_repeat = False

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def ask(self, text: str | bytes) -> bytes:
        """Send a packet, and return what is answered; b"" is what a server says to packets that it doesn't know."""
        self.send(text)
        answer = self.receive(self.patience(_PATIENCE))
        while self._may_repeat and answer is not None and _STOP.match(answer) and text != "?":
            answer = self.receive(self.patience(_PATIENCE))
        if answer is None:
            raise self._silent()
        return answer

    def patience(self, usual: float) -> float:
        """Return how many seconds to wait for what takes up to `usual` ones: no longer than the trace may take."""
        return min(usual, max(self.end - time.monotonic(), 0.0) + _LEAST)

    def check_time(self) -> None:
        """Raise TracerError if the trace should have been over for so long that the server won't let it end."""
        if time.monotonic() > self.end + _GRACE:
            raise self._silent()

    def _silent(self) -> TracerError:
        return TracerError(f"{self.name} doesn't answer; is it a gdb server (gdbserver, qemu -g)?")

    def send(self, text: str | bytes) -> None:
        """Send a packet."""
        raw = text.encode("ascii") if isinstance(text, str) else text
        self._write(b"$%s#%02x" % (raw, sum(raw) & 0xFF))

    def interrupt(self) -> None:
        """Ask for the program to be stopped; the stop is an answer like others.

        A server that waits for a stop's acknowledgement takes this for a refusal, and tells the stop again (qemu 7).
        """
        self._may_repeat = self._acknowledges
        self._write(_INTERRUPT)

    def stop_acknowledging(self) -> None:
        """Agree to leave out acknowledgements, where the server can."""
        if self.ask("QStartNoAckMode") == b"OK":
            self._acknowledges = False

    def receive(self, timeout: float) -> bytes | None:
        """Return the next packet's text, unescaped; None if there is none within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            packet = self._take()
            if packet is not None:
                return packet
            if not select.select([self._socket], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            try:
                piece = self._socket.recv(1 << 16)
            except OSError as error:
                raise self._gone(error) from None
            if not piece:
                raise self._gone()
            self._received += piece

    def _take(self) -> bytes | None:
        """Take a whole packet out of what has come; acknowledgements and notifications (%) are passed over."""
        while True:
            start = self._received.find(b"$")
            end = self._received.find(b"#", start) if start >= 0 else -1
            if end < 0 or len(self._received) < end + 3:
                if len(self._received) > PACKET:
                    raise TracerError(f"{self.name} doesn't speak the gdb remote protocol")
                return None
            raw, said = bytes(self._received[start + 1 : end]), bytes(self._received[end + 1 : end + 3])
            del self._received[: end + 3]
            right = f"{sum(raw) & 0xFF:02x}".encode("ascii") == said.lower()
            if self._acknowledges:
                self._write(b"+" if right else b"-")
            if right:
                text = _unescaped(raw)
                if len(text) > PACKET:
                    raise TracerError(f"{self.name} sent a packet of more than {PACKET >> 20} MB")
                return text
            if not self._acknowledges:
                raise TracerError(f"{self.name} sent a packet with a wrong checksum")

    def _write(self, raw: bytes) -> None:
        try:
            self._socket.sendall(raw)
        except OSError as error:
            raise self._gone(error) from None

    def _gone(self, error: OSError | None = None) -> TracerError:
        why = f": {reason(error)}" if error else ""
        return TracerError(f"{self.name} has closed the connection{why}")


def _unescaped(raw: bytes) -> bytes:
    """Return a packet's text: `}X` is X xor 0x20, and `X*N` is X another N - 29 times."""
    if _ESCAPE not in raw and _REPEAT not in raw:
        return raw
    text = bytearray()
    at = 0
    while at < len(raw) and len(text) <= PACKET:  # a repeated byte can stand for many
        byte = raw[at]
        if byte == _ESCAPE and at + 1 < len(raw):
            text.append(raw[at + 1] ^ _ESCAPED_BY)
            at += 2
        elif byte == _REPEAT and text and at + 1 < len(raw):
            text += text[-1:] * max(0, raw[at + 1] - 29)
            at += 2
        else:
            text.append(byte)
            at += 1
    return bytes(text)


def connect(address: str) -> Link:
    """Connect to HOST:PORT, [HOST]:PORT, :PORT, or the path of a socket. Raises TracerError."""
    try:
        if "/" in address:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(address)
        else:
            host, _, port = address.rpartition(":")
            connection = socket.create_connection((host.strip("[]") or "localhost", int(port)), timeout=_PATIENCE)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(_PATIENCE)
    except ValueError:
        raise TracerError(f"{address} is no HOST:PORT") from None
    except (OSError, OverflowError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise TracerError(f"{address} can't be reached: {why}; is gdbserver or an emulator listening there?") from None
    return Link(connection, address)
