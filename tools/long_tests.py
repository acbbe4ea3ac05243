"""Lower the numbers of tests/long.txt to what a run of the tests took.

    python3 tools/long_tests.py RESULTS.xml    of `.venv/bin/python -m pytest -n 2 -m "not slow" --junitxml=RESULTS.xml`

`make test` gives each test function 1.2 seconds: of one that has more to do it runs the first cases, at least one. One
whose cases take more than 6 seconds each waits for `make test-all`, but for those in ALWAYS. `make check` runs none
that is in the table. To have more of a function's cases run, raise its number, or delete its line.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests/long.txt"
FOR_EACH = 1.2  # seconds of a function
LONGEST = 6.0  # seconds of a case
ALWAYS = {  # what nothing quicker stands for
    "inside/test_trace_inside.py::test_hits_come_with_their_arguments_and_the_program_s_exit_code",
    "projects/samples/cmake-system-ninja/test_life.py::test_life_of_a_sample",
    "test_house.py::test_arrows_run_down",
    "test_house.py::test_what_runs_uses_no_name_that_only_type_checkers_know",
    "test_options.py::test_nothing_else_lists_them",
    "tracing/test_bpftrace.py::test_filters_say_the_same_in_the_kernel",
    "tracing/test_borrowed.py::test_killed_before_each_step",
    "tracing/test_endings.py::test_children_of_killed_processes_live_on",
    "tracing/test_meanwhile.py::test_it_goes_on",
    "tracing/test_tools.py::test_no_child_keeps_a_breakpoint_of_gdb",
}


def main(results: str) -> None:
    """Write the table anew."""
    lines = TABLE.read_text().splitlines()
    quick = {name: int(cases) for cases, name in (line.split() for line in lines if line[0] != "#")}
    times = defaultdict[str, list[float]](list)
    for case in ElementTree.parse(results).iter("testcase"):
        file = case.attrib["classname"].removeprefix("tests.").replace(".", "/") + ".py"
        if (TABLE.parent / file).exists():
            times[f"{file}::{case.attrib['name'].partition('[')[0]}"].append(float(case.attrib["time"]))
    for name, taken in times.items():
        mean = sum(taken) / len(taken)
        cases = max(int(FOR_EACH / mean) if mean else len(taken), int(mean <= LONGEST))
        if cases < len(taken) or mean > FOR_EACH:
            quick[name] = max(cases, int(name in ALWAYS))
    rows = [f"{quick[name]} {name}" for name in sorted(quick, key=lambda name: name.split("::"))]
    TABLE.write_text("\n".join([*(line for line in lines if line[0] == "#"), *rows]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
