"""What the tables of a trace say, for programs: a JSON document, an object a line, or CSV (docs/json.md)."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Sequence
from typing import IO, Any

from ...text import one_line
from ..model import Report
from . import COUNTS, Several, Table
from .rows import Row
from .values import cell, title

_COLUMNS = "probe", "kind", "module", "hits", "exact", "lost"


def summed_up(tables: Sequence[Table], report: Report) -> dict[str, Any]:
    """Return the rows of tables, and what is in none of them."""
    found: dict[str, Any] = {}
    rows: list[Row] = [row for one in tables if one.needs != COUNTS for row in one.rows(report)]
    if rows:
        found["rows"] = [row.as_json() for row in rows]
    if odd := {name: count for one in tables for name, count in one.odd().items()}:
        found["not_finite"] = odd
    unpaired: Counter[str] = Counter()
    for one in tables:
        unpaired.update(one.unpaired())
    return {**found, "unpaired": dict(unpaired)} if unpaired else found


class SummaryFile(Several):
    """Writes a row for each target, and those of the tables."""

    def __init__(self, stream: IO[str], ending: str, tables: Sequence[Table] = ()) -> None:
        super().__init__(tables)
        self._stream, self._ending = stream, ending

    def finish(self, report: Report) -> None:
        """Write it: all targets, in their order, then all rows."""
        unseen, damaged = report.unseen, report.is_damaged
        counts: list[dict[str, Any]] = [
            {
                "probe": title(target), "kind": target.kind, "module": one_line(target.module.path), "hits": count,
                "exact": report.is_exact(target.number) and target.title not in unseen and not damaged,
                "lost": report.lost[target.number],
            }
            for count, target in zip(report.counts, report.targets)
        ]  # fmt: skip
        more = summed_up(self._tables, report)
        if self._ending == ".json":
            json.dump({"version": 1, "counts": counts, **more}, self._stream, indent=1)
            self._stream.write("\n")
            return
        rows = [*counts, *more.get("rows", ())]
        if self._ending == ".jsonl":
            self._stream.writelines(json.dumps(row) + "\n" for row in rows)
            return
        table = csv.writer(self._stream, lineterminator="\n")
        columns = tuple(dict.fromkeys((*_COLUMNS, *(name for row in rows for name in row))))
        table.writerow(columns)
        table.writerows([_cell(row[name]) if name in row else "" for name in columns] for row in rows)


def _cell(value: Any) -> str:
    if value is None:
        return "\\N"
    return cell(value) if isinstance(value, str) else str(value).lower()
