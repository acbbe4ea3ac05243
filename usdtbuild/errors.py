"""What can go wrong, as exceptions whose text is the sentence a user reads.

Every error a user's input can cause derives from `UsdtError`; the command line prints it as one line and exits
with its `exit_code`. Anything else that escapes is a bug of ours. Rooms define their own subclasses where a test
or a caller must tell them apart; this module holds the base and the ones that several rooms raise.

Exit codes (documented in docs/exit-codes.md): 0 success, 1 the input is wrong or a check found an error, 2 the
command line is wrong.
"""

from __future__ import annotations


class UsdtError(Exception):
    """An error in what the user gave us: what was wrong, where, and what to do about it."""

    exit_code = 1

    @property
    def told(self) -> str:
        """What standard error says."""
        return f"usdtbuild: {self}"


class InputError(UsdtError):
    """A file can't be read, or isn't what the command takes. `where` is the file, with an offset where one is known."""

    def __init__(self, where: str, what: str, cure: str = "") -> None:
        from .text import one_line

        self.where, self.what, self.cure = where, what, cure
        super().__init__(f"{one_line(where)}: {what}" + (f"; {cure}" if cure else ""))


class Told:
    """For `with`: what the system refuses there is an InputError about `where`: `what` can't be done, and why."""

    def __init__(self, where: object, what: str = "", cure: str = "") -> None:
        self._where, self._what, self._cure = where, what, cure

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            start = f"{self._what}: " if self._what else ""
            raise InputError(str(self._where), start + reason(error), self._cure) from None


def reason(error: OSError) -> str:
    """Return what the system says is wrong."""
    return (error.strerror or str(error)).lower()


class UsageError(UsdtError):
    """The command line contradicts itself."""

    exit_code = 2
