"""Input files and output files: reading or mapping what is given, and writing all of an output or none of it.

Nothing here knows what is in a file. `posix`, which is built into the interpreter, and neither `os` nor `pathlib`:
every object with probes comes through here, and importing these costs more than the work.
"""

from __future__ import annotations

import posix
from time import monotonic, sleep

from .errors import InputError, reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from mmap import mmap

    Data = bytes | mmap

# From this size on a file is mapped, and copied by the kernel, instead of being read into memory.
MAPPED_FROM = 4 << 20
_MOST_LINKS = 40  # as in path_resolution(7)
_NO_READER = 6  # ENXIO
_PATIENCE, _HOUR = 10, 3600.0  # seconds for all of another user's pipe; for one look at one of ours


class Opened:
    """An input file: its descriptor, its content (read or mapped), and its permission bits."""

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor = descriptor
        status = posix.fstat(descriptor)
        self.mode, self.size = status.st_mode & 0o777, status.st_size
        kind = status.st_mode & 0o170000
        if kind in (0o020000, 0o060000):  # /dev/zero never ends
            raise InputError(path, "is a device, not a file")
        if kind == 0o010000:
            posix.set_blocking(descriptor, True)
        self.mapping: mmap | None = None
        self.view: Data
        if self.size < MAPPED_FROM:
            self.view = _read_all(descriptor, self.size)
        else:
            import mmap as mmap_module

            self.view = self.mapping = mmap_module.mmap(descriptor, 0, access=mmap_module.ACCESS_READ)

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        posix.close(self.descriptor)


def open_input(path: str) -> Opened:
    """Open a file for reading, for use in a `with`. Raises InputError, also for a device.

    A pipe is read to its end; one that nobody writes to counts as empty, instead of waiting for ever.
    """
    try:
        descriptor = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)
    except OSError as error:
        raise InputError(path, _reason(error)) from None
    except ValueError:
        raise InputError(path, "is no path: it has a NUL character") from None
    try:
        refuse_pipe_of_others(posix.fstat(descriptor), path)
        return Opened(descriptor, path)
    except OSError as error:
        posix.close(descriptor)
        raise InputError(path, _reason(error)) from None
    except InputError:
        posix.close(descriptor)
        raise


def refuse_pipe_of_others(status: posix.stat_result, path: str) -> None:
    """Raise InputError for another user's pipe: reading it might never end."""
    if status.st_mode & 0o170000 == 0o010000 and status.st_uid != posix.geteuid():
        raise InputError(path, "is a pipe of another user, who may never end it")


def descriptor_for(path: str, wanted: Callable[[posix.stat_result], bool]) -> int:
    """Open for reading what somebody else may have put at a path, if it is `wanted`; else return -1. Raises OSError.

    Its status is known before it is opened, and nothing can take its place in between: opening some devices acts.
    """
    flags = posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK | posix.O_NOCTTY
    place = posix.open(path, posix.O_PATH | posix.O_CLOEXEC)
    try:
        return posix.open(f"{SHARED}{place}", flags) if wanted(posix.fstat(place)) else -1
    finally:
        posix.close(place)


def _read_all(descriptor: int, size: int) -> bytes:
    """Return what there is to read; a file that has the `size` it is said to have is read at once."""
    piece = posix.read(descriptor, size + 1)
    if len(piece) == size > 0:
        return piece
    pieces = [piece]
    while True:
        piece = posix.read(descriptor, MAPPED_FROM)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def _reason(error: OSError) -> str:
    text = reason(error)
    return {"is a directory": "is a directory, not an object"}.get(text, text)


def write_edited(
    source: Opened, patches: Sequence[tuple[int, bytes]], tail: bytes | bytearray, target: str, *,
    mode: int | None = None, staged: bool = False,
) -> None:  # fmt: skip
    """Write `source` with `patches` over it and `tail` behind it to `target`, at once. Raises InputError.

    The content goes to a file beside the target, under a name nobody can guess, which is then renamed. A new file has
    the permission bits `mode`; None stands for what the umask leaves, as for any compiler's output. With `staged` the
    target is such a name already, from `outputs`, which does the renaming.
    """
    destination = Destination(target, target, True) if staged else find_destination(target)
    if not destination.beside:
        write_through(destination, edited(source.view, patches, tail))
        return
    with _Replacing(destination, 0o666, mode, staged) as descriptor:
        if isinstance(source.view, bytes):
            _write_all(descriptor, edited(source.view, patches, tail), None)
        else:
            _copy_mapped(descriptor, source)
            for offset, data in patches:
                _write_all(descriptor, data, offset)
            _write_all(descriptor, tail, source.size)


def edited(data: Data, patches: Sequence[tuple[int, bytes]], tail: bytes | bytearray) -> bytearray:
    """Return `data` with `patches` over it and `tail` behind it."""
    content = bytearray(data)
    for offset, patch in patches:
        content[offset : offset + len(patch)] = patch
    content += tail
    return content


def write_whole(target: str, content: bytes, mode: int = 0o666) -> None:
    """Write `content` to `target`, at once; `mode` is subject to the umask. Raises InputError."""
    destination = find_destination(target)
    if not destination.beside:
        write_through(destination, content)
        return
    with _Replacing(destination, mode, None) as descriptor:
        _write_all(descriptor, content, None)


# --- where an output goes --------------------------------------------------------------------------------------------


class Destination:
    """What the name of an output stands for, links followed.

    `beside` says that a new file can be made beside it and renamed: it is a regular file, or nothing yet. Otherwise it
    is written to as it is: a device, a pipe, or a regular file in a folder where nothing can be made. `descriptor` is
    the open file that names such as /dev/stdout mean, or -1. `named` is what the user calls it. `there` says whether
    anything was there when its name was looked up, `mode` what permission bits a file that takes its place may have.
    """

    __slots__ = ("beside", "descriptor", "mode", "named", "path", "there")

    def __init__(
        self, named: str, path: str, beside: bool, descriptor: int = -1, there: bool = True, mode: int = 0o777
    ) -> None:
        self.named, self.path, self.beside, self.descriptor, self.there = named, path, beside, descriptor, there
        self.mode = mode

    def failed(self, error: OSError) -> InputError:
        """Return what to raise for a failure to write here."""
        return InputError(self.named, f"can't be written: {_reason(error)}")


def find_destination(target: str) -> Destination:
    """Return where an output named `target` goes. Raises InputError.

    A symbolic link stays and what it leads to is replaced, also where that isn't there yet. Each folder on the way is
    opened within the one before, so that nobody can put another in its place meanwhile; if somebody else could, the
    destination's path leads through the descriptor of the last.
    """
    if "\0" in target:
        raise InputError(target, "can't be written: the path has a NUL character")
    walk = _Walk(target)
    try:
        status = walk.last(target)
        if walk.descriptor >= 0:
            return Destination(target, walk.path, False, walk.descriptor)
        kind = status.st_mode & 0o170000 or posix.stat(walk.path).st_mode & 0o170000
        walk.check_owner(walk.name, status)
        walk.check_links()
        path = walk.kept()
    except FileNotFoundError as error:
        if not walk.is_last:
            raise InputError(target, f"can't be written: {_reason(error)}") from None
        walk.check_links()
        return Destination(target, walk.kept(), True, -1, False)
    except OSError as error:
        raise InputError(target, f"can't be written: {_reason(error)}") from None
    finally:
        walk.close()
    if kind == 0o040000:
        raise InputError(target, "can't be written: is a directory")
    return Destination(target, path, kind == 0o100000 and _may_be_replaced(path), mode=status.st_mode & 0o777)


# Folders that others could swap while something is written there, by device and inode: open as long as we run.
SHARED = "/proc/self/fd/"  # begins the path of what is written to one of them
_KEPT: dict[tuple[int, int], int] = {}
_FOLDER = posix.O_CLOEXEC | posix.O_DIRECTORY | getattr(posix, "O_PATH", posix.O_RDONLY)


class _Walk:
    """The way to an output: `at` is the last folder, open, and `path` what it is called, with the `name` in it.

    `trusted`: nobody but root and us can change what the path leads to. `leader` is the user, neither root nor us, to
    whom a link on the way belongs, -1 if there was none. `descriptor` is our own open file that the path means, or -1.
    """

    def __init__(self, target: str) -> None:
        self.target, self.name, self.descriptor, self.leader = target, "", -1, -1
        self.at, self.links, self.is_last = -1, 0, False
        self._start(target)

    @property
    def path(self) -> str:
        return self.folder + self.name

    def _start(self, path: str) -> None:
        self.close()
        self.folder = "/" if path[:1] == "/" else ""
        self.at = posix.open(self.folder or ".", _FOLDER)
        self.trusted = self._is_trusted()

    def _is_trusted(self) -> bool:
        status = posix.fstat(self.at)
        others = status.st_mode & (0o002 if posix.geteuid() else 0o022)
        return status.st_uid in (0, posix.geteuid()) and (not others or bool(status.st_mode & 0o1000))

    def _enter(self, name: str, flags: int = posix.O_NOFOLLOW) -> None:
        inner = posix.open(name, _FOLDER | flags, dir_fd=self.at)
        posix.close(self.at)
        self.at, self.folder = inner, f"{self.folder}{name}/"
        self.trusted = self._is_trusted() and self.trusted

    def last(self, target: str) -> posix.stat_result:
        """Go up to the last name, and return what is there. Raises InputError, OSError."""
        rest = target.split("/")[::-1]
        while True:
            name = rest.pop()
            if rest and name in ("", "."):
                continue
            self.name, self.is_last = name, not rest
            status = posix.lstat(name or ".", dir_fd=self.at)
            if status.st_mode & 0o170000 == 0o120000:
                self.check_owner(name, status)
                if not rest:
                    self.descriptor = _own_descriptor(self.path)
                    if self.descriptor >= 0:
                        return status
                if rest and self.folder.startswith("/proc/"):  # whose links lead where no text says
                    self._enter(name, 0)
                    continue
                self._follow(name, status, rest)
            elif rest:
                self._enter(name)
            else:
                return status

    def _follow(self, name: str, status: posix.stat_result, rest: list[str]) -> None:
        self.links += 1
        if self.links > _MOST_LINKS:
            raise OSError(40, "too many levels of symbolic links")
        if status.st_uid not in (0, posix.geteuid()):
            self.leader = status.st_uid
        leads_to = posix.readlink(name, dir_fd=self.at)
        if leads_to[:1] == "/":
            trusted = self.trusted
            self._start(leads_to)
            self.trusted = trusted and self.trusted
        rest += leads_to.split("/")[::-1]

    def check_owner(self, name: str, status: posix.stat_result) -> None:
        """Raise InputError if a link or file is somebody else's, in a folder where everybody may make one.

        That is the kernel's rule for links in sticky folders such as /tmp (`fs.protected_symlinks`). The kernel can't
        apply it here, because a file is replaced by its name; and it applies it to the last link of a path only.
        """
        owner = status.st_uid
        if owner == posix.geteuid():
            return
        folder = posix.fstat(self.at)
        if folder.st_mode & 0o1002 == 0o1002 and owner != folder.st_uid:
            kind = "link" if status.st_mode & 0o170000 == 0o120000 else "file"
            what = f"can't be written: {self.folder}{name} is a {kind} of user {owner}"
            cure = "remove it, or choose another name"
            raise InputError(self.target, f"{what}, in a folder that everybody may write to", cure)

    def check_links(self) -> None:
        """Raise InputError if somebody else's link has led to a folder that isn't his: he may not write there."""
        if self.leader not in (-1, posix.fstat(self.at).st_uid):
            what = f"can't be written: a link of user {self.leader} leads to {self.path}, in a folder that isn't his"
            raise InputError(self.target, what, "name that place itself, or choose another")

    def kept(self) -> str:
        """Return a path that leads to the same place whatever others do."""
        if self.trusted or self.at < 0 or not self.name:
            return self.path
        status = posix.fstat(self.at)
        known = _KEPT.get((status.st_dev, status.st_ino), -1)
        if known < 0:
            known = _KEPT[status.st_dev, status.st_ino] = self.at
            self.at = -1
        return f"{SHARED}{known}/{self.name}"

    def close(self) -> None:
        if self.at >= 0:
            posix.close(self.at)
            self.at = -1


def _own_descriptor(link: str) -> int:
    """Return the descriptor that a link in /proc/self/fd stands for (/dev/stdout leads there), -1 for other links."""
    folder, _, name = link.rpartition("/")
    if not name.isdecimal() or not folder.endswith("fd"):
        return -1
    from os.path import realpath

    return int(name) if realpath(folder) in map(realpath, ("/proc/self/fd", "/proc/thread-self/fd")) else -1


def _may_be_replaced(path: str) -> bool:
    """Whether a file can be made beside one that is there; where only that one may be written to, it is."""
    folder = path[: path.rfind("/") + 1] or "."
    return posix.access(folder, posix.W_OK | posix.X_OK) or not posix.access(path, posix.W_OK)


def write_through(destination: Destination, content: bytes | bytearray) -> None:
    """Write to what is there, without replacing it: a device, a pipe, a file nothing can be put beside.

    Raises InputError. A regular file is never longer than before by halves: it is cut where the content ends.
    """
    try:
        if destination.descriptor >= 0:
            _write_all(destination.descriptor, content, None)
            return
        descriptor = _open_there(destination.path)
        try:
            _write_all(descriptor, content, None, monotonic() + _PATIENCE)
            if posix.fstat(descriptor).st_mode & 0o170000 == 0o100000:
                posix.ftruncate(descriptor, len(content))
        finally:
            posix.close(descriptor)
    except OSError as error:
        raise destination.failed(error) from None


def _open_there(path: str) -> int:
    """Open what is there for writing. A pipe of ours waits for its reader; another user's is never waited for long.

    Raises OSError.
    """
    flags = posix.O_WRONLY | posix.O_CLOEXEC | posix.O_NOCTTY | posix.O_NOFOLLOW | posix.O_NONBLOCK
    while True:
        try:
            descriptor = posix.open(path, flags)
        except OSError as error:
            status = posix.lstat(path)
            if error.errno != _NO_READER or status.st_mode & 0o170000 != 0o010000:
                raise
            if status.st_uid != posix.geteuid():
                raise OSError(_NO_READER, "is a pipe of another user, and nobody reads it") from None
            sleep(0.02)
            continue
        status = posix.fstat(descriptor)
        if status.st_mode & 0o170000 != 0o010000 or status.st_uid == posix.geteuid():
            posix.set_blocking(descriptor, True)
        return descriptor


def _wait(descriptor: int, seconds: float) -> bool:
    """Wait until something can be written, but no longer; return whether it can."""
    from select import select

    return bool(select([], [descriptor], [], seconds)[1])


class _Replacing:
    """For `with`: gives a descriptor to write to; renames the file to its destination, or removes it on any failure.

    The file has the bits of `mode` that the umask leaves, or those of `exactly`. With `staged` its destination is a
    name that nobody else knows, and needs no other before.
    """

    def __init__(self, destination: Destination, mode: int, exactly: int | None, staged: bool = False) -> None:
        self.destination, self.mode, self.exactly = destination, mode, exactly
        self.temporary = destination.path if staged else temporary_beside(destination.path)

    def __enter__(self) -> int:
        # Until it is complete, nobody may read it who may not read it then, or could not read what it replaces.
        mode = self.mode & self.destination.mode if self.exactly is None else 0o600
        try:
            self.descriptor, self._is_nameless = open_new(self.temporary, mode)
        except OSError as error:
            raise self.destination.failed(error) from None
        return self.descriptor

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self._close(error)
        except OSError as failure:
            error = failure
        if error is not None:
            self._remove()
            if isinstance(error, OSError):
                raise self.destination.failed(error) from None

    def _close(self, error: BaseException | None) -> None:
        """Close the file, and put it in its place if all went well so far. Raises OSError."""
        try:
            if error is None:
                keep_owner(self.descriptor, self.destination.path, self.mode if self.exactly is None else -1)
                if self.exactly is not None:
                    posix.fchmod(self.descriptor, self.exactly)
                if self._is_nameless:
                    give_name(self.descriptor, self.temporary)
                    self._is_nameless = False
        finally:
            posix.close(self.descriptor)
        if error is None and self.temporary != self.destination.path:
            posix.replace(self.temporary, self.destination.path)

    def _remove(self) -> None:
        if self._is_nameless:
            return
        try:
            posix.unlink(self.temporary)
        except OSError:
            return  # it is gone already


def keep_owner(descriptor: int, replaced: str, mode: int = -1) -> None:
    """Give a new file the owner of the regular file that it is to replace, and that one's permission bits.

    What `mode` lets execute stays executable for those who may read it; -1 leaves the bits alone. Raises OSError.
    """
    try:
        old = posix.lstat(replaced)
    except FileNotFoundError:
        return
    if old.st_mode & 0o170000 != 0o100000:
        return
    mine = posix.fstat(descriptor)
    if (old.st_uid, old.st_gid) != (mine.st_uid, mine.st_gid) and posix.geteuid() == 0:
        posix.fchown(descriptor, old.st_uid, old.st_gid)
    if mode >= 0:
        bits = old.st_mode & 0o777
        posix.fchmod(descriptor, bits | bits >> 2 & mode & 0o111)


def who_may_change(path: str) -> str:
    """Return the first folder on the way to `path`, or the file itself, that somebody else may change; '' if none.

    `path` is a real path, without links. What is run or loaded must not lie where others can put something else: each
    folder from the root down belongs to root or to us, and others can't write there, or not rename what is ours (sticky
    folders). Of root nobody but root is trusted, not even root's group. Raises OSError.
    """
    ours = (0, posix.geteuid())
    others = 0o002 if posix.geteuid() else 0o022
    names = path.split("/")
    for count in range(1, len(names) + 1):
        here = "/".join(names[:count]) or "/"
        status = posix.lstat(here)
        sticky = status.st_mode & 0o1000 and count < len(names)
        if status.st_uid not in ours or (status.st_mode & others and not sticky):
            return here
    return ""


def temporary_beside(path: str) -> str:
    """Return a name nobody can guess for a file that will take the place of `path`."""
    slash = path.rfind("/") + 1
    start = path[slash:].encode("utf-8", "surrogateescape")[:80]  # names may have 255 bytes
    return f"{path[:slash]}.{start.decode('utf-8', 'surrogateescape')}.{posix.urandom(8).hex()}.tmp"


def open_new(path: str, mode: int) -> tuple[int, bool]:
    """Return a descriptor for a new file that will be at `path`, and whether that is for `give_name` to see to: where
    the file system can do that it has no name until then, so nothing is left if we are killed. Raises OSError."""
    slash, flags = path.rfind("/") + 1, posix.O_WRONLY | posix.O_CLOEXEC
    try:
        descriptor = posix.open(path[:slash] or ".", posix.O_TMPFILE | flags, mode)
    except OSError:
        descriptor = -1
    if posix.access(f"/proc/self/fd/{descriptor}", posix.F_OK):
        return descriptor, True
    if descriptor >= 0:
        posix.close(descriptor)
    return posix.open(path, posix.O_CREAT | posix.O_EXCL | flags, mode), False


def give_name(descriptor: int, path: str) -> None:
    """Give a file that has no name yet one. Raises OSError."""
    # A folder's descriptor makes it linkat(2), which follows links; as the path is absolute, it isn't looked at.
    posix.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor)


def _copy_mapped(descriptor: int, source: Opened) -> None:
    copied = 0
    while copied < source.size:
        copied += posix.sendfile(descriptor, source.descriptor, copied, source.size - copied)


def _write_all(descriptor: int, data: bytes | bytearray, offset: int | None, until: float = 0.0) -> None:
    """Write all of it. Raises OSError, also where a pipe isn't read `until` a moment; 0.0: it is waited for."""
    view = memoryview(data)
    while view:
        try:
            done = posix.write(descriptor, view) if offset is None else posix.pwrite(descriptor, view, offset)
        except BlockingIOError as error:  # another user's pipe, or one that somebody has made so
            if not _wait(descriptor, max(0.0, until - monotonic()) if until else _HOUR) and until:
                why = f"is another user's pipe, of which not all was read in {_PATIENCE} s"
                raise OSError(error.errno, why) from None
            continue
        offset = None if offset is None else offset + done
        view = view[done:]


def close_all_but(kept: set[int]) -> None:
    """Close this process's descriptors but some, as one that was forked does whose parent's are not its own."""
    for number in map(int, posix.listdir(SHARED)):
        if number not in kept:
            posix.closerange(number, number + 1)  # which minds not that the one is gone by which the list was read
