"""One program with a begin and an end, seen by everybody: pairs and their 99th percentile are the same for all.

The program measures itself, in each run. What a reader makes of a run may differ from that by its own class of a
distribution: 6 %, or the power of two of the scripts'.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.started import Started

from .conftest import SOURCES, built_with_probes
from .test_interchange import babeltrace
from .test_otlp import Collector, attributes, collector  # noqa: F401 - a fixture
from .test_prometheus import Served, serve  # noqa: F401 - a fixture

PROVIDER = "provider requests { probe request__begin(int id); probe request__done(int id, int status); };"
BEGIN, DONE = PAIR = "requests:request-begin", "requests:request-done"
STATUS = {"200": 75, "404": 25}
SLEPT = 50_000_000
BY = "--latency", *PAIR, "--by", "status"


@pytest.fixture(scope="module")
def program(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = (SOURCES / "requests.c").read_text()
    return built_with_probes(run, tmp_path_factory.mktemp("requests"), "requests", PROVIDER, source)


def agree(own: str, seen: float, of: int = 0) -> None:
    """Compare what the program says (99 of 100; `of` 1: all) with what was seen of it, in nanoseconds: never more, and
    no less than the program sleeps. A busy machine may keep it from its clock between the two."""
    assert 0.94 * SLEPT <= seen <= 1.07 * int(own.split()[of]), (own, seen)


def p99(durations: list[int]) -> int:
    assert len(durations) == 100
    return sorted(durations)[98]


PYTHON = """import sys
import usdtbuild

requests = usdtbuild.trace(command=sys.argv[1:])
for row in requests.latency("request__begin", "request__done", by="status"):
    print(row.key, row.hits, row.quantiles["p99"])
"""


def test_in_python(program: Path, run: Any) -> None:
    shown = run(sys.executable, "-c", PYTHON, program, stdin=subprocess.DEVNULL).stdout
    own, *rows = shown.splitlines()
    assert {key: int(hits) for key, hits, _ in map(str.split, rows)} == STATUS
    agree(own, max(float(row.split()[2]) for row in rows), 1)  # the greatest of 25 and of 75


def test_in_prometheus(program: Path, serve: Callable[..., Served]) -> None:  # noqa: F811
    served = serve("--every", "100ms", *BY, "--", program)
    assert served.wait("usdt_latency_seconds_count", 100) == STATUS
    found = served.of("usdt_latency_seconds_percentile", percentile="99")
    shown = served.end()
    agree(re.findall(r"^\d+ \d+$", shown, re.MULTILINE)[0], 1e9 * max(found.values()), 1)
    assert "100 pairs" in shown


def test_as_spans_ctf_and_lines(
    program: Path, usdtbuild: Any, need: Any, run: Any, collector: Collector, tmp_path: Path  # noqa: F811
) -> None:  # fmt: skip
    files = "-o", tmp_path / "x.ctf", "-o", tmp_path / "x.jsonl"
    words = "trace", "-P", "requests:*", "--otlp", collector.url, *files, "--", program
    own = usdtbuild(*words, stdin=subprocess.DEVNULL).stdout
    spans = collector.spans
    assert Counter(str(attributes(span)["status"]) for span in spans) == STATUS
    agree(own, p99([span.end_time_unix_nano - span.start_time_unix_nano for span in spans]))
    seen = babeltrace(need, run, tmp_path / "x.ctf")
    lines = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    for found in (
        [(time, name, int(has["id"])) for time, name, has in seen],
        [(one["time"], one["probe"], one["args"]["id"]) for one in lines],
    ):
        begun = {key: time for time, name, key in found if name.endswith("begin")}
        agree(own, p99([time - begun[key] for time, name, key in found if name.endswith("done")]))


@pytest.mark.skipif(os.geteuid() != 0, reason="uprobes need root")
@pytest.mark.live
@pytest.mark.parametrize("language", ["bpftrace", pytest.param("libbpf", marks=pytest.mark.slow)])
def test_by_a_script(language: str, program: Path, usdtbuild: Any, need: Any, run: Any, tmp_path: Path) -> None:
    script = tmp_path / ("watch.c" if language == "libbpf" else "script")
    script.write_text(usdtbuild("script", language, program, *BY).stdout)
    words = [need("bpftrace"), str(script)] if language == "bpftrace" else [str(tmp_path / "watch")]
    for step in re.findall(r"^ \*     ((?:clang|bpftool|cc) .*)$", script.read_text(), re.MULTILINE):
        need(step.split()[0])
        run("sh", "-ec", step.replace("FILE.c", "watch.c"), cwd=tmp_path)
    with Started(program) as one, (tmp_path / "shown").open("w+") as shown:
        tracer = subprocess.Popen([*words, str(one.pid)], stdout=shown, stderr=shown)
        own = one.line()  # it waits for the script
        tracer.send_signal(signal.SIGINT)
        tracer.wait(60)
        one.communicate("\n")
        shown.seek(0)
        said = shown.read()
    counts, highest = {}, []
    for status in STATUS:
        part = re.split(rf"^@nanoseconds\[{status}\]:|^\d+  {status}$", said, flags=re.MULTILINE)[1]
        part = re.split(r"\n\n|^\d", part.strip("\n") + "\n", maxsplit=1, flags=re.MULTILINE)[0]
        classes = re.findall(r"^ *\[(\d+)([KMG]?), .*\) +(\d+)\b", part, re.MULTILINE)
        counts[status] = sum(int(count) for _, _, count in classes)
        highest += [int(low) << 10 * " KMG".index(unit or " ") for low, unit, _ in classes]
    assert counts == STATUS, said
    assert SLEPT / 2 <= max(highest) <= int(own.split()[1]), said
