"""Several output files that appear together: all of them complete, or none and everything as it was.

Commands that write one file have `files.write_whole` and `files.write_edited`. Here each file is written under another
name first, and takes its place only when all are there. Nothing here knows what is in a file.
"""

# `os` and not `pathlib`, as in `files`.
# ruff: noqa: PTH105, PTH106, PTH108, PTH110, PTH119, PTH120, PTH123

from __future__ import annotations

import os

from .ending import hear, unhear
from .errors import InputError, Told, UsageError
from .files import (
    SHARED,
    Destination,
    find_destination,
    give_name,
    keep_owner,
    open_new,
    temporary_beside,
    write_through,
)
from .record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from types import TracebackType
else:
    import _signal  # as in `launch.step`

_ENDING = (_signal.SIGHUP, _signal.SIGINT, _signal.SIGTERM)


class _Staged(NamedTuple):
    """An output: where it goes, and the file that it is written to meanwhile."""

    destination: Destination
    path: str


class Outputs:
    """Files to be written, for use in a `with`: at its end they appear, and where it is left by an error none does."""

    def __init__(self) -> None:
        self._staged: dict[str, _Staged] = {}
        self._folders: dict[str, str] = {}  # as they were named -> real path, with a slash at its end
        self._nameless: list[tuple[int, str]] = []  # descriptors of files without a name, and the names they will have
        self._made: list[str] = []  # folders that weren't there
        self._folder = ""  # private, for what can't be staged beside its destination
        self.is_dropped = False  # whether all files shall be as they were before, whatever is written

    def __enter__(self) -> Outputs:
        return self

    def stage(self, target: str, *, source: str = "") -> str:
        """Return the path to write to for the output `target`. Where nothing is written there, `target` stays.

        The new file gets the owner and the permission bits of the one that it replaces. Raises InputError, and
        UsageError where `target` is the input `source`.
        """
        destination = find_destination(target)
        if source and destination.there and os.path.exists(source) and os.path.samefile(source, target):  # noqa: PTH121
            raise UsageError(f"{target} is the input itself, which is never modified; write to another file")
        key = self._key(destination.path)
        if key not in self._staged:
            path = temporary_beside(destination.path) if destination.beside else self._elsewhere(destination.path)
            self._staged[key] = _Staged(destination, path)
        return self._staged[key].path

    def open(self, target: str) -> int:
        """Return a descriptor to write to for the output `target`, which may take long.

        Its file has no name until the end, where the file system can do that, so nothing is left if we are killed.
        Raises InputError.
        """
        path = self.stage(target)
        with Told(target, "can't be written"):
            descriptor, is_nameless = open_new(path, 0o666)
            if is_nameless:
                self._nameless.append((os.dup(descriptor), path))
        return descriptor

    def folder(self, target: str, *, deep: bool = False) -> None:
        """Let there be a folder `target`, for files that are opened in it; `deep`: and those above. Raises InputError.

        It is made where a file of this name would be: links of others lead to nothing but what is theirs.
        """
        target = target.rstrip("/") or "/"
        above = os.path.dirname(target)
        if deep and above and not os.path.isdir(above):  # noqa: PTH112
            self.folder(above, deep=True)
        try:
            if not os.path.isdir(target):  # noqa: PTH112
                place = find_destination(target).path
                os.mkdir(place)  # noqa: PTH102
                self._made.append(place)
        except FileExistsError:
            if not os.path.isdir(target):  # noqa: PTH112
                raise InputError(target, "can't be written: a folder is to be there, and it is none") from None
        except (OSError, ValueError) as error:
            reason = str(getattr(error, "strerror", error)).lower()
            raise InputError(target, f"can't be written: {reason}") from None

    def _key(self, path: str) -> str:
        """Return the real path of what is no link itself; folders are looked up once."""
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            real = os.path.realpath(folder or ("/" if path[:1] == "/" else "."))
            self._folders[folder] = os.path.join(real, "")  # noqa: PTH118 - with a slash at its end
        return self._folders[folder] + name

    def staged(self, path: str) -> str:
        """Return where the content is that `path` will have: its staged file if there is one, else itself."""
        found = self._staged.get(os.path.realpath(path))
        return found.path if found and os.path.exists(found.path) else path

    def _elsewhere(self, path: str) -> str:
        if not self._folder:
            from tempfile import mkdtemp

            self._folder = mkdtemp(prefix="usdtbuild-")
        return f"{self._folder}/{len(self._staged)}-{os.path.basename(path)[-80:]}"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        wanted = kind is None and not self.is_dropped
        try:
            if isinstance(error, InputError):
                for each in self._staged.values():
                    if error.where == each.path:  # of which the user knows nothing
                        raise InputError(each.destination.named, error.what, error.cure) from None
            while self._nameless:
                _give_name(*self._nameless.pop(), wanted=wanted)
            if wanted:
                self._commit([each for each in self._staged.values() if _is_written(each)])
                if not self._folder:
                    self._staged.clear()  # each has been renamed
        finally:
            for each in self._staged.values():
                _remove(each.path)
            for folder in [*([self._folder] if self._folder else []), *([] if wanted else reversed(self._made))]:
                _remove_folder(folder)

    def _commit(self, written: list[_Staged]) -> None:
        """Put everything in its place. Raises InputError, with everything back where it was.

        What goes through a pipe or to a device can't be taken back, and so goes first; it may wait for who reads it,
        and signals end that. While the others are renamed signals wait.
        """
        through = [each for each in written if not each.destination.beside]
        handlers = hear() if through else []
        try:
            for each in through:
                with open(each.path, "rb") as file:
                    write_through(each.destination, file.read())
        finally:
            unhear(handlers)
        before = _signal.pthread_sigmask(_signal.SIG_BLOCK, _ENDING)
        try:
            _replace_all([each for each in written if each.destination.beside])
        finally:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, before)


def _is_written(each: _Staged) -> bool:
    """Tell whether anything was written to a staged file. Raises InputError where that can't be told any more."""
    try:
        os.lstat(each.path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise each.destination.failed(error) from None
    return True


def _give_name(descriptor: int, path: str, *, wanted: bool) -> None:
    """Give a file a name, if that is still wanted, and close it. Raises InputError."""
    try:
        with Told(path, "can't be written"):
            if wanted:
                give_name(descriptor, path)
    finally:
        os.close(descriptor)


def _replace_all(written: list[_Staged]) -> None:
    """Rename every staged file to its destination; if one can't be, take those before it back."""
    done: list[tuple[str, str | None]] = []  # destination, and the name that its old file has meanwhile
    try:
        for each in written:
            target = each.destination.path
            try:
                _keep_owner(each)
                old = _second_name(target) if len(written) > 1 else None
                os.replace(each.path, target)
            except OSError as error:
                raise each.destination.failed(error) from None
            done.append((target, old))
    except BaseException:
        for target, old in reversed(done):
            _take_back(target, old)
        raise
    for _, old in done:
        if old:
            os.unlink(old)


def _keep_owner(each: _Staged) -> None:
    """Give a staged file the owner and the bits of the one that it replaces.

    It is opened without following links: others may be able to put one in its place. Raises OSError.
    """
    descriptor = os.open(each.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if each.path.startswith(SHARED) and (status.st_uid != os.geteuid() or status.st_nlink != 1):
            raise OSError(1, "somebody else has replaced it while it was written")  # and would have it given to him
        keep_owner(descriptor, each.destination.path, status.st_mode)
    finally:
        os.close(descriptor)


def _second_name(path: str) -> str | None:
    """Give a file another name; return that, "" if there is no such file, None if it can't have one."""
    if not os.access(path, os.F_OK):  # a quarter of what `link` costs, which would say so too
        return ""
    name = temporary_beside(path)
    try:
        os.link(path, name)
    except FileNotFoundError:
        return ""
    except OSError:  # a filesystem without links
        return None
    return name


def _take_back(target: str, old: str | None) -> None:
    if old == "":
        _remove(target)
        return
    try:
        if old:
            os.replace(old, target)
    except OSError:
        return


def _remove_folder(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:  # it isn't empty
        return


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
