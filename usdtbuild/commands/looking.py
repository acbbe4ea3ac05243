"""How commands look at what their command line names: processes are opened here, and files for a child (`apart`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import apart
from ..errors import InputError
from ..inspection.targets import Process, process_number


class Processes(dict[str, "Process | InputError"]):
    """The processes among the targets, open; of those that can't be opened the reason."""

    def __init__(self, targets: Sequence[str]) -> None:
        super().__init__()
        for target in targets:
            pid = process_number(target)
            try:
                if pid is not None:
                    self[target] = Process(pid)
            except InputError as error:
                self[target] = error

    def of(self, target: str) -> Process | None:
        """Return the process that a target means; None: it is a path. Raises InputError."""
        found = self.get(target)
        if isinstance(found, InputError):
            raise found
        return found


def look(user: str, targets: Sequence[str], run: Callable[[Processes], int | None], *folders: str) -> int:
    """Run what looks at the targets, in a child without rights; `folders` hold other binaries. Raises UsdtError."""
    processes = Processes(targets)
    opened = [found for found in processes.values() if isinstance(found, Process)]
    mapped = [(file.path, descriptor) for process in opened for file, descriptor in process.files]
    paths = [target for target in targets if target not in processes]
    return apart.look(user, paths, lambda: run(processes), folders, mapped)
