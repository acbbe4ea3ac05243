"""What `--json` prints is what its schema says, field for field, for files and processes of many kinds."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tracing.recorded import NUMBER, PATH, RATIO, REPORT, WHERE, target
from tests.tracing.test_files import LOOKALIKES
from usdtbuild.folders import folder
from usdtbuild.tracing.measures import Cell
from usdtbuild.tracing.model import MISSING, Event
from usdtbuild.tracing.outputs.by import By
from usdtbuild.tracing.outputs.histogram import Histogram
from usdtbuild.tracing.outputs.values import plain_value

SCHEMAS = folder("schemas")
PROVIDER = "provider app { probe go(int number, char *text); probe idle(); probe never(long); };\n"
MAIN = """\
#include "app.h"
#include <unistd.h>
__attribute__((noinline)) static void work(int number, char **texts)
{
    APP_GO(number, texts[0]);
    APP_IDLE();
}
int main(int argc, char **argv)
{
    if (APP_GO_ENABLED())
        work(argc, argv);
    work(-1, argv);
    if (argc > 1)
        pause();
    return 0;
}
"""


def conforms(name: str, text: str) -> Any:
    """Hold an output to its schema; return what it says."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    found = json.loads(text)
    jsonschema.Draft202012Validator(schema).validate(found)
    assert text.endswith("\n")
    return found


def test_hits_and_counts_of_a_trace(built: Path, usdtbuild: Any, tmp_path: Path) -> None:
    usdtbuild("trace", "--stack", "-o", tmp_path / "hits.jsonl", "--", built / "app")
    rows = [conforms("trace-hit", line) for line in (tmp_path / "hits.jsonl").read_text().splitlines(keepends=True)]
    assert [(row["probe"], row["args"].get("number")) for row in rows if row["probe"] == "app:go"] == [
        ("app:go", 1), ("app:go", -1)]  # fmt: skip
    values = [value for value, _, _ in LOOKALIKES if value is not MISSING]
    values += [1 << 53, -3, 2.5, 1e22, -(2.0**53), float("inf"), None]
    for argument in (PATH, NUMBER, WHERE, RATIO):
        for value in values if argument is PATH else [0, 1 << 60]:
            plain = plain_value(argument, value)
            conforms("trace-hit", json.dumps({**rows[0], "args": {"x": plain}}) + "\n")
    for option in ((), ("--filter", "number > 3")):
        usdtbuild("trace", "-P", "app:go", "--count", *option, "-o", tmp_path / "n.json", "--", built / "app")
        (row,) = conforms("trace-count", (tmp_path / "n.json").read_text())["counts"]
        assert (row["probe"], row["hits"], row["exact"]) == ("app:go", 0 if option else 2, True)


def test_tables_of_a_trace_as_files(built: Path, usdtbuild: Any, tmp_path: Path) -> None:
    """They say what is printed as JSON; CSV has the same names, and what is no number as it is in files of hits."""
    row = json.loads((SCHEMAS / "trace-every.json").read_text())["$defs"]["row"]
    assert json.loads((SCHEMAS / "trace-count.json").read_text())["$defs"]["tableRow"] == row
    files = [tmp_path / f"n{ending}" for ending in (".json", ".jsonl", ".csv")]
    outputs = [word for file in files for word in ("-o", file)]
    for table, first in (
        (("--by", "number"), {"table": "app:go number", "by": "number", "key": "-1", "hits": 1}),
        (("--sum", "number", "--by", "text"), {"table": "app:go number", "by": "text", "hits": 2, "sum": 0, "min": -1}),
        (("--histogram", "number"), {"table": "app:go number", "hits": 2, "min": -1, "max": 1}),
        (("--latency", "app:go", "app:idle", "--by", "number"), {"table": "app:go to app:idle", "pairs": 1}),
    ):
        words = ("trace", "-P", "app:go", "-P", "app:idle", *table)
        done = usdtbuild(*words, "--count", "--json", *outputs, "--", built / "app")
        printed = conforms("trace-every", done.stdout.splitlines(keepends=True)[-1])
        found = conforms("trace-count", files[0].read_text())
        assert [one["hits"] for one in found["counts"]] == [2, 2]
        if table[0] != "--latency":
            assert found["rows"] == printed["rows"]
        assert found["rows"][0].items() >= first.items()
        assert [json.loads(line) for line in files[1].read_text().splitlines()] == found["counts"] + found["rows"]
        with files[2].open(newline="") as stream:
            rows = [{name: value for name, value in row.items() if value} for row in csv.DictReader(stream)]
        assert len(rows) == 2 + len(found["rows"])
        for row, wanted in zip(rows[2:], found["rows"]):
            assert row.keys() == wanted.keys()
            assert row["table"] == wanted["table"]
            assert all(float(row[name]) == value for name, value in wanted.items() if not isinstance(value, str))


@pytest.mark.parametrize("by", ["", "where"])
def test_rows_of_doubles(by: str) -> None:
    """Doubles are spelled as such, and a sum that none holds is told, in intervals after that too."""
    one = target(0, "one", RATIO, WHERE)
    events = [Event(at, 1, 1, 0, (1e308, 0)) for at in range(3)]
    for make in (Histogram, By):
        words = {"by": by} if make is Histogram else {"of": "ratio"}
        table = make(io.StringIO(), "ratio" if make is Histogram else by, **words)  # type: ignore[arg-type]
        table.start([one])
        table.events(events)
        (row,) = [row.as_json() for row in table.rows(REPORT)]
        line = {"version": 1, "time": 0, "seconds": 1, "counts": {}, "rates": {}, "lost": 0, "rows": [row]}
        conforms("trace-every", json.dumps(line) + "\n")
        quantiles = {"p50": 1e308, "p90": 1e308, "p99": 1e308} if make is Histogram else {}
        key = {"by": by, "key": "0x0"} if by else {}
        assert row == {"table": "server:one ratio", **key, "hits": 3, "overflow": True, "min": 1e308, **quantiles,
                       "max": 1e308}  # fmt: skip
        assert {type(row[name]) for name in ("min", *quantiles, "max")} == {float}
    full = Cell(3, float("inf"), 1e308, 1e308)
    assert full.since(Cell(2, float("inf"), 1e308, 1e308)).total == float("inf")


@pytest.mark.parametrize(("wanted", "p50"), [("ratio", 0.75), ("ratio,0.1", 0.75), ("ratio,0.4", 0.75)])
def test_quantiles_of_doubles_are_within_their_extremes(wanted: str, p50: float) -> None:
    table = Histogram(io.StringIO(), wanted)
    table.start([target(0, "one", RATIO)])
    table.events([Event(at, 1, 1, 0, (0.75,)) for at in range(3)])
    assert table.rows(REPORT)[0].quantiles == {"p50": p50, "p90": p50, "p99": p50}


def test_a_report_of_calls(built: Path, usdtbuild: Any, tmp_path: Path) -> None:
    usdtbuild("trace", "--report", "-o", tmp_path / "calls.report.json", "--", built / "app")
    rows = conforms("trace-report", (tmp_path / "calls.report.json").read_text())["functions"]
    assert {row["name"]: row["calls"] for row in rows} == {"main": 1, "work": 1}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, usdtbuild: Any, run: Any, header_of: Any) -> Path:
    """A program with all record formats, patchable entries and debug information; its object lies beside it."""
    place = tmp_path_factory.mktemp("json")
    header_of(place, "app.d", PROVIDER, "--formats=dof")
    (place / "main.c").write_text(MAIN)
    formats, entries = "--formats=stapsdt,dof,usdt", "-fpatchable-function-entry=7,5"
    usdtbuild("cc", formats, "--", "gcc", "-O1", "-g", entries, "-c", "main.c", "-o", "main.o", cwd=place)
    run("gcc", "main.o", "-o", "app", cwd=place)
    run("gcc", "-c", "-xc", "/dev/null", "-o", "empty.o", cwd=place)
    return place


@pytest.fixture
def process(built: Path) -> Iterator[str]:
    running = subprocess.Popen([built / "app", "wait"])
    yield str(running.pid)
    running.kill()
    running.wait()


def test_list(built: Path, process: str, usdtbuild: Any) -> None:
    text = usdtbuild("list", "--json", "--source", built / "app", built / "main.o", process, code=None).stdout
    files = conforms("list", text)["files"]
    assert len(files) >= 3
    assert {probe["format"] for probe in files[0]["probes"]} == {"stapsdt", "dof", "usdt"}
    assert any("process" in file for file in files)


def test_verify(built: Path, usdtbuild: Any) -> None:
    text = usdtbuild(
        "verify", "--json", "--provider", built / "app.d", built / "app", built / "main.o", code=None
    ).stdout
    assert conforms("verify", text)["files"]
    damaged = built / "damaged"
    usdtbuild("verify", "--json", built / "empty.o", code=None)
    damaged.write_bytes((built / "app").read_bytes().replace(b"-4@%edi", b"-3@%edi"))
    found = conforms("verify", usdtbuild("verify", "--json", damaged, code=None).stdout)
    assert any(file["findings"] for file in found["files"])


def test_functions(built: Path, process: str, usdtbuild: Any) -> None:
    text = usdtbuild("functions", "--json", "--explain", built / "app", built / "main.o", process).stdout
    files = conforms("functions", text)["files"]
    assert any(function["hotpatchable"] for file in files for function in file["functions"])
    assert any("explain" in function for file in files for function in file["functions"])


def test_calls(built: Path, process: str, usdtbuild: Any) -> None:
    files = conforms("calls", usdtbuild("calls", "--json", built / "app", process, code=None).stdout)["files"]
    assert any(call["name"] == "pause" for file in files for call in file["calls"])
    assert any("holds" in call for file in files for call in file["calls"])


@pytest.mark.parametrize("command", ["list", "verify", "functions", "calls"])
def test_a_path_that_is_no_utf8_is_spelled(command: str, built: Path, usdtbuild: Any, tmp_path: Path) -> None:
    folder = tmp_path / "\U00010080\\\udcff"  # a character that JSON spells by two halves, a backslash, and a byte
    folder.mkdir()
    (folder / "app").write_bytes((built / "app").read_bytes())
    text = usdtbuild(command, "--json", f"{folder.name}/app", cwd=tmp_path, code=None).stdout
    assert r"\udcff" not in text
    (file,) = conforms(command, text)["files"]
    assert file["file" if command == "functions" else "path"] == "\U00010080\\\\xff/app"


def test_flags(usdtbuild: Any) -> None:
    text = usdtbuild("flags", "--patchable", "7,5", "--no-probe", "--compiler", "gcc", "--json").stdout
    assert conforms("flags", text)["pair"] == [7, 5]


def test_dof(built: Path, usdtbuild: Any) -> None:
    for words in (("app",), ("main.o",), ("app", "--merged")):
        assert conforms("dof-dump", usdtbuild("dof", "dump", "--json", *words, cwd=built).stdout)["tables"]
    platforms = ("--platform", "freebsd", "--platform", "illumos", "--platform", "oracle")
    checked = usdtbuild("dof", "check", "--json", *platforms, "app", cwd=built, code=None).stdout
    assert len(conforms("dof-check", checked)["results"]) >= 3


def test_each_schema_is_on_the_page_and_the_other_way_round() -> None:
    page = (Path(__file__).resolve().parent.parent / "docs/json.md").read_text()
    assert {path.name for path in SCHEMAS.glob("*.json")} == {
        word for word in page.split("`") if word.endswith(".json")
    }


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1", "FORCE_COLOR": ""}, {"TERM": "dumb"}])
def test_plain_terminals_get_no_colours(variables: dict[str, str], built: Path, run: Any, need: Any) -> None:
    """On a terminal, which `script` makes: with colours where nothing speaks against them."""
    import os
    import sys

    script = need("script")
    environment = {**os.environ, "TERM": "xterm-256color"}
    for command in ("list", "verify", "functions"):
        words = [script, "-qec", f"{sys.executable} -m usdtbuild {command} {built / 'app'}", "/dev/null"]
        assert "\x1b[" in run(*words, env=environment, code=None).stdout
        assert "\x1b[" not in run(*words, env={**environment, **variables}, code=None).stdout, command
