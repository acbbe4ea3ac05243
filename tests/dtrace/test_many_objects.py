"""-G over as many objects as PostgreSQL's backend hands over, of each kind that projects compile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .conftest import SITES

OBJECTS = 733
BY_CALL = "-DUSDT_PROBES_BY_CALL"


@pytest.mark.parametrize("flags", [[], [BY_CALL], [BY_CALL, "-flto", "-ffat-lto-objects"]])
def test_many_objects(flags: list[str], app: Path, dtrace: Any, notes: Any, run: Any) -> None:
    run("gcc", "-O2", "-g", *flags, "-c", "main.c", cwd=app)
    content = (app / "main.o").read_bytes()
    names = [f"o{number}.o" for number in range(OBJECTS)]
    for name in names:
        (app / name).write_bytes(content)
    dtrace("-G", "-s", "app.d", *names, "-o", "app.o", cwd=app)
    assert all((app / name).read_bytes() == content for name in names)
    run("gcc", *flags, "o0.o", "app.o", "-o", "prog", cwd=app)
    assert {note.what[:2] for note in notes(app / "prog")} == {site[:2] for site in SITES}
