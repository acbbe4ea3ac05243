"""Metrics (`--prometheus`): what is served is what the program counts, and what a Prometheus makes of it."""

from __future__ import annotations

import json
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.tracing.outputs import prometheus

from .conftest import built_with_probes

PROVIDER = """provider shop {
    probe request__start(int id, char *path);
    probe request__done(int id, int status, int bytes, char *path);
};
"""
# Hits N requests, waits for a line, and ends.
PROGRAM = r"""
#include "shop.h"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
	char line[9];
	for (int i = 0, n = atoi(argv[1]); i < n; i++) {
		char *path = i % 3 ? "/a\n\"b\\" : "/c";
		SHOP_REQUEST_START(i, path);
		SHOP_REQUEST_DONE(i, i % 10 ? 200 : 404, i % 100, path);
	}
	return fgets(line, 9, stdin) == NULL;
}
"""
# Hits once with each power of two from 1 to 32, once with minus each, and waits for a line.
SIGNED = """provider signed { probe value(int i, double d); };
"""
SIGNED_PROGRAM = r"""
#include "signed.h"
#include <stdio.h>
int main(void)
{
	char line[9];
	for (int i = 1; i <= 32; i *= 2) {
		SIGNED_VALUE(i, i);
		SIGNED_VALUE(-i, -i);
	}
	return fgets(line, 9, stdin) == NULL;
}
"""
WILD = r'"/a\n\"b\\"'  # as tables have it
DASHBOARD = Path(__file__).resolve().parents[2] / "docs/_static/grafana-usdtbuild.json"


@pytest.fixture(scope="module")
def shop(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_with_probes(run, tmp_path_factory.mktemp("shop"), "shop", PROVIDER, PROGRAM, "-O1")


@pytest.fixture(scope="module")
def signed(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_with_probes(run, tmp_path_factory.mktemp("signed"), "signed", SIGNED, SIGNED_PROGRAM, "-O1")


class Served:
    """A trace that serves metrics."""

    def __init__(self, words: list[Any]) -> None:
        self.printed = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen([*map(str, words)], stdin=subprocess.PIPE, stdout=self.printed,
                                        stderr=subprocess.PIPE, text=True)  # fmt: skip
        assert self.process.stderr is not None
        said = self.process.stderr.readline()
        found = re.fullmatch(r"usdtbuild: metrics: (http://127\.0\.0\.1:(\d+)/metrics)\n", said)
        assert found, said + self.process.stderr.read()
        self.url, self.port = found[1], int(found[2])

    def text(self, accept: str = "application/openmetrics-text; version=1.0.0") -> str:
        """Scrape."""
        with urllib.request.urlopen(urllib.request.Request(self.url, headers={"Accept": accept}), timeout=60) as got:
            return str(got.read().decode())

    def samples(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Scrape; return the value of each series."""
        parse = pytest.importorskip("prometheus_client.openmetrics.parser").text_string_to_metric_families
        return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in parse(self.text())
                for one in family.samples}  # fmt: skip

    def of(self, name: str, **labels: str) -> Counter[str]:
        """Return the values of a metric's series, added up by their key."""
        found: Counter[str] = Counter()
        for (series, has), value in self.samples().items():
            if series == name and labels.items() <= dict(has).items():
                found[dict(has).get("key") or dict(has).get("probe", "")] += value  # type: ignore[assignment]
        return found

    def wait(self, name: str, hits: int, **labels: str) -> Counter[str]:
        """Scrape until a metric's series add up to so many."""
        for _ in range(600):
            if sum((found := self.of(name, **labels)).values()) >= hits:
                return found
            time.sleep(0.1)
        return found

    def end(self) -> str:
        """Let the program end; return what the trace has printed."""
        self.process.communicate("\n", timeout=120)
        self.printed.seek(0)
        return self.printed.read()


@pytest.fixture
def serve(unprivileged: list[str]) -> Iterator[Callable[..., Served]]:
    """Begin a trace: `serve("--by", "path", "--", program, 7)`."""
    pytest.importorskip("prometheus_client")
    begun: list[Served] = []

    def make(*arguments: Any) -> Served:
        words = [*unprivileged, sys.executable, "-m", "usdtbuild", "trace", "--prometheus", "0", *arguments]
        begun.append(Served(words))
        return begun[-1]

    yield make
    for one in begun:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()
        one.printed.close()


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_hits_and_keys_are_what_the_program_counts(engine: str, shop: Path, serve: Callable[..., Served]) -> None:
    wanted = "-P", "shop:*", "--engine", engine, "--every", "100ms", "--count", "--by", "path"
    served = serve(*wanted, "--", shop, 3000)
    assert served.wait("usdt_hits_total", 6000) == {"shop:request__start": 3000, "shop:request__done": 3000}
    # Counts come with the worker's readings; by engine trap, keys come with the hits that are handed over.
    assert served.wait("usdt_keyed_hits_total", 6000, by="path") == {WILD: 4000, '"/c"': 2000}
    assert r'key="\"/a\\n\\\"b\\\\\""' in served.text()
    assert served.of("usdt_lost_hits_total").total() == 0
    out = served.end()
    assert re.search(r"total.*\n3000 .*request__done", out)


def test_sums_and_distributions(shop: Path, serve: Callable[..., Served]) -> None:
    """With -q, too, it is said where they are: nobody could know."""
    served = serve("-q", "--every", "100ms", "--sum", "bytes", "--histogram", "bytes", "--", shop, 3000)
    assert served.wait("usdt_values_count", 3000).total() == 3000
    assert served.of("usdt_argument_sum").total() == served.of("usdt_values_sum").total() == 30 * sum(range(100))
    for bound in (0, 3, 63):  # each bound belongs to its class
        assert served.of("usdt_values_bucket", le=f"{bound}.0").total() == 30 * (bound + 1)
    served.end()


@pytest.mark.parametrize("wanted", ["i", "i,8", "i,0.5", "d", "d,8"])
def test_a_bucket_has_what_is_not_above_its_bound(wanted: str, signed: Path, serve: Callable[..., Served]) -> None:
    """Of doubles, those at a bound above 0, or of a step, are in the next bucket."""
    served = serve("--every", "100ms", "--histogram", wanted, "--", signed)
    served.wait("usdt_values_bucket", 12, le="+Inf")
    values = [sign << power for power in range(6) for sign in (1, -1)]
    found = {float(dict(labels)["le"]): hits for (name, labels), hits in served.samples().items()
             if name == "usdt_values_bucket"}  # fmt: skip
    below = {bound for bound in found if wanted[0] == "d" and (bound > 0 or "," in wanted)}
    assert min(found) < 0 < len(found)
    assert found == {bound: sum(one < bound or (one == bound not in below) for one in values) for bound in found}
    served.end()


@pytest.mark.parametrize("argument", ["i", "d"])
def test_a_sum_may_be_negative(argument: str, signed: Path, serve: Callable[..., Served]) -> None:
    """The parser of `samples` is strict: a summary's sum must not fall, nor may a histogram's that has some below 0."""
    tables = ("--sum", argument, "--histogram", argument, "--filter", "i < 0")
    served = serve("--every", "100ms", *tables, "--", signed)
    assert served.wait("usdt_argument_count", 6).total() == 6
    assert served.of("usdt_argument_sum").total() == -63
    assert served.of("usdt_values_bucket", le="+Inf").total() == 6
    assert "\nusdt_argument_sum{" in served.text("text/plain")
    served.end()


@pytest.mark.parametrize("value", ["-0.25", "1e308"])
def test_sums_that_a_histogram_may_not_have(value: str, run: Any, tmp_path: Path, serve: Callable[..., Served]) -> None:
    """Of values in the class around 0, and one that overflows."""
    program = SIGNED_PROGRAM.replace("SIGNED_VALUE(-i, -i)", f"SIGNED_VALUE(-i, {value})")
    odd = built_with_probes(run, tmp_path, "signed", SIGNED, program, "-O1")
    served = serve("--every", "100ms", "--sum", "d", "--histogram", "d", "--filter", "i < 0", "--", odd)
    assert served.wait("usdt_argument_count", 6).total() == 6
    assert served.of("usdt_argument_sum").total() == 6 * float(value)
    served.end()


def test_latencies_of_what_passes_a_filter(shop: Path, serve: Callable[..., Served]) -> None:
    options = ("--filter", "status == 404", "--by", "path", "--latency", "request-start", "request-done")
    served = serve("--every", "100ms", *options, "--", shop, 3000)
    found = served.wait("usdt_latency_seconds_count", 300)
    assert found == {WILD: 200, '"/c"': 100}
    assert served.of("usdt_latency_seconds_bucket", le="50.0") == found
    assert 0 < served.of("usdt_latency_seconds_percentile", percentile="99")[WILD] < 60
    out = served.end()
    assert "300 pairs" in out


def test_a_scrape_needs_nothing_of_the_program(
    shop: Path, serve: Callable[..., Served], unprivileged: list[str]
) -> None:
    """Neither it, stopped, nor a client that says nothing keeps others from being served."""
    with subprocess.Popen([*unprivileged, shop, "0"], stdin=subprocess.PIPE) as program:
        served = serve("-P", "shop:*", "-p", program.pid)
        program.send_signal(signal.SIGSTOP)
        with socket.create_connection(("127.0.0.1", served.port)) as silent:
            silent.sendall(b"GET /met")
            while not (found := served.of("usdt_hits_total")):
                time.sleep(0.1)
            assert found == {"shop:request__start": 0, "shop:request__done": 0}
        program.send_signal(signal.SIGCONT)
        served.process.send_signal(signal.SIGINT)
        served.end()
        program.communicate(b"\n")
        assert program.returncode == 0


def test_more_keys_than_are_served_are_one(shop: Path, serve: Callable[..., Served]) -> None:
    served = serve("--every", "100ms", "--by", "id", "--", shop, 5000)
    found = served.wait("usdt_keyed_hits_total", 10000)
    assert found.total() == 10000
    assert len(found) == 2001
    served.end()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--prometheus", "x"), "'x' is no address"),
        (("--prometheus", "65536"), "is no address"),
        (("--prometheus", "::1:9"), "is no address"),
        (("--prometheus", "0", "-o", "x.html"), "make two traces"),
        (("--prometheus", "0", "--graph"), "don't go with --prometheus"),
    ],
)
def test_wrong_use(options: tuple[str, ...], said: str, usdtbuild: Any, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    done = usdtbuild("trace", *options, "--", "touch", begun, code=2, cwd=tmp_path)
    assert said in done.stderr
    assert not begun.exists()


def test_a_port_in_use_is_one_message(usdtbuild: Any, tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        begun = tmp_path / "begun"
        done = usdtbuild("trace", "--prometheus", port, "--", "touch", begun, code=1)
    assert done.stderr == f"usdtbuild: 127.0.0.1:{port}: metrics can't be served there: address already in use\n"
    assert not begun.exists()


def test_clients_that_ask_nothing_are_few_and_end(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """Any user of the machine can connect: some say nothing, one resets, one asks and reads nothing."""
    pytest.importorskip("prometheus_client")
    monkeypatch.setattr(prometheus, "_PATIENCE", 1.0)
    monkeypatch.setattr(prometheus, "_MOST_CLIENTS", 4)
    made = prometheus.Prometheus(("127.0.0.1", 0), [])
    made._hits.update({(f"app:{'x' * 1000}{i}", "app"): i for i in range(12_000)})
    found = re.search(r":(\d+)/", made.notes[0])
    assert found
    before, address = threading.active_count(), ("127.0.0.1", int(found[1]))
    deaf = socket.create_connection(address)
    deaf.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    silent = [socket.create_connection(address, timeout=30) for _ in range(12)]
    assert threading.active_count() <= before + 4
    assert [one.recv(1) for one in silent] == [b""] * 12
    rude = socket.create_connection(address)
    rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    rude.close()
    until = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.05)
    assert threading.active_count() == before
    with urllib.request.urlopen(found.string[found.string.index("http") :], timeout=60) as got:
        assert b"usdt_hits_total" in got.read()
    for one in (deaf, *silent):
        one.close()
    made.close()
    assert capfd.readouterr().err == ""


def test_without_the_library_its_extra_is_named(run: Any, tmp_path: Path) -> None:
    (tmp_path / "prometheus_client.py").write_text("raise ImportError(name='prometheus_client')")
    words = "import sys; sys.path.insert(0, sys.argv.pop()); from usdtbuild.__main__ import main; sys.exit(main())"
    done = run(sys.executable, "-c", words, "trace", "--prometheus", "0", "-p", "1", tmp_path, code=2)
    assert done.stderr.endswith("pip install 'usdtbuild[prometheus]'\n")


@pytest.mark.slow
def test_prometheus_scrapes_it(shop: Path, serve: Callable[..., Served], need: Any, tmp_path: Path, run: Any) -> None:
    """Its tool finds nothing to say, its database has the same numbers, and the dashboard's queries have answers."""
    promtool, server = need("promtool"), need("prometheus")
    tables = ("--by", "path", "--sum", "bytes", "--histogram", "bytes", "--latency", "request-start", "request-done")
    served = serve("--every", "200ms", *tables, "--", shop, 3000)
    served.wait("usdt_latency_seconds_count", 3000)
    run(promtool, "check", "metrics", input=served.text("text/plain"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "p.yml").write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: usdt\n  static_configs:\n"
        f"  - targets: ['127.0.0.1:{served.port}']\n"
    )
    words = [server, f"--config.file={tmp_path}/p.yml", f"--storage.tsdb.path={tmp_path}/data",
             f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip

    def asked(expression: str) -> list[Any]:
        data = urllib.parse.urlencode({"query": expression}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query", data, timeout=60) as got:
            return list(json.load(got)["data"]["result"])

    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as prometheus:
        try:
            for _ in range(600):
                time.sleep(0.1)
                try:
                    if asked("count_over_time(usdt_hits_total[1m]) >= 3"):
                        break
                except OSError:
                    continue
            found = {one["metric"]["probe"]: float(one["value"][1]) for one in asked("usdt_hits_total")}
            assert found == {"shop:request__start": 3000, "shop:request__done": 3000}
            found = {one["metric"]["key"]: float(one["value"][1]) for one in asked("usdt_latency_seconds_count")}
            assert found == {WILD: 2000, '"/c"': 1000}
            (p99,) = [one for one in asked("usdt_latency_seconds_percentile") if
                      one["metric"]["percentile"] == "99" and one["metric"]["key"] == WILD]  # fmt: skip
            panels = json.loads(DASHBOARD.read_text())["panels"]
            queries = [
                target["expr"].replace("$__rate_interval", "1m") for panel in panels for target in panel["targets"]
            ]
            assert [query for query in queries if not asked(query)] == []
        finally:
            prometheus.terminate()
    out = served.end()
    assert re.search(r"6000 hits|3000 pairs", out)
    assert float(p99["value"][1]) < 60
