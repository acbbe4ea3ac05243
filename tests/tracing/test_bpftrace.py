"""What bpftrace evaluates in the kernel: the same answers, tables and pairs as the tracer has, and nothing lost.

One corpus of expressions, measures and values runs through bpftrace itself and through `filters` and `measures`; and
the tables of the command are those of the other engines, byte by byte.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.formats.operands import parse_one
from usdtbuild.machines.numbers import EM_X86_64
from usdtbuild.tracing.filters import Filter
from usdtbuild.tracing.job import Job
from usdtbuild.tracing.measures import Table
from usdtbuild.tracing.model import COUNT, RECORD, Site, Target
from usdtbuild.tracing.others.bpftrace import Kernel, Watcher
from usdtbuild.tracing.others.program import Program, expressions
from usdtbuild.tracing.plan import Plan
from usdtbuild.tracing.predicates import NotHereError
from usdtbuild.tracing.selection import Wanted

from .conftest import built_with_probes
from .paired import MOST
from .test_predicates import EDGES, MEASURES, reference, target_of

TRACE = (sys.executable, "-m", "usdtbuild", "trace")
NAMES = "abcdefgh"
TYPES = ("int8_t", "uint8_t", "int16_t", "uint16_t", "int32_t", "uint32_t", "int64_t", "uint64_t")
# Which of the types the arguments of the two probes have: six have names in bpftrace's language.
PROBES = {"one": (0, 1, 2, 3, 4, 5), "two": (6, 7, 6, 7, 4)}

SOURCE = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "odd.h"
static const struct { int8_t a; uint8_t b; int16_t c; uint16_t d; int32_t e; uint32_t f; int64_t g; uint64_t h; }
    rows[] = { ROWS };
static void nest(int depth, int id)
{
    ODD_OUTER_START(id);
    if (depth > 0) {
        nest(depth - 1, id + 1);
    }
    ODD_OUTER_DONE(depth % 2);
}
int main(int count, char **words)
{
    long low = 0, rounds = atol(words[1]);
    for (long n = 0; n < rounds; n++) {
        for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            ODD_ONE(rows[i].a, rows[i].b, rows[i].c, rows[i].d, rows[i].e, rows[i].f);
            ODD_TWO(rows[i].g, rows[i].h, rows[(i + 1) % 40].g, rows[(i + 1) % 40].h, rows[i].e);
            low += rows[i].e < 2048;
        }
        ODD_OUTER_DONE(0);
        nest(n % 70, (int)n % 3);
    }
    if (rounds == 7) ODD_OUTER_START(1);
    for (int i = 0; count > 2 && i < atoi(words[2]); i++) ODD_MANY(i, "text");
    printf("%ld\n", low);
    return 0;
}
"""


def _rows() -> list[list[int]]:
    made = random.Random(5)
    found = []
    for _ in range(40):
        bits = [made.choice((*EDGES, made.getrandbits(64))) for _ in TYPES]
        found.append([_of_type(one, size) for size, one in enumerate(bits)])
    return found


def _of_type(bits: int, index: int) -> int:
    size = 8 << index // 2
    bits &= (1 << size) - 1
    return bits - (1 << size) if not index % 2 and bits >> size - 1 else bits


ROWS = _rows()
HITS = {"one": [row[:6] for row in ROWS],
        "two": [[*row[6:], *ROWS[(index + 1) % 40][6:], row[4]] for index, row in enumerate(ROWS)]}  # fmt: skip


@pytest.fixture(scope="module")
def odd(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program: `odd ROUNDS [KEYS]` prints how many of its hits of odd:one have e < 2048."""
    folder = tmp_path_factory.mktemp("odd")
    folder.chmod(0o755)
    probes = []
    for name, types in PROBES.items():
        probes.append(f"probe {name}({', '.join(f'{TYPES[one]} {NAMES[place]}' for place, one in enumerate(types))});")
    probes += ["probe outer__start(int id); probe outer__done(int status); probe many(int key, char *text);"]
    (folder / "odd.d").write_text(f"provider odd {{ {' '.join(probes)} }};\n")
    shown = ",".join("{" + ",".join(f"(int64_t){one & (1 << 64) - 1:#x}" for one in row) + "}" for row in ROWS)
    (folder / "odd.c").write_text(SOURCE.replace("ROWS", shown))
    module = sys.executable, "-m", "usdtbuild"
    run(*module, "header", "odd.d", "-o", "odd.h", cwd=folder)
    run(*module, "cc", "--", "gcc", "-O1", "-w", "-c", "odd.c", cwd=folder)
    run("gcc", "odd.o", "-o", "odd", cwd=folder)
    return folder / "odd"


def _target(name: str) -> Target:
    texts = [f"{'-' * (one % 2 == 0)}{1 << one // 2}@%rax" for one in PROBES[name]]
    operands = tuple(parse_one(one, EM_X86_64) for one in texts)
    return target_of(operands)._replace(name=name, sites=(Site(0, 0, operands),))


def _kernel(plans: Sequence[Plan], name: str, odd: Path, folder: Path) -> list[dict[str, dict[str, int]]]:
    """Return what maps hold after a round, of a program in bpftrace's language for each plan."""
    lines = []
    for number, plan in enumerate(plans):
        text = Program(plan, plan.targets).text([f"usdt:{odd}:odd:{name}"], "", "").rpartition("\n")[0]
        lines.append(re.sub(r"@([a-z])0?(?=[\[,)])", rf"@\1_{number}", text))
    (folder / "script").write_text("\n".join(lines))
    words = ["bpftrace", "-f", "json", "-B", "none", str(folder / "script"), "-c", f"{odd} 1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, dict[str, int]]] = [{} for _ in plans]
    for line in done.stdout.splitlines():
        if line.startswith('{"type": "map"'):
            for key, values in json.loads(line)["data"].items():
                letter, number = key.split("_")
                found[int(number)][letter + "0" * (letter != "@c")] = {one: int(value) for one, value in values.items()}
    return found


class Everybody:
    """All processes."""

    def __contains__(self, pid: object) -> bool:
        return True


def _filters(name: str) -> list[str]:
    made = random.Random(name)
    names = NAMES[: len(PROBES[name])]

    def comparison() -> str:
        sign = made.choice(("==", "!=", "<", "<=", ">", ">="))
        number = made.choice(made.choice(HITS[name])) + made.randrange(-1, 2)
        right = made.choice((*map(str, (number,) * 4), made.choice(names), "0.5", "1e30", "-1e300", "NULL"))
        return f"{made.choice(names)} {sign if right != 'NULL' else '!='} {right}"

    def expression(depth: int) -> str:
        if depth < 3 and made.random() < 0.5:
            word = made.choice(("and", "or", "not"))
            parts = [expression(depth + 1) for _ in range(1 if word == "not" else 2)]
            return f"not ({parts[0]})" if word == "not" else f"({f') {word} ('.join(parts)})"
        return comparison()

    return [expression(0) for _ in range(60)]


@pytest.mark.live
@pytest.mark.parametrize("name", PROBES)
def test_filters_say_the_same_in_the_kernel(name: str, odd: Path, bpftrace: str, tmp_path: Path) -> None:
    target, plans = _target(name), []
    for text in _filters(name):
        plan = Plan(COUNT, (target,), where=Filter(text))
        try:
            Program(plan, (target,))
        except NotHereError:
            continue
        plans.append(plan)
    assert len(plans) > 40
    counts = []
    for plan, maps in zip(plans, _kernel(plans, name, odd, tmp_path)):
        assert plan.where is not None
        test = plan.where.compile(target)
        expected = sum(map(test, HITS[name]))
        assert Program(plan, (target,)).hits(maps, Everybody()).get(0, 0) == expected, plan.where.text
        counts.append(expected)
    assert sum(map(bool, counts)) > 20


@pytest.mark.live
@pytest.mark.parametrize("name", PROBES)
def test_hits_add_up_to_the_same_in_the_kernel(name: str, odd: Path, bpftrace: str, tmp_path: Path) -> None:
    """By numbers of each size and sign: a and b of `measures` are two of the arguments."""
    base, plans = _target(name), []
    for measure in MEASURES:
        for first, second in ((0, 1), (1, 0), (3, 2), (2, 4)):
            arguments = list(base.arguments)
            shown = {first: "a", second: "b"}
            for place, one in enumerate(arguments):
                arguments[place] = one._replace(name=shown.get(place, f"other{place}"))
            target = base._replace(arguments=tuple(arguments))
            plan = Plan(COUNT, (target,), measures=(measure,), where=Filter(f"arg{first} != 1"))
            try:
                Program(plan, (target,))
            except NotHereError:
                continue
            if "thread" not in measure.by:
                plans.append(plan)
    assert len(plans) > 20
    for plan, maps in zip(plans, _kernel(plans, name, odd, tmp_path)):
        (target,), (measure,), where = plan.targets, plan.measures, plan.where
        assert where is not None
        places = [[one.name for one in target.arguments].index(one) for one in "ab"]
        hits = [[row[place] for place in places] for row in HITS[name] if where.compile(target)(row)]
        found: Table = Program(plan, (target,)).tables(maps, Everybody())[0, measure]
        assert found == reference(measure, hits), (measure, where.text)


OPTIONS = {
    "filter": "--count -P odd:one --filter 'e < 2048 and (b != 0 or c > -5)'",
    "by": "--by b,thread -P odd:one",
    "by_probe": "--by probe,e -P odd:one -P odd:two",
    "sum": "--sum b --by e -P odd:*",
    "sum_of_signed": "--sum a -P odd:two -P odd:one",
    "histogram": "--histogram b -P odd:two --by e",
    "steps": "--histogram e,1000 -P odd:one",
    "string": "--count -P odd:many --filter 'text == \"text\" and key > 3'",
}


def _same(text: str) -> str:
    """Return what was printed without what differs from run to run: numbers of threads and times."""
    return re.sub(r"\b[0-9.]+ [mnu]?s\b|, [0-9]{2,7}$", "", text, flags=re.MULTILINE)


def _shown(run: Any, odd: Path, engine: str, options: str) -> str:
    words = [one.strip("'") for one in re.findall(r"'[^']*'|\S+", options)]
    return _same(run(*TRACE, "--engine", engine, *words, "--", odd, 2, 9).stdout)


@pytest.fixture(scope="module")
def expected(odd: Path, run: Any) -> dict[str, str]:
    """What the engine patch shows with each of the options."""
    return {name: _shown(run, odd, "patch", options) for name, options in OPTIONS.items()}


@pytest.mark.live
@pytest.mark.parametrize("engine", ["bpftrace", "trap", "gdb"])
def test_tables_are_those_of_other_engines(
    engine: str, odd: Path, expected: dict[str, str], run: Any, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue({"bpftrace": "bpftrace", "gdb": "gdb", "trap": "tmp_path"}[engine])
    assert {name: _shown(run, odd, engine, options) for name, options in OPTIONS.items()} == expected
    assert all(len(shown.splitlines()) > 1 for shown in expected.values())


@pytest.mark.live
@pytest.mark.parametrize("engine", ["bpftrace", "trap"])
@pytest.mark.parametrize("options", ["", "--by id", "--by status", "--filter id>1", "--filter status==1"])
def test_pairs_are_those_of_other_engines(engine: str, options: str, odd: Path, run: Any, bpftrace: str) -> None:
    """Nested ones, deeper than a stack is, too; ends without a begin, and begins without an end."""
    found: list[tuple[list[tuple[str, int]], list[str]]] = []
    for one in ("patch", engine):
        words = [*TRACE, "--engine", one, "--json", "--latency", "odd:outer__start", "odd:outer__done"]
        rounds = 7 if engine == "trap" else 70
        done = run(*words, *options.split(), "--", odd, rounds)
        rows = json.loads(done.stdout.splitlines()[-1])["rows"]
        plain = run(*[word for word in words if word != "--json"], *options.split(), "--", odd, rounds).stdout
        unpaired = re.findall(r"^not paired: .*$", plain, re.MULTILINE)
        found.append((sorted((row.get("key") or "", row["pairs"]) for row in rows), unpaired))
    assert found[0] == found[1]
    assert found[0][0]
    assert MOST == 64


@pytest.mark.live
def test_a_filter_in_the_kernel_loses_nothing(odd: Path, run: Any, bpftrace: str) -> None:
    done = run(
        *TRACE,
        "--engine",
        "bpftrace",
        "--count",
        "-P",
        "odd:one",
        "--filter",
        "e < 2048 and time < 1h",
        "--",
        odd,
        20_000,
    )
    low, count = re.findall(r"^ *([0-9]+)(?:  odd:one)?$", done.stdout, re.MULTILINE)
    assert low == count
    assert int(low) > 250_000
    assert "lost" not in done.stdout + done.stderr


@pytest.mark.live
def test_hits_of_others_take_no_room(odd: Path, run: Any, bpftrace: str, tmp_path: Path) -> None:
    """Of the same file, by a process that isn't traced, many more than bpftrace can print."""
    file = tmp_path / "hits.jsonl"
    words = [*TRACE, "--engine", "bpftrace", "--buffer", "1", "-P", "odd:many", "-o", file, "--", odd, 1, 100]
    with subprocess.Popen([odd, "1", "2000000000"], stdout=subprocess.DEVNULL) as other:
        try:
            done = run(*words)
        finally:
            other.kill()
    assert [json.loads(line)["args"]["key"] for line in file.read_text().splitlines()] == list(range(100))
    assert "lost" not in done.stderr


class Silent(Watcher):
    """A bpftrace that has printed two of five hits, and doesn't say that it has lost any."""

    def __init__(self) -> None:
        plan = Plan(RECORD, (_target("one"),))
        self.targets, self.program, self.separator, self.dropped = plan.targets, Program(plan, plan.targets), "|", 0
        self.expressions = [expressions(one) for one in plan.targets]
        self.maps, self.longest, self._what, self._heard = {"@c": {"0,7": 5, "0,8": 9}}, 8, plan.what, {}
        self.hits = [f"h 0 {when} 7 7 1 2 3 4 5 6" for when in (10, 30)]

    def drain(self, until: int) -> None: ...
    def close(self) -> None: ...


def test_hits_that_bpftrace_lost_in_silence_are_told() -> None:
    """A hit after the end of the trace is counted by the kernel, too."""
    kernel = Kernel(Job(Wanted()), (7,), (7,))
    kernel._watchers.append(Silent())
    assert [one.time for one in kernel.finish(20)] == [10]
    assert kernel.totals().lost == {0: 3}


def test_warnings_are_no_reason_of_an_end(tmp_path: Path) -> None:
    """Of 0.27, with the line of the program that they are about."""
    watcher = object.__new__(Watcher)
    watcher._errors = tmp_path / "errors"
    where = "/x/script:2:18-23: WARNING: Addrspace mismatch\nusdt:/f:odd:many /curtask->ptrace/ {\n     ~~~~\n"
    watcher._errors.write_text(f"WARNING: a\n{where}ERROR: b\n")
    assert watcher._said() == "ERROR: b"


@pytest.mark.live
def test_a_full_map_is_told(odd: Path, run: Any, bpftrace: str) -> None:
    """Hits whose key found no room are counted, and what they add up to isn't invented."""
    words = [*TRACE, "--engine", "bpftrace", "-P", "odd:many", "--by", "key", "--sum", "key"]
    shown = run(*words, "--", odd, 1, 20_000).stdout
    assert "16384 values in 20000 hits" in shown
    assert re.search(r"^ +3616 +\? .*in values that came when the table was full", shown, re.MULTILINE), shown
    (line,) = (json.loads(one) for one in run(*words, "--json", "--", odd, 1, 20_000).stdout.splitlines()[-1:])
    assert [row for row in line["rows"] if row["key"] is None] == [
        {"table": "odd:many key", "by": "key", "key": None, "hits": 3616}
    ]
    words[words.index("--sum")] = "--histogram"
    assert re.search(r"^ +3616( +\?){6}  in values", run(*words, "--", odd, 1, 20_000).stdout, re.MULTILINE)


@pytest.mark.live
def test_intervals_are_read_from_maps(odd: Path, run: Any, bpftrace: str) -> None:
    words = [*TRACE, "--engine", "bpftrace", "--every", "200ms", "--json", "--count", "--by", "b", "-P", "odd:one"]
    lines = [json.loads(one) for one in run(*words, "--", odd, 20_000).stdout.splitlines() if one.startswith("{")]
    *parts, total = lines
    assert sum(one["counts"].get("odd:one", 0) for one in parts) == total["counts"]["odd:one"] == 800_000
    assert sum(row["hits"] for one in parts for row in one["rows"]) == sum(row["hits"] for row in total["rows"])


@pytest.mark.live
@pytest.mark.usefixtures("bpftrace")
def test_a_filter_of_what_bpftrace_can_not_read_is_refused(run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    """None of the hits passed, and the count was called exact."""
    arguments = ", ".join(f"int {name}" for name in NAMES)
    hit = f"WIDE_GO({', '.join(f'i + {at}' for at in range(8))})"
    program = (
        '#include <stdlib.h>\n#include "wide.h"\nint main(int count, char **words)\n{\n'
        f"    for (int i = 0; i < atol(words[1]); i++) {hit};\n    return count > 9;\n}}\n"
    )
    made = built_with_probes(run, tmp_path, "wide", f"provider wide {{ probe go({arguments}); }};\n", program)
    words = ("trace", "--engine", "bpftrace", "-P", "wide:go", "--count", "-o", tmp_path / "c.json")
    done = usdtbuild(*words, "--filter", "a > 1 or h > 3", "--", made, 9)
    assert "wide:go: bpftrace can't read h, which --filter asks for" in done.stderr
    assert '"exact": false' in (tmp_path / "c.json").read_text()
    usdtbuild(*words, "--filter", "a > 1", "--", made, 9)
    assert '"hits": 7' in (tmp_path / "c.json").read_text()
