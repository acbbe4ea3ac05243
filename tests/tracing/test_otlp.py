"""Spans (`--otlp`), as a collector gets them: decoded by the protocol's own classes, and refused where it would be."""

from __future__ import annotations

import gzip
import io
import re
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.outputs import Outputs
from usdtbuild.tracing.model import Event, Unreadable
from usdtbuild.tracing.outputs import otlp as under_test
from usdtbuild.tracing.outputs.choose import Wishes, choose

from .conftest import built_with_probes
from .recorded import EVENTS, REPORT, TARGETS, WILD

pytest.importorskip("opentelemetry.sdk")
service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

PROGRAM = r"""
#include "shop.h"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
	for (int i = 0, n = atoi(argv[1]); i < n; i++) {
		SHOP_REQUEST_START(i, i % 3 ? "/a" : NULL);
		SHOP_QUERY_BEGIN(i * 10);
		SHOP_QUERY_END();
		SHOP_REQUEST_DONE(i, i % 10 ? 200 : 404);
	}
	return 7;
}
"""
PROVIDER = """provider shop {
    probe request__start(int id, char *path);
    probe request__done(int id, int status);
    probe query__begin(int rows);
    probe query__end();
};
"""


class Collector:
    """An HTTP server that does what it is told: takes spans, refuses them, or says nothing."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.service = ""
        self.codes: list[int] = []  # what it answers first
        self.always = 200
        self.silent = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                if collector.silent.is_set():
                    collector.over.wait()
                    return
                body = self.rfile.read(int(self.headers["Content-Length"]))
                code = collector.codes.pop(0) if collector.codes else collector.always
                if code == 200:
                    code = collector.taken(self.path, self.headers, body)
                self.send_response(code)
                if code // 100 == 3:
                    self.send_header("Location", "https://elsewhere.example/v1/traces")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.over = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def taken(self, path: str, headers: Any, body: bytes) -> int:
        """Take spans; return the code of the answer, 400 for what a collector refuses."""
        if path != "/v1/traces" or headers["Content-Type"] != "application/x-protobuf":
            return 404
        request = service.ExportTraceServiceRequest()
        request.ParseFromString(gzip.decompress(body) if headers["Content-Encoding"] == "gzip" else body)
        spans = [span for one in request.resource_spans for scope in one.scope_spans for span in scope.spans]
        for span in spans:
            is_good = len(span.trace_id) == 16 and any(span.trace_id) and len(span.span_id) == 8 and any(span.span_id)
            if not is_good or not span.name or not 0 < span.start_time_unix_nano <= span.end_time_unix_nano:
                return 400
        for one in request.resource_spans:
            self.service = attributes(one.resource)["service.name"]
        self.spans += spans
        return 200

    def close(self) -> None:
        self.over.set()
        self.server.shutdown()
        self.server.server_close()


def attributes(of: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in of.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.fixture(scope="module")
def shop(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_with_probes(run, tmp_path_factory.mktemp("shop"), "shop", PROVIDER, PROGRAM, "-O1")


@pytest.mark.parametrize("engine", ["auto", "trap"])
def test_each_pair_is_a_span_within_what_was_open(
    engine: str, shop: Path, usdtbuild: Any, collector: Collector
) -> None:
    begun = time.time_ns()
    done = usdtbuild("trace", "--engine", engine, "--otlp", collector.url, "--", shop, 1000, code=7)
    assert done.stdout == ""
    requests = [span for span in collector.spans if span.name == "shop:request"]
    queries = [span for span in collector.spans if span.name == "shop:query"]
    assert (len(requests), len(queries), len(collector.spans), collector.service) == (1000, 1000, 2000, "shop")
    by_id = {span.span_id: span for span in requests}
    assert len(by_id) == len({span.trace_id for span in requests}) == 1000
    for query in queries:
        parent = by_id[query.parent_span_id]
        assert query.trace_id == parent.trace_id
        assert parent.start_time_unix_nano <= query.start_time_unix_nano
        assert query.end_time_unix_nano <= parent.end_time_unix_nano
        assert attributes(query)["rows"] == attributes(parent)["id"] * 10
    told = sorted((attributes(span) for span in requests), key=lambda has: int(has["id"]))
    assert [has["status"] for has in told] == [200 if i % 10 else 404 for i in range(1000)]
    assert [has.get("path") for has in told] == ["/a" if i % 3 else None for i in range(1000)]
    assert told[0]["path.null"] is True
    assert begun < min(span.start_time_unix_nano for span in requests) < time.time_ns()


def test_named_pairs_alone(shop: Path, usdtbuild: Any, collector: Collector) -> None:
    pair = ("--latency", "query-begin", "request-done")
    done = usdtbuild("trace", "--otlp", collector.url + "/", *pair, "--", shop, 50, code=7)
    assert "50 pairs" in done.stdout
    assert [span.name for span in collector.spans] == ["shop:query__begin"] * 50
    assert {(attributes(span)["rows"] // 10, attributes(span)["id"]) for span in collector.spans} == {
        (i, i) for i in range(50)
    }


def test_a_collector_that_is_busy_is_asked_again(shop: Path, usdtbuild: Any, collector: Collector) -> None:
    collector.codes = [503, 429]
    usdtbuild("trace", "--otlp", collector.url, "--", shop, 5, code=7)
    assert len(collector.spans) == 10


@pytest.mark.parametrize("way", ["refuses", "301", "307", "is not there", "hangs"])
def test_spans_that_are_not_delivered_are_told(
    way: str, shop: Path, usdtbuild: Any, collector: Collector, tmp_path: Path
) -> None:
    """The program isn't held up, other files are written, and the exit code says it where the program's doesn't."""
    collector.always = int(way) if way.isdecimal() else 400
    url = collector.url
    if way == "is not there":
        collector.server.server_close()
    elif way == "hangs":
        collector.silent.set()
    script = f"{shop} 100; touch {tmp_path}/ended"
    done = usdtbuild(
        "trace", "-qP", "shop:*", "--otlp", url, "-o", tmp_path / "x.jsonl", "--", "sh", "-c", script, code=1
    )
    said = re.fullmatch(rf"usdtbuild: {url}/v1/traces: 200 of 200 spans were not delivered: (.*)\n", done.stderr)
    assert said, done.stderr
    assert "https://elsewhere.example/v1/traces" in said[1] if way.isdecimal() else said[1]
    assert len((tmp_path / "x.jsonl").read_text().splitlines()) == 400
    assert (tmp_path / "ended").exists()


def test_a_queue_that_is_full_loses_and_counts(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_QUEUED", 600)
    monkeypatch.setattr(under_test, "_PATIENCE", 0.5)
    collector.silent.set()
    output = sent(collector, [one for i in range(2000) for one in pair(i)])
    assert output.has_failed
    assert re.search(r"2,000 of 2,000 spans were not delivered", output.notes[0])


def pair(number: int) -> tuple[Event, Event]:
    return Event(10**9 + number * 10, 10, 10, 2, (number,)), Event(10**9 + number * 10 + 5, 10, 10, 3, ())


def sent(collector: Collector, events: Any, **wishes: Any) -> Any:
    """Send a recorded trace."""
    wanted = Wishes(otlp=(f"{collector.url}/v1/traces", "recorded"), **wishes)
    with Outputs() as files, choose(wanted, files, io.StringIO()) as output:
        output.start(TARGETS)
        output.events(events)
        output.finish(REPORT)
        return output


def test_wild_values(collector: Collector) -> None:
    assert not sent(collector, EVENTS).has_failed
    spans = {span.name: span for span in collector.spans}
    assert len(collector.spans) == 4
    wild = next(one for one in collector.spans if attributes(one).get("id") == 2)
    assert attributes(wild) == {"process.pid": 10, "thread.id": 11, "id": 2, "path.bytes": WILD.hex(), "status": 404}
    assert attributes(next(one for one in collector.spans if one.name == "server:query"))["arg0"] == 1 << 60
    assert spans["server:request"].end_time_unix_nano > spans["server:request"].start_time_unix_nano


def test_a_key_pairs_across_threads(collector: Collector) -> None:
    events = [Event(10, 1, 1, 0, (7, b"x")), Event(20, 1, 2, 0, (8, Unreadable(16))), Event(30, 1, 3, 1, (7, 200)),
              Event(40, 1, 4, 1, (8, 404)), Event(50, 2, 4, 1, (8, 404))]  # fmt: skip
    sent(collector, events, latency=("request-start", "request-done"), key="id")
    found = [(attributes(span)["id"], span.end_time_unix_nano - span.start_time_unix_nano) for span in collector.spans]
    assert found == [(7, 20), (8, 20)]
    assert attributes(collector.spans[1])["path.unreadable"] == "0x10"
    assert all(not span.parent_span_id for span in collector.spans)


@pytest.mark.parametrize(
    "url", ["localhost:4318", "ftp://x", "http://", "http://x:99999", "http://[x", "http://a\x1bb"]
)
def test_wrong_urls(url: str, usdtbuild: Any) -> None:
    done = usdtbuild("trace", "--otlp", url, "--", "true", code=2)
    assert "is no URL of a collector" in done.stderr


def test_without_the_sdk_its_extra_is_named(run: Any, tmp_path: Path) -> None:

    (tmp_path / "opentelemetry.py").write_text("raise ImportError(name='opentelemetry.sdk')")
    words = "import sys; sys.path.insert(0, sys.argv.pop()); from usdtbuild.__main__ import main; sys.exit(main())"
    done = run(sys.executable, "-c", words, "trace", "--otlp", "http://x", "-p", "1", tmp_path, code=2)
    assert done.stderr.endswith("pip install 'usdtbuild[otlp]'\n")
