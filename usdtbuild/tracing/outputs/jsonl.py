"""One JSON object a hit and line, written as hits come: for jq, pandas, and programs of one's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO

from ...text import one_line
from ..model import Event, Target
from ..stacks import frame_json
from . import Hits
from .values import arguments_of, files_of

_SHORT = (",", ":")


class JsonLines(Hits):
    """Writes `{"time": ns, "pid": n, "tid": n, "probe": "provider:probe", "args": {...}}`.

    Behind the probe is `"module": path` where several files have one of this name. With call stacks also
    `"stack": [...]`, the innermost call first. An argument that couldn't be had is left out; for values see
    `plain_value`, and schemas/trace-hit.json.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._heads: list[str] = []

    def start(self, targets: Sequence[Target]) -> None:
        """Learn the targets."""
        super().start(targets)
        self._heads = [
            json.dumps(name) + (f',"module":{json.dumps(one_line(one.module.path))}' if file else "")
            for name, one, file in zip(self._titles, targets, files_of(targets))
        ]

    def events(self, events: Sequence[Event]) -> None:
        """Write them."""
        self._stream.writelines(map(self._line, events))

    def _line(self, event: Event) -> str:
        number = event.target
        shown = arguments_of(self._names[number], self._targets[number], event)
        head = f'"time":{event.time},"pid":{event.pid},"tid":{event.tid},"probe":{self._heads[number]}'
        calls = json.dumps([frame_json(one) for one in event.stack], separators=_SHORT)
        stack = f',"stack":{calls}' if event.stack else ""
        return f'{{{head},"args":{json.dumps(shown, separators=_SHORT)}{stack}}}\n'
