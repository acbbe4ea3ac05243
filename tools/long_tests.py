"""Lower the numbers of tests/long.txt to what a run of the tests took.

    python3 tools/long_tests.py RESULTS.xml    of `.venv/bin/python -m pytest -n 2 -m "not slow" --junitxml=RESULTS.xml`

`make test` gives each test function 0.6 seconds: of one that has more to do it runs the first cases, at least one. One
whose cases take more than 2.6 seconds each waits for `make test-all`, but for those in ALWAYS. `make check` runs none
that is in the table. To have more of a function's cases run, raise its number, or delete its line.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests/long.txt"
FOR_EACH = 0.6  # seconds of a function
LONGEST = 2.6  # seconds of a case
ALWAYS = {  # what nothing quicker stands for
    "hostile/test_rights.py::test_the_front_has_no_rights_and_the_worker_keeps_them",
    "inside/test_probes.py::test_kernel_uprobes_come_and_go_at_the_same_sites",
    "inside/test_probes.py::test_sites_at_all_offsets_of_a_cache_line_are_switched_under_threads_signals_and_forks",
    "inside/test_rules.py::test_rules_do_what_the_list_of_all_of_them_says_and_never_run_out",
    "inside/test_trace_inside.py::test_hits_come_with_their_arguments_and_the_program_s_exit_code",
    "inside/test_trace_inside.py::test_what_is_evaluated_in_the_program_is_exact_over_threads_children_and_signals",
    "machine_facts/test_one_home.py::test_no_other_file_has_code",
    "machine_facts/test_one_home.py::test_no_other_file_names_a_machine",
    "machine_facts/test_one_home.py::test_no_other_file_spells_the_trap_of_x86",
    "projects/samples/cmake-system-ninja/test_life.py::test_life_of_a_sample",
    "test_house.py::test_arrows_run_down",
    "test_house.py::test_what_runs_uses_no_name_that_only_type_checkers_know",
    "test_options.py::test_nothing_else_lists_them",
    "test_pages.py::test_commands_on_pages_have_options_that_exist",
    "tracing/test_arguments.py::test_arguments_are_what_gdb_says",
    "tracing/test_attaching.py::test_nothing_is_missed",
    "tracing/test_borrowed.py::test_killed_before_each_step",
    "tracing/test_bpftrace.py::test_filters_say_the_same_in_the_kernel",
    "tracing/test_bpftrace.py::test_pairs_are_those_of_other_engines",
    "tracing/test_endings.py::test_children_of_killed_processes_live_on",
    "tracing/test_engines.py::test_traced_eight_times_it_has_no_more_mapped_than_after_the_first_two",
    "tracing/test_last.py::test_what_is_read_while_threads_write_is_whole",
    "tracing/test_lossless.py::test_no_hit_is_lost_at_full_speed",
    "tracing/test_meanwhile.py::test_it_goes_on",
    "tracing/test_predicates.py::test_sums_are_exact_over_threads_and_forked_processes_of_which_one_is_killed",
    "tracing/test_programs.py::test_tracer_killed_at_any_moment",
    "tracing/test_stress.py::test_returns_toggled_all_the_while",
    "tracing/test_stress.py::test_toggled_all_the_while",
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
