"""Debug information from a server: it is asked only if the user says so, and believed nothing."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from usdtbuild import limits
from usdtbuild.errors import InputError
from usdtbuild.tracing import debuginfod

SOURCE = """
#include <stdio.h>
__attribute__((noinline)) int price(int amount, const char *what) { return 98 * amount + what[0]; }
int main(int argc, char **argv) { (void)argv; printf("%d\\n", price(argc + 2, "tea")); return 0; }
"""
FULL = re.compile(r'price\(amount=3, what="tea"\)')


@pytest.fixture(scope="module")
def stripped(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program without debug information, a file that has it, and one that another program has."""
    folder = tmp_path_factory.mktemp("stripped")
    for name, text in (("app", SOURCE), ("other", SOURCE.replace("98", "97"))):
        (folder / f"{name}.c").write_text(text)
        flags = ("-g", "-O1", "-rdynamic", "-Wl,--build-id", "-fpatchable-function-entry=7,5")
        run("gcc", *flags, f"{name}.c", "-o", name, cwd=folder)
        run("objcopy", "--only-keep-debug", name, f"{name}.debug", cwd=folder)
        run("strip", "--strip-all", name, cwd=folder)
    return folder


@pytest.fixture
def serve() -> Iterator[Any]:
    """Start a server that answers each question so: by a content, a code, or by a function that writes."""
    running: list[ThreadingHTTPServer] = []

    def start(answer: Any) -> tuple[str, list[str]]:
        asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(answer if isinstance(answer, int) else 200)
                self.end_headers()
                try:
                    if callable(answer):
                        answer(self.wfile)
                    elif isinstance(answer, bytes):
                        self.wfile.write(answer)
                except OSError:
                    pass  # whoever asked has had enough

            def log_message(self, *_: object) -> None:
                pass

        running.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=running[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{running[-1].server_port}", asked

    yield start
    for one in running:
        one.shutdown()
        one.server_close()


@pytest.fixture
def trace(usdtbuild: Any, stripped: Path, tmp_path: Path) -> Any:
    def trace_price(*words: str, **more: str) -> Any:
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), **more}
        return usdtbuild("trace", "-v", "-F", "price", *words, "--", stripped / "app", env=environment)

    return trace_price


def test_arguments_come_from_a_server_once(trace: Any, serve: Any, stripped: Path) -> None:
    """It isn't asked unasked, nor again for a function that is known; the next server may have what the first lacks."""
    url, asked = serve((stripped / "app.debug").read_bytes())
    nothing, asked_too = serve(404)
    assert not FULL.search(trace(DEBUGINFOD_URLS=url).stdout)
    assert not asked
    assert FULL.search(trace("--debuginfod", DEBUGINFOD_URLS=f"{nothing} {url}").stdout)
    assert FULL.search(trace("--debuginfod", url).stdout)
    assert [len(asked), len(asked_too)] == [1, 1]
    assert re.fullmatch(r"/buildid/[0-9a-f]{40}/debuginfo", asked[0])


@pytest.mark.parametrize(("answer", "says"), [
    ("other.debug", "what the server sent is none of this file's"), (b"", "arguments of its functions are not known"),
    (b"\x7fELF" + b"\xff" * 5000, "arguments of its functions are not known"), (404, "has no debug information"),
    (500, "answers 500"),
], ids=["another's", "empty", "damaged", "404", "500"])  # fmt: skip
def test_what_is_none_is_refused(answer: Any, says: str, trace: Any, serve: Any, stripped: Path) -> None:
    url, _ = serve((stripped / answer).read_bytes() if isinstance(answer, str) else answer)
    done = trace("--debuginfod", url)
    assert "price" in done.stdout
    assert not FULL.search(done.stdout)
    assert says in done.stderr


def test_a_server_has_so_much_time_and_so_many_bytes(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def drips(out: Any) -> None:
        for _ in range(100):
            out.write(b"x")
            time.sleep(0.05)

    def pours(out: Any) -> None:
        while True:
            out.write(b"\0" * (1 << 20))

    monkeypatch.setattr(debuginfod, "DOWNLOAD_SECONDS", 0.3)
    with pytest.raises(InputError, match="takes longer"):
        debuginfod._fetch(serve(drips)[0], "ab", None)
    monkeypatch.setattr(debuginfod, "DOWNLOAD_SECONDS", limits.DOWNLOAD_SECONDS)
    monkeypatch.setattr(debuginfod, "_MOST", 4 << 20)
    with pytest.raises(InputError, match="sends more than 4 MB"):
        debuginfod._fetch(serve(pours)[0], "ab", None)


def test_no_server(usdtbuild: Any) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "DEBUGINFOD_URLS"}
    for words in (("--debuginfod",), ("--debuginfod", "ftp://x")):
        done = usdtbuild("trace", *words, "--", "true", env=environment, code=2)
        assert "server" in done.stderr
