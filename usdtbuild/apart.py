"""How files of others are read: by a child without rights, for whom its parent opens them, and does nothing else.

The child asks by name. The parent opens what the command line names, and binaries in the same folders (members of thin
archives, debug files, libraries); anything else the child opens with its own rights, or not at all. Where a mapped file
is cut short only the child gets SIGBUS, and the parent says so.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import pickle
import resource
import select
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import ending
from .errors import InputError, UsdtError, reason
from .files import MAPPED_FROM, SHARED, Opened, descriptor_for, refuse_pipe_of_others
from .limits import ANSWER, ANSWER_MEMORY, FOLDERS
from .rights import User, can_be_given_up, give_up, least, nobody, with_way_out
from .text import shown

# How ELF files and archives begin. The ELF header of 32-bit files has 52 bytes, and an archive with a member has more.
_BINARIES, _SMALLEST = (b"\x7fELF", b"!<arch>\n", b"!<thin>\n"), 4
_GONE = os.strerror(errno.ENOENT).lower()
_LONGEST, _PATH = 1 << 16, 1 << 12  # bytes of an answer, of a path
_CHILD = "the process that reads files"
# For how many seconds in all others may stop the child while we run, and how often it is looked at while it says
# nothing. Ctrl-Z stops us, too: if more than _OURS seconds have gone, we were stopped ourselves.
_PATIENCE, _TICK, _OURS = 5.0, 1.0, 2.0
# What a process says that has too little of something.
_TOO_LITTLE = (errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class _Here:
    """Opens files with the rights of this process. All methods raise InputError."""

    def named(self, path: str) -> int:
        """Return a descriptor of a file or a pipe; -1 for a folder."""

        def wanted(status: os.stat_result) -> bool:
            refuse_pipe_of_others(status, path)
            if stat.S_IFMT(status.st_mode) not in (stat.S_IFREG, stat.S_IFIFO, stat.S_IFDIR):
                raise InputError(path, "is neither a file nor a folder")
            return not stat.S_ISDIR(status.st_mode)

        with _errors_told(path):
            return descriptor_for(path, wanted)

    def binary(self, path: str) -> int:
        """Return a descriptor of an ELF file or an archive; -1 for anything else."""
        with _errors_told(path):
            # Files of /proc have no size: none of them is opened, some of which would block or act.
            descriptor = descriptor_for(path, lambda it: stat.S_ISREG(it.st_mode) and it.st_size >= _SMALLEST)
            if descriptor >= 0 and not os.pread(descriptor, 8, 0).startswith(_BINARIES):
                os.close(descriptor)
                return -1
            return descriptor

    def walk(self, folder: str) -> Iterator[tuple[str, int] | InputError]:
        """Yield the path and a descriptor of each binary below a folder, sorted, and what can't be read.

        Links to folders are not followed, and a file with several names comes once.
        """
        seen: set[tuple[int, int]] = set()
        troubles: list[OSError] = []
        for parent, folders, names in os.walk(folder, onerror=troubles.append):
            folders.sort()
            if folders and parent.count("/") - folder.count("/") >= FOLDERS:
                yield InputError(parent, f"what is below more than {FOLDERS} folders is left out")
                folders.clear()
            for path in (str(Path(parent, name)) for name in sorted(names)):
                try:
                    descriptor = self.binary(path)
                except InputError as error:
                    if error.what != _GONE:  # a dangling link, or it went away meanwhile
                        yield error
                    continue
                if descriptor >= 0:
                    status = os.fstat(descriptor)
                    if (status.st_dev, status.st_ino) in seen:
                        os.close(descriptor)
                        continue
                    seen.add((status.st_dev, status.st_ino))
                    yield path, descriptor
            yield from (_told(str(error.filename), error) for error in troubles)
            troubles.clear()
        yield from (_told(str(error.filename), error) for error in troubles)


class _Asking(_Here):
    """Asks the parent first. A question is a letter and a path; an answer is a path and maybe a descriptor, or four
    texts of an error."""

    def __init__(self, parent: socket.socket, lowered: bool) -> None:
        """`lowered`: the parent is root, and this process isn't, or will not be."""
        self._parent, self._lowered = parent, lowered

    def named(self, path: str) -> int:
        return self._ask("n", path)[1]

    def binary(self, path: str) -> int:
        try:
            descriptor = self._ask("b", path)[1]
            if descriptor >= 0:
                return descriptor
        except InputError as error:
            if error.what == _GONE:  # in a folder that only the parent may look into, perhaps
                raise
        try:
            return super().binary(path)
        except InputError as error:
            raise (with_way_out(error) if self._lowered else error) from None

    def walk(self, folder: str) -> Iterator[tuple[str, int] | InputError]:
        question = "w"
        while True:
            try:
                path, descriptor = self._ask(question, folder)
                if descriptor < 0:
                    return
                yield path, descriptor
            except InputError as error:
                yield error
            question = "x"

    def _ask(self, question: str, path: str) -> tuple[str, int]:
        words = os.fsencode(path)
        if len(words) > _PATH or b"\0" in words:
            raise InputError(path, "is no path")
        try:
            self._parent.send(os.fsencode(question) + words)
            answer, descriptors, _, _ = socket.recv_fds(self._parent, _LONGEST, 1)
        except OSError as error:
            raise _told(path, error) from None
        texts = os.fsdecode(answer).split("\0")
        if len(texts) > 1:
            raise InputError(*texts[1:])
        return texts[0], descriptors[0] if descriptors else -1


_way: list[_Here] = [_Here()]  # the last one is used


def open_named(path: str) -> Opened | None:
    """Open a file or pipe that the command line names, for use in a `with`; None: it is a folder. Raises InputError."""
    return _opened(path, _way[-1].named(path))


def is_folder(path: str) -> bool:
    """Tell whether what the command line names is a folder. Raises InputError."""
    descriptor = _way[-1].named(path)
    _close(descriptor)
    return descriptor < 0


def open_binary(path: str) -> Opened | None:
    """Open an ELF file or archive of which another tells, for use in a `with`; None: it is none. Raises InputError."""
    return _opened(path, _way[-1].binary(path))


def binaries(folder: str, trouble: Callable[[InputError], None]) -> Iterator[tuple[str, Opened]]:
    """Yield the paths of the ELF files and archives below a folder, sorted; each is open, for use in a `with`.
    Raises InputError if the folder can't be read."""
    for found in _way[-1].walk(folder):
        try:
            opened = None if isinstance(found, InputError) else _opened(*found)
        except InputError as error:
            trouble(error)
            continue
        if isinstance(found, InputError):
            if found.where == folder:
                raise found
            trouble(found)
        elif opened is not None:
            yield found[0], opened


def _opened(path: str, descriptor: int) -> Opened | None:
    if descriptor < 0:
        return None
    try:
        with _errors_told(path):
            return Opened(descriptor, path)
    except InputError:
        os.close(descriptor)
        raise


@contextlib.contextmanager
def _errors_told(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _told(path, error) from None
    except ValueError:
        raise InputError(path, "is no path") from None


def _told(path: str, error: OSError) -> InputError:
    return InputError(path, reason(error))


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


# -- the parent --------------------------------------------------------------------------------------------------------


class _Parent:
    """Opens for a child what it may read: what is `named`, and binaries below the `folders`."""

    def __init__(self, named: Sequence[str], folders: Sequence[str]) -> None:
        self._named, self._way = frozenset(named), _Here()
        self._folders = tuple(f"{os.path.realpath(folder)}/".replace("//", "/") for folder in folders)
        self._walks: dict[str, Iterator[tuple[str, int] | InputError]] = {}
        self.mapped: list[tuple[str, int, int]] = []  # large files: path, descriptor, size

    def serve(self, child: socket.socket, heard: _Heard) -> None:
        """Answer until the child asks no more. Raises InputError."""
        child.settimeout(_TICK)  # who asks and never listens isn't waited for
        while question := heard.next(child.fileno(), child.recv):
            kind, path = question[:1], os.fsdecode(question[1:])
            try:
                found, descriptor = self._open(kind, path)
            except InputError as error:
                texts = (os.fsencode(text.replace("\0", " ")) for text in ("", error.where, error.what, error.cure))
                with contextlib.suppress(OSError):
                    child.send(b"\0".join(texts)[:_LONGEST])
                continue
            size = os.fstat(descriptor).st_size if descriptor >= 0 else 0  # before it is read, and may be cut short
            with contextlib.suppress(OSError):  # the child has ended
                socket.send_fds(child, [os.fsencode(found)], [descriptor] if descriptor >= 0 else [])
            if size >= MAPPED_FROM:
                self.mapped.append((found, descriptor, size))
            else:
                _close(descriptor)

    def _open(self, kind: bytes, path: str) -> tuple[str, int]:
        if kind == b"b":
            return path, self._binary(path)
        if path not in self._named:
            raise InputError(path, "is not for the process that reads files")
        if kind == b"n":
            return path, self._way.named(path)
        if kind == b"w":
            self._walks[path] = self._way.walk(path)
        found = next(self._walks[path], (path, -1))
        if isinstance(found, InputError):
            raise found
        return found

    def _binary(self, path: str) -> int:
        descriptor = self._way.binary(path)
        if descriptor < 0 or os.readlink(f"{SHARED}{descriptor}").startswith(self._folders):  # noqa: PTH115
            return descriptor
        os.close(descriptor)
        return -1

    def cut_short(self) -> str:
        """Return the file that is shorter now than when it was opened, '' if there is none."""
        return next((path for path, descriptor, size in self.mapped if os.fstat(descriptor).st_size < size), "")


def _start(body: Callable[[socket.socket], int], lowered: bool) -> tuple[int, socket.socket]:
    """Run `body` in a child; return its number, and the socket on which it asks."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    code = 1
    try:
        ours.close()
        _way.append(_Asking(theirs, lowered))
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a process may have a thousand libraries
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = body(theirs)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class _Heard:
    """What a child says. It may be kept from running by others' signals for `_PATIENCE` seconds in all."""

    def __init__(self, pid: int) -> None:
        self._pid, self._stopped = pid, 0.0

    def next(self, descriptor: int, take: Callable[[int], bytes]) -> bytes:
        """Return what it says next, nothing if it has closed its end. Raises InputError."""
        poll, said = select.poll(), False
        poll.register(descriptor, select.POLLIN)
        while not said:
            since = time.monotonic()
            said = bool(poll.poll(_TICK * 1000))
            took = time.monotonic() - since
            if self._was_stopped() and took < _OURS:
                self._stopped += took
            if self._stopped >= _PATIENCE:
                os.kill(self._pid, signal.SIGKILL)
                raise InputError(_CHILD, "is kept from running by a signal (SIGSTOP)")
        return take(_LONGEST)

    def _was_stopped(self) -> bool:
        """Whether it is stopped, or has been continued since this was last asked."""
        try:
            is_stopped = os.waitid(os.P_PID, self._pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
            return bool(os.waitid(os.P_PID, self._pid, os.WCONTINUED | os.WNOHANG) or is_stopped)
        except ChildProcessError:
            return False


def _ended(pid: int) -> int:
    """Return the status of a child that says nothing more. If it is kept from its end, it is killed."""
    spent = 0.0
    while spent < _PATIENCE:
        since = time.monotonic()
        if (found := os.waitpid(pid, os.WNOHANG))[0]:
            return found[1]
        time.sleep(0.001)
        spent += min(time.monotonic() - since, _TICK)  # more if we were stopped, too
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def reader(user: str) -> User | None:
    """Return whose rights suffice to read files, as `rights.least` does. Raises UsageError.

    At a terminal root hears if that is nobody else.
    """

    def tell(why: str) -> None:
        if sys.stderr.isatty():
            cure = "install Python and usdtbuild below /usr or /opt, or name a user with --user NAME"
            sys.stderr.write(shown(f"usdtbuild: warning: files are read with root's rights, because {why}; {cure}\n"))

    return least(user, tell)


def look(
    user: str, named: Sequence[str], run: Callable[[], int | None], folders: Sequence[str] = (),
    mapped: Sequence[tuple[str, int]] = (),
) -> int:  # fmt: skip
    """Run a command that reads files in a child; return its exit code. Raises UsdtError.

    `named` are the files and folders that it is about, `user` is who is named to read them, `folders` is where else
    there are binaries. `mapped` are files that are open already.
    """
    whose = reader(user)
    beside = [path if os.path.isdir(path) else os.path.dirname(os.path.realpath(path)) for path in named]  # noqa: PTH112, PTH120
    parent = _Parent(named, (*beside, *folders))
    parent.mapped += [(path, descriptor, os.fstat(descriptor).st_size) for path, descriptor in mapped]

    def command() -> int:
        try:
            give_up(whose, alone=True)
            return run() or 0
        except UsdtError as error:
            wrong = error
        except (MemoryError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in _TOO_LITTLE:
                raise
            wrong = _too_little(error)
        sys.stderr.write(shown(f"{wrong.told}\n"))
        return wrong.exit_code

    sys.stdout.flush()
    pid, asked = _start(lambda _: ending.ended(command, "usdtbuild"), whose is not None)
    try:
        parent.serve(asked, _Heard(pid))
    except BaseException:
        os.kill(pid, signal.SIGTERM)
        raise
    finally:
        status = _ended(pid)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGBUS and (path := parent.cut_short()):
        raise InputError(path, "was cut short while it was read", "try again when nobody changes it")
    if code < 0 or code == ending.INTERRUPTED:  # what somebody sends us, too, has ended us
        number = -code if code < 0 else signal.SIGINT
        raise InputError(_CHILD, f"was ended by signal {number} ({signal.strsignal(number)})")
    return code


# -- records -----------------------------------------------------------------------------------------------------------


class _Records(pickle.Unpickler):
    """Reads records of ours and what Python has built in, and makes nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if module.startswith("usdtbuild.") and "." not in name else None
        if not (isinstance(found, type) and issubclass(found, tuple)):
            raise pickle.UnpicklingError(f"{module}.{name} is no record")
        return found


def _unpacked(said: bytearray) -> tuple[str, Any]:
    """Return the records of an answer. What would take more memory than it may raises MemoryError."""
    limit = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    most = pages * resource.getpagesize() + ANSWER_MEMORY
    soft = min(most, *(one for one in limit if one != resource.RLIM_INFINITY), most)
    resource.setrlimit(resource.RLIMIT_AS, (soft, limit[1]))
    try:
        found: tuple[str, Any] = _Records(io.BytesIO(said)).load()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)
    return found


def apart(
    user: User | None, read: Callable[[Callable[[], None] | None], Any], limit: tuple[int, int] | None = None
) -> Any:
    """Return what `read` returns: records. It runs in a child, whose rights end when it calls what it is given.

    So it opens files with our rights, and reads them without. Where there are none to give up, nor a `limit` in seconds
    of CPU time and bytes of memory, it runs here. Raises what `read` raises of InputError and OSError.
    """
    whose = user or nobody()
    if limit is None and not can_be_given_up(whose):
        return read(None)
    source, sink = os.pipe()

    def answer(asking: socket.socket) -> int:
        if limit is None:
            gc.disable()  # it ends before there is much garbage
        else:
            gc.enable()  # what memory there is must do
            _limit(*limit)
        said = _answer(lambda: read(lambda: give_up(whose, alone=True)))
        asking.close()
        with contextlib.suppress(OSError, MemoryError), open(sink, "wb") as file:  # noqa: PTH123 - a descriptor
            pickle.dump(said, file, pickle.HIGHEST_PROTOCOL)  # of which the parent may have had enough
        return 0

    pid, asked = _start(answer, whose is not None)
    os.close(sink)
    said, heard = bytearray(), _Heard(pid)
    try:
        with asked, open(source, "rb", 0) as file:  # noqa: PTH123
            _Parent((), ("/",) if user is None else ()).serve(asked, heard)
            while len(said) <= ANSWER and (piece := heard.next(source, file.read)):
                said += piece
    except BaseException:  # such as the front's end: nobody waits for what it reads
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        _ended(pid)
    try:
        if len(said) > ANSWER:
            raise pickle.UnpicklingError
        kind, value = _unpacked(said)
    except Exception:  # whatever a damaged answer makes of it
        raise InputError(_CHILD, "has ended, or gave an answer that can't be used") from None
    if kind == "input":
        raise InputError(*value)
    if kind == "system":
        raise OSError(*value)
    return value


def _limit(seconds: int, memory: int) -> None:
    """Let this process take no more CPU time, and no more memory of its own than it has and so much."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[5])
    for kind, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_DATA, pages * resource.getpagesize() + memory)):
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)  # noqa: PLW2901
        resource.setrlimit(kind, (most, most))


def _answer(read: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "value", read()
    except InputError as error:
        return "input", (error.where, error.what, error.cure)
    except OSError as error:
        return "system", (error.errno, error.strerror, error.filename)
    except MemoryError as error:
        told = _too_little(error)
        return "input", (told.where, told.what, told.cure)


def _too_little(error: MemoryError | OSError) -> InputError:
    what = "cannot allocate memory" if isinstance(error, MemoryError) else reason(error)
    return InputError(_CHILD, what, "it may have a limit (ulimit -a)")
