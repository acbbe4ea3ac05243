"""Calls that are watched and let go all the while, under running threads: no result changes, no argument is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="calls are patched on x86-64")
SOURCE = Path(__file__).with_name("stress.c")
FORMS = {
    "lazy": ("-fPIE", "-pie", "-Wl,-z,lazy"), "ibt": ("-fcf-protection=full", "-Wl,-z,ibtplt", "-Wl,-z,lazy"),
    "no-plt": ("-fno-plt", "-fPIE", "-pie"), "exe": ("-fno-pie", "-no-pie", "-Wl,-z,now"),
}  # fmt: skip


@pytest.fixture(scope="session")
def stress(tmp_path_factory: pytest.TempPathFactory, run: Any, need: Any) -> Any:
    """Build the program in one of the forms: `stress("lazy", "gcc")`."""
    made: dict[tuple[str, str], Path] = {}

    def build(form: str, cc: str) -> Path:
        if (form, cc) not in made:
            folder = tmp_path_factory.mktemp("stress")
            run(need(cc), "-O2", "-DLIBRARY", "-shared", "-fPIC", SOURCE, "-o", "libwork.so", cwd=folder)
            words = [cc, "-O2", *FORMS[form], SOURCE, "libwork.so", "-Wl,-rpath,$ORIGIN", "-pthread"]
            run(*words, "-o", "stress", cwd=folder)
            made[form, cc] = folder / "stress"
        return made[form, cc]

    return build


@pytest.mark.parametrize(
    ("form", "what"),
    [("lazy", "count"), ("ibt", "record"), ("no-plt", "count"), ("no-plt", "record"), ("exe", "count")],
)
def test_watched_and_let_go_all_the_while(stress: Any, hammered: Callable[..., int], form: str, what: str) -> None:
    hammered(stress(form, "gcc"), "calls", what, 25, threads=2)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["count", "record"])
@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_watched_and_let_go_for_long(stress: Any, hammered: Callable[..., int], what: str, cc: str) -> None:
    for form in FORMS:
        passes = 0
        while passes < 3 * 10**7:
            passes += hammered(stress(form, cc), "calls", what, 500, threads=4)
