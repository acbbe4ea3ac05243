"""docs/architectures.md speaks of every machine that there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from usdtbuild import machines

PAGE = Path(__file__).resolve().parent.parent.parent / "docs/architectures.md"


def test_every_supported_machine_has_a_row(kinds: Any, machine: Any) -> None:
    text = PAGE.read_text()
    table = text[text.index("<!-- The table") : text.index("<!-- End of the table")]
    rows = {line.split("|")[1].strip().lower() for line in table.splitlines() if line.startswith("| ")}
    for name in {machine(kind).name for kind in kinds}:
        assert any(re.match(rf"{re.escape(name)}\b", row) for row in rows), name
    assert {(kind.number, kind.is64) for kind in kinds.values()} | {(18, False)} == set(machines._MODULES)
