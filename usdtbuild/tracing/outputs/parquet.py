"""A table with one row a hit as Parquet, for DuckDB, pandas, Polars and Spark; by pyarrow.

Columns are typed: integers are exact, strings are text, NULL is null. What a column can't hold is in the column
`special`, as an object of JSON by argument, written as in .jsonl: a string that could not be read, that may be longer,
or is no UTF-8. Rows go to temporary files as hits come, since the columns are known at the end.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

from ..model import FLOAT, MISSING, STRING, Event, Report, Target
from . import Hits
from .extras import imported
from .values import column_kind, plain_value

_BATCH = 1 << 10  # rows that are written to a temporary file together, however hits come
_GROUP = 1 << 16  # rows of a row group
_LARGE = 64 << 20  # bytes in memory, of which a row group has fewer rows
_OWN = ("time", "pid", "tid", "probe", "special")


class Parquet(Hits):
    """Writes the table at the end."""

    def __init__(self, stream: IO[bytes]) -> None:
        """Raises UsageError without pyarrow."""
        self._stream = stream
        self._arrow = imported("pyarrow", "parquet", "-o NAME.parquet")
        self._parquet = imported("pyarrow.parquet", "parquet", "-o NAME.parquet")
        self._ipc = imported("pyarrow.ipc", "parquet", "-o NAME.parquet")
        self._columns: dict[tuple[str, str], str] = {}  # (argument's name, class of its type) -> column's name
        self._types: dict[str, Any] = {}
        self._parts: list[tuple[IO[bytes], Any]] = []
        self._waiting: list[Event] = []

    def start(self, targets: Sequence[Target]) -> None:
        """Learn the targets, and which columns there are."""
        known = len(self._targets)
        self._end_part()
        super().start(targets)
        for number in range(known, len(targets)):
            for name, argument in zip(self._names[number], targets[number].arguments):
                kind = column_kind(argument)
                if (name, kind) not in self._columns:
                    free = name if name not in (*_OWN, *self._types) else f"{name}.{kind}"
                    self._columns[name, kind] = free
                    self._types[free] = {"string": self._arrow.string(), "float": self._arrow.float64(),
                                         "unsigned": self._arrow.uint64()}.get(kind, self._arrow.int64())  # fmt: skip
        file = tempfile.TemporaryFile(prefix="usdtbuild-")  # noqa: SIM115
        self._parts.append((file, self._ipc.new_stream(file, self._schema())))

    def _schema(self) -> Any:
        arrow = self._arrow
        own = [("time", arrow.int64()), ("pid", arrow.int64()), ("tid", arrow.int64()),
               ("probe", arrow.string()), *self._types.items(), ("special", arrow.string())]  # fmt: skip
        return arrow.schema(own)

    def events(self, events: Sequence[Event]) -> None:
        """Write them to a temporary file."""
        self._waiting += events
        while len(self._waiting) >= _BATCH:
            self._write(self._waiting[:_BATCH])
            del self._waiting[:_BATCH]

    def _write(self, events: Sequence[Event]) -> None:
        if events:
            self._parts[-1][1].write_batch(
                self._arrow.RecordBatch.from_pylist(list(map(self._row, events)), self._schema())
            )

    def _end_part(self) -> None:
        self._write(self._waiting)
        self._waiting = []

    def _row(self, event: Event) -> dict[str, Any]:
        row: dict[str, Any] = {"time": event.time, "pid": event.pid, "tid": event.tid,
                               "probe": self._titles[event.target]}  # fmt: skip
        special: dict[str, Any] = {}
        arguments = self._targets[event.target].arguments
        for name, argument, value in zip(self._names[event.target], arguments, event.values):
            column = self._columns[name, column_kind(argument)]
            if value is MISSING:
                special[name] = {"missing": True}
            elif argument.kind == FLOAT:
                row[column] = float(value) if isinstance(value, (int, float)) else None
            elif argument.kind != STRING:
                row[column] = value
            elif isinstance(shown := plain_value(argument, value), dict):
                special[name] = shown
                row[column] = shown.get("text")
            else:
                row[column] = shown
        return {**row, "special": json.dumps(special)} if special else row

    def finish(self, report: Report) -> None:
        """Write the rows, each with all columns."""
        self._end_part()
        schema = self._schema()
        with self._parquet.ParquetWriter(self._stream, schema, compression="zstd") as writer:
            for group in self._groups(schema):
                writer.write_table(group)
        self.close()

    def _groups(self, schema: Any) -> Iterator[Any]:
        waiting: list[Any] = []
        rows = size = 0
        for batch in self._batches():
            waiting.append(self._with_all(self._arrow.Table.from_batches([batch]), schema))
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= _GROUP or size >= _LARGE:
                yield self._arrow.concat_tables(waiting).combine_chunks()
                waiting, rows, size = [], 0, 0
        if waiting:
            yield self._arrow.concat_tables(waiting).combine_chunks()

    def _batches(self) -> Iterator[Any]:
        for file, part in self._parts:
            part.close()
            file.seek(0)
            yield from self._ipc.open_stream(file)

    def _with_all(self, table: Any, schema: Any) -> Any:
        empty = self._arrow.nulls
        columns = [table[field.name] if field.name in table.schema.names else empty(len(table), field.type)
                   for field in schema]  # fmt: skip
        return self._arrow.Table.from_arrays(columns, schema=schema)

    def close(self) -> None:
        """Let go of the temporary files."""
        for file, _ in self._parts:
            file.close()
        self._parts = []
