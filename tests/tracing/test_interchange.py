"""Files for other programs (CTF, pprof, Parquet), each read by one of those, and held against the lines of JSON."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.outputs import Outputs
from usdtbuild.tracing.model import FLOAT, INTEGER, MISSING, POINTER, STRING, Argument, Cut, Event, Unreadable
from usdtbuild.tracing.outputs.choose import Wishes, choose

from .recorded import EVENTS, REPORT, TARGETS, WILD, target

ROOT = Path(__file__).resolve().parents[2]
# What has every kind of argument, names that mean something to a format, and values at their limits.
ODD = target(
    0, 'no "such\\name', Argument("time", "char *", 8, False, STRING), Argument("struct", "long", 8, True, INTEGER),
    Argument("struct", "unsigned long", 8, False, INTEGER), Argument("a b", "short", 2, True, INTEGER),
    Argument("where", "void *", 8, False, POINTER), Argument("ratio", "double", 8, False, FLOAT),
    Argument("byte", "unsigned char", 1, False, INTEGER),
)  # fmt: skip
ODDITIES = (
    (b"text", -(1 << 63), (1 << 64) - 1, -(1 << 15), 0xFFFF_FFFF_FFFF_FFFF, 0.1, 255),
    (b"", (1 << 63) - 1, (1 << 53) + 1, 7, 0, float("inf"), 0),
    (None, 0, 0, 0, 0x7F00, -0.5, 1),
    (Cut(b"long"), 0, 0, 0, 0, -0.0, 1),
    (Unreadable(16), 0, 0, 0, 0, 0.0, 1),
    (b"\xff\x00\n", MISSING, 0, 0, 0, 0.0, 1),
)
ODD_EVENTS = tuple(Event(10**9 + i, 10, 11, 0, values) for i, values in enumerate(ODDITIES))


def write(folder: Path, *endings: str, events: Any = EVENTS, targets: Any = TARGETS) -> list[Path]:
    """Write a recorded trace to files."""
    paths = [folder / f"t{ending}" for ending in endings]
    report = REPORT._replace(targets=tuple(targets), counts=(1,) * len(targets), lost=(1,) + (0,) * (len(targets) - 1))
    with Outputs() as files, choose(Wishes(files=tuple(map(str, paths))), files, io.StringIO()) as output:
        output.start(targets[: len(targets) // 2] or targets)
        output.start(targets)
        for event in events:
            output.events([event])
        output.finish(report)
    return paths


# -- CTF ---------------------------------------------------------------------------------------------------------------


def babeltrace(need: Any, run: Any, path: Path) -> list[tuple[int, str, dict[str, str]]]:
    """Return what it shows: time, name, and the text of each field."""
    words = (need("babeltrace2"), "--clock-gmt", "--no-delta", "--clock-seconds", path)
    found = []
    for line in run(*words, env={**os.environ, "LC_ALL": "C"}).stdout.splitlines():
        taken = re.fullmatch(r"\[(\d+)\.(\d{9})\] (.*): \{ (vpid = .*?) \}, \{ (.*?) ?\}", line)
        assert taken, line
        fields = {name: text for each in (taken[4], taken[5])
                  for name, text in re.findall(r'(\w+) = (\( [^)]*\)|"(?:[^"\\]|\\.)*"|[^, ]+)', each)}  # fmt: skip
        found.append((int(taken[1] + taken[2]), taken[3], fields))
    return found


def test_babeltrace_reads_names_types_and_times(need: Any, run: Any, tmp_path: Path) -> None:
    path, lines = write(tmp_path, ".ctf", ".jsonl")
    seen = babeltrace(need, run, path)
    hits = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(time - REPORT.wall_offset, name, int(has["vpid"]), int(has["vtid"])) for time, name, has in seen] == [
        (hit["time"], hit["probe"], hit["pid"], hit["tid"]) for hit in hits
    ]
    assert [has["id"] for _, _, has in seen if "id" in has] == [
        str(hit["args"]["id"]) for hit in hits if "id" in hit["args"]
    ]
    assert seen[1][2]["arg0"] == str(1 << 60)
    assert seen[5][2]["where"] == "0x7F00"
    assert seen[5][2]["path_is"] == '( "NULL" : container = 1 )'
    assert seen[11][2]["missing"] == "4"


def test_babeltrace_reads_what_is_odd(need: Any, run: Any, tmp_path: Path) -> None:
    (path,) = write(tmp_path, ".ctf", events=ODD_EVENTS, targets=[ODD])
    seen = [fields for _, name, fields in babeltrace(need, run, path) if name == 'server:no "such\\name']
    states = [re.findall(r'"(\w+)"', has["time_is"])[0] for has in seen]
    assert states == ["whole", "whole", "NULL", "cut", "unreadable", "bytes"]
    assert [has["time"] for has in seen[:5]] == ['"text"', '""', '""', '"long"', '"0x10"']
    assert seen[5]["time"] == '"ff000a"'  # a NUL would end it
    assert seen[0]["struct"] == str(-(1 << 63))
    assert seen[0]["arg2"] == str((1 << 64) - 1)
    assert [has["ratio"] for has in seen[:2]] == ["0.1", "inf"]
    assert (seen[0]["byte"], seen[0]["where"]) == ("255", "0xFFFFFFFFFFFFFFFF")
    assert seen[5]["missing"] == "2"


def test_lost_hits_are_told(need: Any, run: Any, tmp_path: Path) -> None:
    (path,) = write(tmp_path, ".ctf")
    done = run(need("babeltrace2"), path)
    assert "WARNING: Tracer discarded" in done.stderr


def test_a_big_trace_has_many_packets(need: Any, run: Any, tmp_path: Path) -> None:
    events = [Event(10**9 + i, 10, 10, 4, (i, i / 4, b"x" * 40)) for i in range(5000)]
    (path,) = write(tmp_path, ".ctf", events=events)
    seen = babeltrace(need, run, path)
    assert [int(has["where"], 16) for _, _, has in seen] == list(range(5000))


def test_a_folder_is_there_whole_or_not_at_all(usdtbuild: Any, tmp_path: Path) -> None:
    (tmp_path / "file.ctf").write_text("mine")
    done = usdtbuild("trace", "-o", "file.ctf", "--", "true", code=1, cwd=tmp_path)
    assert done.stderr.endswith("file.ctf: can't be written: a folder is to be there, and it is none\n")
    usdtbuild(
        "trace", "-o", "new.ctf", "-P", "a:b", "--filter", "x == 1", "--", "/no/such/program", code=1, cwd=tmp_path
    )
    assert [one.name for one in tmp_path.iterdir()] == ["file.ctf"]
    for _ in range(2):  # the second trace takes the place of the first
        usdtbuild("trace", "-o", "new.ctf", "-q", "--", "true", cwd=tmp_path)
        assert sorted(one.name for one in (tmp_path / "new.ctf").iterdir()) == ["metadata", "stream"]


@pytest.mark.parametrize("files", [{"notes": "mine"}, {"stream": "mine"}, {"metadata": "/* CTF 1.8 */", "stream": "x"}])
def test_files_of_others_in_the_folder_stay_alone(usdtbuild: Any, tmp_path: Path, files: dict[str, str]) -> None:
    folder = tmp_path / "x.ctf"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    done = usdtbuild("trace", "-o", "x.ctf", "--", "touch", "begun", code=1, cwd=tmp_path)
    said = f"x.ctf: can't be written: the folder has files of others ({next(iter(files))})"
    assert done.stderr.splitlines()[-1].startswith(f"usdtbuild: {said}")
    assert {one.name: one.read_text() for one in folder.iterdir()} == files
    assert [one.name for one in tmp_path.iterdir()] == ["x.ctf"]


# -- pprof -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_pprof_reads_the_same_stacks(need: Any, run: Any, tmp_path: Path) -> None:
    profile, folded = write(tmp_path, ".pb.gz", ".folded")
    environment = {**os.environ, "HOME": str(tmp_path)}
    raw = run(need("go"), "tool", "pprof", "-raw", profile, env=environment).stdout
    names = {int(number): name for number, name in re.findall(r"^ +(\d+): 0x0 (?:M=\d+ )?(.*) :0 s=0", raw, re.M)}
    samples = re.findall(r"^ +(\d+): ([\d ]+?) *$", raw[: raw.index("Locations")], re.M)
    stacks = {";".join(names[int(one)] for one in reversed(where.split())): int(own) for own, where in samples}
    expected = dict(line.rsplit(" ", 1) for line in folded.read_text().splitlines())
    assert stacks == {name: int(own) for name, own in expected.items()}
    assert "time/nanoseconds" in raw


# -- Parquet -----------------------------------------------------------------------------------------------------------


READ = """
import duckdb, json, sys
rows = duckdb.sql("select * from read_parquet('t.parquet')")
names = [one[0] for one in rows.description]
print(json.dumps([dict(zip(names, row)) for row in rows.fetchall()]))
"""


def with_library(folder: Path, run: Any, script: str, *words: str) -> Any:
    """Run a script that has the heavy libraries that `make test-all` fetches, and this package."""
    library = ROOT / ".cache/parquet"
    if not library.is_dir():
        pytest.skip("make prepare-all fetches pyarrow and duckdb")
    path = os.pathsep.join((str(ROOT), str(library)))
    return run(sys.executable, "-c", script, *words, cwd=folder, env={**os.environ, "PYTHONPATH": path}).stdout


@pytest.mark.slow
def test_duckdb_reads_what_the_lines_of_json_say(run: Any, tmp_path: Path) -> None:
    with_library(tmp_path, run, "from pathlib import Path; from tests.tracing.test_interchange import *;"
                                " write(Path('.'), '.parquet', '.jsonl')")  # fmt: skip
    rows = json.loads(with_library(tmp_path, run, READ))
    hits = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    for row, hit in zip(rows, hits, strict=True):
        assert {name: row[name] for name in ("time", "pid", "tid", "probe")} == {
            name: hit[name] for name in hit if name != "args"
        }
        special = json.loads(row["special"] or "{}")
        for name, value in hit["args"].items():
            plain: dict[str, Any] = {"integer": int, "pointer": lambda text: int(text, 16), "float": float}
            if isinstance(value, dict) and (kind := next(iter(value))) in plain:
                assert repr(row[name]) == repr(plain[kind](value[kind]))
            elif isinstance(value, dict):
                assert special[name] == value
            else:
                assert row[name] == value
    assert rows[11]["special"] == '{"path": {"missing": true}}'
    assert {"bytes": WILD.hex()} == json.loads(rows[3]["special"])["path"]


@pytest.mark.slow
def test_duckdb_reads_what_is_odd(run: Any, tmp_path: Path) -> None:
    with_library(tmp_path, run, "from pathlib import Path; from tests.tracing.test_interchange import *;"
                                " write(Path('.'), '.parquet', events=ODD_EVENTS, targets=[ODD])")  # fmt: skip
    rows = json.loads(with_library(tmp_path, run, READ))
    assert [row["time.string"] for row in rows] == ["text", "", None, "long", None, None]
    specials = [json.loads(row["special"]) if row["special"] else {} for row in rows]
    assert specials == [{}, {}, {}, {"time": {"text": "long", "cut": True}}, {"time": {"unreadable": "0x10"}},
                        {"time": {"bytes": "ff000a"}, "struct": {"missing": True}}]  # fmt: skip
    assert (rows[0]["struct"], rows[0]["arg2"], rows[1]["arg2"]) == (-(1 << 63), (1 << 64) - 1, (1 << 53) + 1)
    assert (rows[0]["time"], rows[1]["ratio"]) == (10**9, float("inf"))
    assert [repr(row["ratio"]) for row in rows[3:]] == ["-0.0", "0.0", "0.0"]


GROUPS = """
import json, sys
from pyarrow import parquet
from tests.tracing.test_interchange import *

events = [Event(10**9 + i, 10, 10, 4, (i, i / 4, b"x" * int(sys.argv[1]))) for i in range(150_000)]
shown = []
for size in (4096, 1777):  # in which they come
    with Outputs() as files, choose(Wishes(files=("t.parquet",)), files, io.StringIO()) as output:
        output.start(TARGETS)
        for at in range(0, len(events), size):
            output.events(events[at : at + size])
        output.finish(REPORT)
    file = parquet.ParquetFile("t.parquet")
    assert file.read(["time"])["time"].to_pylist() == [one.time for one in events]
    shown.append([file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)])
assert shown[0] == shown[1]
print(json.dumps(shown[0]))
"""


@pytest.mark.slow
def test_rows_are_in_large_groups(run: Any, tmp_path: Path) -> None:
    assert json.loads(with_library(tmp_path, run, GROUPS, "3")) == [1 << 16, 1 << 16, 18928]
    assert max(json.loads(with_library(tmp_path, run, GROUPS, "2000"))) < 1 << 16  # which would take much memory


def test_without_pyarrow_its_extra_is_named(run: Any, tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError(name='pyarrow')")
    words = "import sys; sys.path.insert(0, sys.argv.pop()); from usdtbuild.__main__ import main; sys.exit(main())"
    done = run(sys.executable, "-c", words, "trace", "-o", tmp_path / "x.parquet", "-p", "1", tmp_path, code=2)
    assert done.stderr.endswith("pip install 'usdtbuild[parquet]'\n")
    assert not list(tmp_path.glob("x*"))
