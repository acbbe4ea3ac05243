"""Files of a trace, each read back by what reads such files; and nothing traced breaks out of them."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import re
import tracemalloc
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.errors import InputError, UsageError
from usdtbuild.outputs import Outputs
from usdtbuild.tracing.model import ENTER, EXIT, MISSING, Cut, Event, Unreadable
from usdtbuild.tracing.outputs.choose import ENDINGS, Wishes, choose
from usdtbuild.tracing.outputs.count import Count
from usdtbuild.tracing.outputs.csv_ import Csv
from usdtbuild.tracing.outputs.flame import Flame
from usdtbuild.tracing.outputs.folded import Folded
from usdtbuild.tracing.outputs.html import Html
from usdtbuild.tracing.outputs.jsonl import JsonLines
from usdtbuild.tracing.outputs.lines import Lines
from usdtbuild.tracing.outputs.trace_events import TraceEvents
from usdtbuild.tracing.outputs.values import cell_value, plain_value, value_text

from .recorded import EVENTS, NUMBER, PATH, RATIO, REPORT, TARGETS, WILD, target, written

# Formats that can be written here.
FORMATS = [one for one in ENDINGS if one != ".parquet" or importlib.util.find_spec("pyarrow")]
SHOWN = WILD.decode("utf-8", "backslashreplace")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"plain", '"plain"'), (b"caf\xc3\xa9", '"café"'), (b"\xff\xfe\xc3", r'"\xff\xfe\xc3"'), (rb"\xff", r'"\\xff"'),
        (b'"\\', r'"\"\\"'), (b"\x1b[31m\r\n\0", r'"\x1b[31m\r\n\x00"'), ("\u202e\u2028".encode(), r'"\u202e\u2028"'),
        (b"\xed\xa0\x80", r'"\xed\xa0\x80"'), (None, "NULL"), (Unreadable(16), "0x10"), (MISSING, "?"),
    ],
)  # fmt: skip
def test_strings_are_shown_unambiguously_and_harmlessly(value: Any, shown: str) -> None:
    assert value_text(PATH, value) == shown


def test_names_from_a_file_that_lies_are_harmless() -> None:
    lying = target(0, "no\x1b]0;title\x07", NUMBER._replace(name="a\nb"))._replace(
        module=TARGETS[0].module._replace(path="/tmp/\x1b[2J")
    )
    report = REPORT._replace(targets=(lying, TARGETS[1]), counts=(1, 2))
    stream = io.StringIO()
    Count(stream).finish(report)
    text = stream.getvalue() + written(Lines, targets=[lying], events=[Event(1, 1, 1, 0, (1,))])
    assert set(text) - {one for one in text if one.isprintable()} == {"\n"}
    assert text.count("\n") == 3


def test_hits_are_not_kept_in_memory(tmp_path: Path) -> None:
    """What must not hold all hits holds some hundred kilobytes; the hits alone would be 5 MB."""
    wishes = Wishes(by="path", histogram="id", latency=("request-start", "request-done"),
                    files=tuple(str(tmp_path / f"t{ending}") for ending in FORMATS if ending != ".html"))  # fmt: skip
    hits = [Event(i * 700, 10, 10 + i // 2 % 5, i % 2, (i, 200 if i % 2 else b"/%d" % i)) for i in range(1000)]
    tracemalloc.start()
    try:
        with Outputs() as files, choose(wishes, files, io.StringIO()) as output:
            output.start(TARGETS)
            before = tracemalloc.get_traced_memory()[0]
            for at in range(0, 20_000, 1000):
                output.events([one._replace(time=one.time + at * 700) for one in hits])
            peak = tracemalloc.get_traced_memory()[1] - before
            output.finish(REPORT)
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20
    assert len((tmp_path / "t.jsonl").read_bytes().splitlines()) == 20_000


def test_json_lines() -> None:
    rows = [json.loads(line, parse_constant=pytest.fail) for line in written(JsonLines).splitlines()]
    assert len(rows) == len(EVENTS)
    first = {"time": 1_000_000_000, "pid": 10, "tid": 10, "probe": "server:request__start"}
    assert rows[0] == {**first, "args": {"id": 1, "path": "/a"}}
    assert [rows[i]["args"] for i in (1, 3, 4, 5, 10, 11)] == [
        {"arg0": {"integer": str(1 << 60)}}, {"id": 2, "path": {"bytes": WILD.hex()}}, {},
        {"where": {"pointer": "0x7f00"}, "ratio": {"float": "nan"}, "path": None},
        {"id": 3, "path": {"unreadable": "0x10"}}, {"where": {"pointer": "0x0"}, "ratio": 0.25},
    ]  # fmt: skip


LOOKALIKES: list[tuple[Any, Any, str]] = [
    (b"0x10", "0x10", "0x10"),
    (Unreadable(16), {"unreadable": "0x10"}, r"\?0x10"),
    (MISSING, None, r"\?"),  # JSON leaves it out
    (None, None, r"\N"),
    (b"", "", r"\E"),
    (b"NULL", "NULL", "NULL"),
    (rb"\N", r"\N", r"\\N"),
    (b"\xff", {"bytes": "ff"}, r"\xff"),
    (rb"\xff", r"\xff", r"\\xff"),
    (b"a\xa0", {"bytes": "61a0"}, r"a\xa0"),
    (b"a\xc2\xa0", "a\u00a0", r"a\u00a0"),
    (b"abc", "abc", "abc"),
    (Cut(b"abc"), {"text": "abc", "cut": True}, r"abc\..."),
    (rb"abc\...", r"abc\...", r"abc\\..."),
    (Cut(b"caf\xc3"), {"text": "caf", "cut": True}, r"caf\xc3\..."),
    (Cut(b"\xff"), {"bytes": "ff", "cut": True}, r"\xff\..."),
    (b"caf\xc3", {"bytes": "636166c3"}, r"caf\xc3"),
    (b"=1", "=1", "'=1"),
    (b"'=1", "'=1", "''=1"),
    (b"a\nb", "a\nb", r"a\nb"),
    (b'{"text": "abc"}', '{"text": "abc"}', '{"text": "abc"}'),
]


def test_no_string_looks_like_another() -> None:
    values = [value for value, _, _ in LOOKALIKES if value is not MISSING]
    assert [plain_value(PATH, value) for value in values] == [p for v, p, _ in LOOKALIKES if v is not MISSING]
    assert [cell_value(PATH, value) for value, _, _ in LOOKALIKES] == [shown for _, _, shown in LOOKALIKES]
    for shown in (
        (json.dumps(plain_value(PATH, value)) for value in values),
        (cell_value(PATH, v) for v in values),
        (value_text(PATH, value) for value, _, _ in LOOKALIKES),
    ):
        found = list(shown)
        assert len(set(found)) == len(found)


@pytest.mark.parametrize("number", [1 << 53, -1 << 53, (1 << 64) - 1])
def test_integers_that_a_double_cannot_hold_are_told_apart(number: int) -> None:
    assert plain_value(NUMBER, number) == {"integer": str(number)}
    assert cell_value(NUMBER, number) == rf"\#{number}"
    near = number - (1 if number > 0 else -1)
    assert (plain_value(NUMBER, near) == near) == (abs(number) == 1 << 53)


def test_two_arguments_of_one_name_are_told_apart() -> None:
    twice = target(0, "twice", NUMBER, NUMBER)
    rows = written(JsonLines, targets=[twice], events=[Event(1, 1, 1, 0, (3, 4))])
    assert json.loads(rows)["args"] == {"id": 3, "arg1": 4}


def test_csv_has_a_column_for_each_argument_and_no_formulas() -> None:
    rows = list(csv.DictReader(io.StringIO(written(Csv), newline="")))
    assert list(rows[0]) == ["time", "pid", "tid", "probe", "id", "path", "status", "arg0", "where", "ratio"]
    assert len(rows) == len(EVENTS)
    assert rows[3]["path"] == SHOWN.replace("\x1b", "\\x1b").replace("\n", "\\n")
    assert (rows[5]["where"], rows[5]["ratio"], rows[5]["path"], rows[5]["id"]) == ("0x7f00", "nan", r"\N", "")
    for start in "=+-@":
        event = Event(1, 1, 1, 0, (-1, f"{start}1+1".encode()))
        (row,) = csv.DictReader(io.StringIO(written(Csv, events=[event])))
        assert (row["id"], row["path"]) == ("-1", f"'{start}1+1")


def test_csv_tells_an_argument_from_a_hits_own_column() -> None:
    own = target(0, "own", NUMBER._replace(name="time"), PATH._replace(name="pid"), RATIO._replace(name="tid"))
    other = target(1, "other", PATH._replace(name="time"), NUMBER._replace(name="probe"))
    events = [Event(5, 10, 11, 0, (1, b"a", 0.5)), Event(6, 10, 11, 1, (b"b", 2))]
    assert written(Csv, targets=[own, other], events=events) == (
        "time,pid,tid,probe,time.integer,pid.string,tid.float,time.string,probe.integer\n"
        "5,10,11,server:own,1,a,0.5,,\n6,10,11,server:other,,,,b,2\n"
    )


def test_csv_columns_that_come_later_are_there_for_all_rows() -> None:
    stream = io.StringIO()
    output = Csv(stream)
    output.start(TARGETS[:1])
    output.events(EVENTS[:1])
    output.start(TARGETS)
    output.events(EVENTS[1:3])
    output.finish(REPORT)
    rows = list(csv.reader(io.StringIO(stream.getvalue())))
    assert {len(row) for row in rows} == {10}
    assert rows[1][4:] == ["1", "/a", "", "", "", ""]
    assert rows[2][4:] == ["", "", "", rf"\#{1 << 60}", "", ""]


def test_trace_events() -> None:
    whole = json.loads(written(TraceEvents), parse_constant=pytest.fail)
    found = [(each["ph"], each["name"], each.get("ts"), each.get("dur")) for each in whole["traceEvents"]]
    assert found == [
        ("X", "server:query", 1.0, 2.5),
        ("i", "server:mark", 4.0, None),
        ("X", "server:request", 0.0, 5.0),
        ("b", "server:request", 2.0, None),  # the query within it goes on
        ("e", "server:request", 7.0, None),
        ("X", "server:query", 6.0, 1.5),
        ("i", "server:mark", 9.0, None),
        ("B", "server:request", 8.0, None),
        ("M", "thread_name", None, None),
        ("M", "thread_name", None, None),
    ]
    events = whole["traceEvents"]
    assert events[2]["args"] == {"id": 1, "path": "/a", "status": 200}
    assert events[0]["args"] == {"arg0": {"integer": str(1 << 60)}}
    assert events[3]["id"] == events[4]["id"]
    assert events[-1]["args"] == {"name": "worker\\x1b[0m"}


def test_folded_stacks_have_the_time_of_their_own() -> None:
    assert written(Folded).splitlines() == [
        # 10: 5 us, of them 2.5 in the query, and 2 at the end; 11: 5 us, of them 1 in the query that is cut there
        f"server:request {2500 + 2000 + 4000}",
        f"server:request;server:query {2500 + 1000}",
    ]


def functions(*hits: tuple[int, int]) -> dict[str, Any]:
    """A trace of functions `a;b` and `<c>`: entries (0 to 2) and exits (3 to 5), at times."""
    kinds = [(kind, name) for kind in (ENTER, EXIT) for name in ("a;b", "<c>", "d\x1b")]
    targets = [target(i, name, provider="", kind=kind) for i, (kind, name) in enumerate(kinds)]
    return {"targets": targets, "events": [Event(time, 1, 1, number, ()) for time, number in hits]}


def test_functions_fold_by_entries_and_exits_and_lost_exits_end_with_their_caller() -> None:
    start = REPORT.ended - 1000
    trace = functions(*((start + time, number) for time, number in
                        [(0, 0), (10, 1), (30, 4), (40, 1), (50, 2), (90, 3), (100, 5), (200, 2)]))  # fmt: skip
    assert written(Folded, **trace).splitlines() == ["a:b 20", "a:b;<c> 30", "a:b;<c>;d\\x1b 40", "d\\x1b 800"]


def test_entries_alone_are_counted() -> None:
    trace = functions((1, 0), (2, 1), (3, 0))
    trace["targets"] = trace["targets"][:3]
    assert written(Folded, **trace).splitlines() == ["<c> 1", "a:b 2"]
    assert "3 hits in all; hits are counted" in written(Flame, **trace)


def test_flame_graph_is_an_svg_with_every_frame() -> None:
    root = ET.fromstring(written(Flame))
    space = "{http://www.w3.org/2000/svg}"
    frames = {
        frame.attrib["data-name"]: float(frame.find(f"{space}rect").attrib["width"])  # type: ignore[union-attr]
        for frame in root.iter(f"{space}g")
        if frame.get("class") == "frame"
    }
    assert frames["all"] == frames["server:request"] == 1180
    assert frames["server:query"] == pytest.approx(1180 * 3500 / 12000, abs=0.01)
    titles = [title.text for title in root.iter(f"{space}title")]
    assert "server:query\n3.50 us, 29.17%" in titles


def test_flame_graph_leaves_out_what_nobody_can_see_and_says_so() -> None:
    hits = []
    for i in range(3000):
        hits += [Event(i * 1000, 1, 1, 0, ()), Event(i * 1000 + (500 if i else 10**9), 1, 1, 1, ())]
    names = [b"f%d" % i for i in range(3000)]
    pair = [target(0, "function__entry", PATH._replace(name="function")), target(1, "function__return")]
    hits = [hit._replace(values=(names[i // 2],)) if hit.target == 0 else hit for i, hit in enumerate(hits)]
    text = written(Flame, targets=pair, events=hits)
    assert len(text) < 20_000
    assert "2,999 frames are too narrow" in text


def page_data(page: str) -> Any:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text, parse_constant=pytest.fail)


def test_page_has_all_spans_and_points_in_their_lanes() -> None:
    data = page_data(written(Html, "./server --fast"))
    assert [(lane["name"], lane["tid"], lane["rows"]) for lane in data["lanes"]] == [
        ("server", 10, 2), ("worker\\x1b[0m", 11, 2),
    ]  # fmt: skip
    shown = [(lane, row, begin, lasted, data["names"][name]) for lane, row, begin, lasted, name, _ in data["items"]]
    assert shown == [
        (0, 0, 0, 5000, "server:request"), (0, 1, 1000, 2500, "server:query"), (0, 1, 4000, -1, "server:mark"),
        (0, 0, 8000, -2, "server:request"), (0, 1, 9000, -1, "server:mark"),
        (1, 0, 2000, 5000, "server:request"), (1, 1, 6000, 1500, "server:query"),
    ]  # fmt: skip
    assert data["items"][0][5] == 'id = 1\npath = "/a"\nat the end: status = 200'
    assert data["facts"][:3] == ["12 hits", "2 threads", "9.00 us"]
    assert "1 hit lost" in " ".join(data["facts"])
    assert "1 end without a begin" in data["facts"]


def test_page_lets_nothing_traced_out_of_its_data() -> None:
    page = written(Html, "</title><script>alert(2)</script>")
    assert page.count("<script") == 3
    assert page.count("</script") == 3
    assert "<script>alert" not in page
    assert "Content-Security-Policy" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_page_has_a_bound_and_says_so() -> None:
    page = written(Html, "server", 4)
    data = page_data(page)
    assert "the first 4 of 12 hits" in data["notes"][0]
    assert data["length"] == 2000


@pytest.mark.parametrize("ending", FORMATS)
def test_same_hits_same_bytes_and_no_hits_are_a_good_file(ending: str, tmp_path: Path) -> None:
    def made(name: str, events: Any) -> bytes:
        wishes = Wishes(files=(str(tmp_path / name),), heading="x")
        with Outputs() as files, choose(wishes, files, io.StringIO()) as output:
            output.start(TARGETS)
            output.events(events)
            output.finish(REPORT)
            assert not (tmp_path / name).exists() or not any((tmp_path / name).iterdir()), (
                "it appears when all is there"
            )
        path = tmp_path / name
        return b"".join(one.read_bytes() for one in (sorted(path.iterdir()) if path.is_dir() else [path]))

    assert made(f"one{ending}", EVENTS) == made(f"two{ending}", EVENTS)
    empty = made(f"none{ending}", ())
    if ending == ".json":
        assert json.loads(empty)["traceEvents"] == []
    elif ending == ".svg":
        ET.fromstring(empty)


def test_an_error_leaves_no_file_and_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    wishes = Wishes(files=(str(path), str(tmp_path / "out.csv")))

    def interrupted() -> None:
        with Outputs() as files, choose(wishes, files, io.StringIO()) as output:
            output.start(TARGETS)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [each.name for each in tmp_path.iterdir()] == ["out.json"]
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        (Wishes(files=("a.pdf",)), "no format has the ending .pdf; there are .jsonl"),
        (Wishes(counting=True, files=("a.html",)), "-o a.html: it shows hits one by one, which --count doesn't keep"),
        (Wishes(top=3), "--top is about rows of the tables"),
        (Wishes(key="id"), "--key says which hits --latency pairs"),
    ],
)
def test_what_makes_no_sense_is_refused_first(wishes: Wishes, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)), Outputs() as files:
        choose(wishes, files, io.StringIO())


def test_tables_go_to_a_text_file_and_records_beside_them(tmp_path: Path) -> None:
    shown = io.StringIO()
    wishes = Wishes(by="id", histogram="id", files=(str(tmp_path / "a.txt"), str(tmp_path / "b.jsonl")))
    with Outputs() as files, choose(wishes, files, shown) as output:
        output.start(TARGETS)
        output.events(EVENTS)
        output.finish(REPORT)
    text = (tmp_path / "a.txt").read_text()
    assert "values in" in text
    assert "mean" in text
    assert shown.getvalue() == ""
    assert len((tmp_path / "b.jsonl").read_text().splitlines()) == len(EVENTS)


@pytest.mark.parametrize("ending", FORMATS)
def test_a_full_disk_is_said_with_the_files_name(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def write() -> None:
        with choose(Wishes(files=(f"full{ending}",)), _Full(), io.StringIO()) as output:
            output.start(TARGETS)
            for _ in range(1000):
                output.events(EVENTS)
            output.finish(REPORT)

    with pytest.raises(InputError, match=rf"full{re.escape(ending)}: can't be written: no space left"):
        write()


class _Full(Outputs):
    """Hands out the device that is always full."""

    def open(self, target: str) -> int:
        del target
        return os.open("/dev/full", os.O_WRONLY)
