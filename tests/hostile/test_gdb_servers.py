"""A gdb server that says whatever it likes."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

ORDINARY = {
    b"qSupported": b"PacketSize=1000;qXfer:features:read+;qXfer:auxv:read+;qXfer:exec-file:read+",
    b"QStartNoAckMode": b"OK", b"?": b"T05thread:p1.1;", b"vCont?": b"vCont;c;C;s;S", b"H": b"OK",
    b"qfThreadInfo": b"mp1.1", b"qsThreadInfo": b"l", b"g": b"0" * 1024, b"m": b"E01", b"qXfer": b"l", b"D": b"OK",
}  # fmt: skip
FOREVER = b"m" + b"x" * 1000
REPEATED = b"x*~" * (1 << 18)  # stands for 25 MB
MUTE = b"nothing is said"
# What an attacker's server answers in the place of the ordinary.
LIES: dict[str, dict[bytes, bytes]] = {
    "thread": {b"?": b"T05thread:p1Tc0.;"},
    "unicode": {b"?": b"T05thread:p\xff\xfe.1;"},
    "fork": {b"?": b"T05fork:zz;thread:p1.1;"},
    "ended": {b"?": b"W00;process:xyz"},
    "size": {b"qSupported": b"PacketSize=zz"},
    "sizes": {b"qSupported": b"PacketSize=ffffffffffffffffffff;qXfer:features:read+"},
    "object": {b"qXfer": FOREVER},
    "file": {b"vFile:setfs": b"F0", b"vFile:open": b"F5", b"vFile:pread": b"F3e8;" + b"x" * 1000},
    "pieces": {
        b"qXfer:exec-file": b"l/bin/true",
        b"vFile:setfs": b"F0",
        b"vFile:open": b"F5",
        b"vFile:pread": b"F3e8;\x7fELF\x02\x01\x01" + bytes(993),
    },
    "repeated": {b"?": b"T05thread:p1.1;" + REPEATED},
    "threads": {b"qfThreadInfo": b"m" + b"p1.1," * 1000 + b"p1.1", b"qsThreadInfo": b"m" + b"p1.1," * 1000 + b"p1.1"},
    "offsets": {b"qOffsets": b"Text=zz;Data=zz"},
    "xml": {b"qXfer:features": b'l<target><reg name="a" bitsize="99999999999" regnum="7"/></target>'},
    "negative": {b"qXfer:features": b'l<target><reg name="a" bitsize="-64" regnum="-7"/></target>'},
    "include": {b"qXfer:features": b"l<target>" + b'<include href="target.xml"/>' * 30 + b"</target>"},
    "garbage": {b"?": b"\xff" * 100},
    "silence": {b"qSupported": b""},
}


def serve(connection: socket.socket, lies: dict[bytes, bytes]) -> None:
    received = b""
    while piece := connection.recv(1 << 16):
        received += piece
        while match := re.search(rb"\$([^#]*)#..", received, re.DOTALL):
            received = received[match.end() :]
            asked = match[1]
            answers = sorted((*lies.items(), *ORDINARY.items()), key=lambda one: -len(one[0]))
            lie = next((said for start, said in sorted(lies.items(), key=lambda one: -len(one[0]))
                        if asked.startswith(start)), None)  # fmt: skip
            said = lie if lie is not None else next((a for start, a in answers if asked.startswith(start)), b"")
            if said == MUTE:
                continue
            connection.sendall(b"+$%s#%02x" % (said, sum(said) & 0xFF))


@pytest.fixture
def server() -> Iterator[Callable[[dict[bytes, bytes]], str]]:
    listening: list[socket.socket] = []

    def start(lies: dict[bytes, bytes]) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        listening.append(server)

        def accept() -> None:
            try:
                connection, _ = server.accept()
                with connection:
                    serve(connection, lies)
            except OSError:
                return

        threading.Thread(target=accept, daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield start
    for server in listening:
        server.close()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "object" else name for name in LIES]
)
def test_lies_of_a_server_are_one_clear_error(name: str, server: Any, command: Any) -> None:
    before = time.monotonic()
    said = command("trace", "--remote", server(LIES[name]), "--duration", "1", timeout=90)
    assert said.code == 1, said
    assert said.err.startswith("usdtbuild: "), said
    assert said.err.count("\n") == 1, said
    assert len(said.err) < 400
    assert said.memory < 300 << 20
    assert time.monotonic() - before < 45


@pytest.mark.parametrize("asked", [b"qSupported", b"?", b"vCont?", b"qXfer:exec-file", b"qXfer:features"])
def test_a_stub_that_falls_silent_is_not_waited_for_longer_than_the_trace_may_take(
    asked: bytes, server: Any, command: Any
) -> None:
    before = time.monotonic()
    said = command("trace", "--remote", server({asked: MUTE}), "--duration", "1", "--", "/bin/true", timeout=60)
    assert said.code == 1, said
    assert "doesn't answer" in said.err or asked == b"qXfer:exec-file", said
    assert time.monotonic() - before < 20  # not 30 s, an answer's usual time
