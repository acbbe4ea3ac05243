"""Sites that can't be switched now, or at all: a reason instead of a crash."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("native")


def test_a_breakpoint_is_left_alone_and_the_site_taken_when_it_is_gone(build: Any, run: Any) -> None:
    out = run(build("guarded.c"), "breakpoint").stdout
    assert out.splitlines() == [
        "on 0", "taken on=0 count=0",
        "on 1", "free on=1 count=1",
        "off 1",
        "on 1", "free on=1 count=2",
    ]  # fmt: skip


def test_where_memory_may_not_become_code_it_is_code_from_the_start(build: Any, run: Any) -> None:
    out = run(build("guarded.c"), "mdwe").stdout
    if out == "no such thing\n":
        pytest.skip("this kernel knows no PR_SET_MDWE")
    assert out.splitlines() == ["on 1", "free on=1 count=0", "2", "free on=1 count=1"]


@pytest.mark.parametrize("reason", ["no-execute", "read-only"])
def test_what_a_system_allows_in_no_way_is_refused(reason: str, build: Any, run: Any) -> None:
    """Neither new code, nor a way to write what is there: the program goes on, and is told why."""
    out = run(build("guarded.c"), reason).stdout
    if out == "no such thing\n":
        pytest.skip("this kernel knows no PR_SET_MDWE")
    assert out.splitlines() == ["on 0", f"{reason} on=0 count=0", "2"]


def test_without_free_memory_in_reach_a_site_is_refused(build: Any, run: Any) -> None:
    assert run(build("guarded.c"), "full").stdout.splitlines() == ["on 0", "no-memory on=0 count=0", "2"]
