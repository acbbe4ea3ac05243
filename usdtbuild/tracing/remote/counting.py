"""Counts under QEMU's user mode without its gdb server: a plugin of ours counts where code is translated and run.

The server of QEMU 7.2 to 10.0 hangs with programs that start threads, and each of its hits costs a third of a
millisecond. The plugin (`runtime/emulator/usdt_count.c`, which says what goes over the socket) counts exactly, whatever
threads do. It asks about each file whose code runs for the first time; so libraries are known that are loaded later.
Arguments it can't read: they need the server.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...elf.image import MAGIC, Image
from ...errors import InputError
from ...folders import folder as folder_of
from ...inspection.process import MappedFile, mapped_file, maps_lines, open_mapped
from ...inspection.targets import Loaded
from ..compiled import compiled
from ..errors import TracerError
from ..job import Job
from ..model import Event, Refusal, Report, Target, Totals
from ..selection import Wanted, targets_in
from ..spawn import Spawned
from ..tracer import Tracer
from .emulator import environment, not_begun, prefix_of

_PAGE, _MOST = 4096, 1 << 20  # `counts` is sparse: 8 MB if there were so many targets
_BY_REGISTER = (
    "it calls through a register, whose value isn't seen when calls are only counted: it may call another function"
)
_HEADER = struct.Struct("=QQQ")  # over, cut off, semaphores that were not raised
_PATIENCE = 30.0
_EXECUTABLE = 1  # PF_X
_NO_PLACE = (1 << 64) - 1


def why_not(wish: Job) -> str:
    """Return why the emulator can't count by a plugin, '' if it can; it is asked what options it has."""
    words = wish.emulator
    if not words or shutil.which(words[0]) is None:
        return ""  # which is said elsewhere
    try:
        said = subprocess.run(
            [words[0], "-h"], capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return f"{words[0]} doesn't say what it can do"
    if "-plugin " not in said.stdout:
        return f"{words[0]} was built without plugins, or is no emulator of QEMU's"
    try:
        plugin()
    except TracerError as error:
        return str(error)
    return ""


def plugin() -> Path:
    """Return the plugin, compiled if the cache hasn't got it yet. Raises TracerError."""
    source = folder_of("runtime") / "emulator" / "usdt_count.c"
    return compiled("usdt-count", [source], [], [], needs="QEMU's plugin")


class _Answers:
    """What is traced in a program's files, as far as the plugin has asked about them."""

    def __init__(self, wanted: Wanted, root: str) -> None:
        """`root` is the folder that is the program's root for its libraries, '' if it has none."""
        self.wanted, self._root = wanted, os.path.realpath(root) if root else ""
        self.targets: list[Target] = []
        self.refusals: list[Refusal] = []
        self.asked: set[str] = set()

    def answer(self, line: str, pid: int) -> bytes:
        file = _mapped(pid, line)
        self.asked.add(file.path)
        path = self._name(file.path)
        if not self.wanted.takes_module(path):
            return _answer((), (), (), big=False)
        try:
            image = _open(pid, file, path)
            if image is None:
                return _answer((), (), (), big=False)
            untold: list[str] = []
            found = list(targets_in(Loaded(image, 0), self.wanted, len(self.targets), missing=untold.append))
            for why in untold:
                self.refuse(Refusal(path, why))
        except InputError as error:
            self.refuse(Refusal(error.where, error.what, error.cure))
            return _answer((), (), (), big=False)
        if len(self.targets) + len(found) > _MOST:
            self.refuse(Refusal(path, f"there is room for {_MOST} targets", "choose some of them"))
            found = []
        self.targets += found
        code = [one for one in image.loads if one.flags & _EXECUTABLE]
        sites = {
            (_place(image, site.file_address), site.file_address, target.number)
            for target in found
            for site in target.sites
            if site.held is None
        }
        for target in found:
            for site in target.sites:
                if site.held is not None:
                    self.refuse(Refusal(target.title, _BY_REGISTER, "", site.address))
        semaphores = sorted({site.semaphore for target in found for site in target.sites if site.semaphore})
        segments = sorted(((one.offset, one.file_size, one.address) for one in code), key=lambda one: one[2])
        return _answer(segments, sorted(sites), semaphores, big=not image.little)

    def _name(self, path: str) -> str:
        """Return how the program knows a file: below the folder that is its root for it."""
        root = self._root
        return path[len(root) :] if root and path.startswith(root + "/") else path

    def refuse(self, refusal: Refusal) -> None:
        if refusal not in self.refusals:
            self.refusals.append(refusal)


class Counting(Tracer):
    """A trace that counts."""

    def __init__(self, wish: Job, tell: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(wish, tell)
        # Where the program's libraries are, the emulator's own options may say.
        self._answers = _Answers(wish.wanted, wish.sysroot or prefix_of(wish.emulator))
        self.targets, self.refusals = self._answers.targets, self._answers.refusals
        self.engines = ("plugin",)
        self._program: Spawned | None = None
        self._link: socket.socket | None = None
        self._final: dict[int, int] | None = None
        # A private folder: nobody else can connect.
        self._folder = Path(tempfile.mkdtemp(prefix="usdtbuild-"))
        with (self._folder / "counts").open("w+b") as file:
            file.truncate(_PAGE + 8 * _MOST)
            self._shared = mmap.mmap(file.fileno(), _PAGE + 8 * _MOST)

    # -- the beginning -----------------------------------------------------------------------------------------------

    def start(self, stdin: Any = None, stdout: Any = None, stderr: Any = None) -> None:
        """Start the program under the emulator. Raises UsdtError."""
        wish, env = self.wish, environment(self.wish)
        option = ",folder=".join(str(part).replace(",", ",,") for part in (plugin(), self._folder))
        line = [*wish.emulator, "-plugin", option, *wish.argv]
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(str(self._folder / "link"))
            listening.listen(1)
            self._program = Spawned(line, wish.cwd, env, streams=(stdin, stdout, stderr)).begin()
            self._link = self._accept(listening, self._program)
        credentials = self._link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        (self.pid, _, _) = struct.unpack("3i", credentials)
        self._await_beginning(self._link, self._program)
        self.started = time.monotonic_ns()

    def _await_beginning(self, link: socket.socket, program: Spawned) -> None:
        """Wait for the first question. Raises UsdtError if none comes: the plugin is loaded before the program is."""
        while self._final is None:
            if not select.select([link], [], [], 0.1)[0]:
                continue
            with contextlib.suppress(OSError):
                if link.recv(1, socket.MSG_PEEK):
                    return
            code = program.wait(_PATIENCE)
            if code is not None:
                raise not_begun(self.wish, code)
            return

    def _accept(self, listening: socket.socket, program: Spawned) -> socket.socket:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            code = program.poll()
            if select.select([listening], [], [], 0.02 if code is None else 0.0)[0]:
                return listening.accept()[0]
            if code is not None:
                raise not_begun(self.wish, code)
        program.kill()
        program.wait()
        name = self.wish.emulator[0]
        raise TracerError(f"{name} doesn't load the plugin; is it an emulator of user programs (qemu-user)?")

    # -- what the plugin asks ----------------------------------------------------------------------------------------

    def _answer(self) -> bool:
        """Take one question and answer it; return whether somebody is still there."""
        link = self._link
        assert link is not None
        try:
            size = self._received(4)
            line = self._received(int.from_bytes(size, "little")) if size else b""
            if not line:
                return False
            link.sendall(self._answers.answer(line.decode("utf-8", "surrogateescape"), self.pid))
        except OSError:
            return False
        return True

    def _received(self, size: int) -> bytes:
        assert self._link is not None
        found = b""
        while len(found) < size:
            piece = self._link.recv(size - len(found))
            if not piece:
                return b""
            found += piece
        return found

    # -- while it runs -----------------------------------------------------------------------------------------------

    def batches(self, timeout: float = 0.1) -> Iterator[Sequence[Event]]:
        """Yield nothing, again and again, until the program ends or the trace is stopped."""
        program = self._program
        assert program is not None
        until = time.monotonic() + timeout
        while self._final is None and program.poll() is None:
            wait = max(0.0, until - time.monotonic())
            if self._link is None:  # it became another program, or closed all that it doesn't know
                program.wait(wait)
            elif select.select([self._link], [], [], wait)[0] and not self._answer():
                self._link.close()
                self._link = None
            if time.monotonic() >= until:
                yield []
                until = time.monotonic() + timeout
        self._finish()
        yield []

    def stop(self) -> None:
        """End the trace; the program goes on, and what it counts from now on nobody reads."""
        self._finish()

    def _finish(self) -> None:
        if self._final is not None:
            return
        self._final = self._read()
        _, cut_off, not_raised = _HEADER.unpack_from(self._shared, 0)
        struct.pack_into("=Q", self._shared, 0, 1)
        self.finished = time.monotonic_ns()
        if cut_off:
            why = "it closed the plugin's descriptors: code that ran for the first time since then isn't counted"
            self._answers.refuse(Refusal(self.wish.argv[0], why))
        if not_raised:
            self._answers.refuse(Refusal(self.wish.argv[0], f"{not_raised} semaphores could not be raised"))

    def _read(self) -> dict[int, int]:
        raw = self._shared[_PAGE : _PAGE + 8 * len(self.targets)]
        return dict(enumerate(number for (number,) in struct.iter_unpack("=Q", raw)))

    def kill(self) -> None:
        """End the program, with SIGKILL."""
        if self._program is not None:
            self._program.kill()
            self._program.wait()

    @property
    def totals(self) -> Totals:
        """Hits so far, by target; none are ever lost."""
        return Totals(self._read() if self._final is None else dict(self._final), {})

    def report(self) -> Report:
        """Return how the trace was."""
        self.exit_code = self._program.poll() if self._program is not None else None
        # The dynamic linker's code runs first.
        self.looked_up = os.path.realpath(Path(self.wish.cwd, self.wish.argv[0])) in self._answers.asked
        return super().report()

    def close(self) -> None:
        """Let go; the counters' memory lives on in a program that runs on."""
        self._finish()
        if self._link is not None:
            self._link.close()
            self._link = None
        shutil.rmtree(self._folder, ignore_errors=True)


def _open(pid: int, file: MappedFile, path: str) -> Image | None:
    """Open a mapped file; None where it is no program's: a file of bytes that a program makes code of."""
    with open_mapped(pid, file) as opened:
        return Image(opened.view, path) if bytes(opened.view[:4]) == MAGIC else None


def _mapped(pid: int, line: str) -> MappedFile:
    one = next(maps_lines(line.encode("utf-8", "surrogateescape")))
    return mapped_file(pid, one.name, [one])


def _place(image: Image, address: int) -> int:
    """Return where an address is in the file; _NO_PLACE where it is in memory only."""
    place = image.file_offset(address)
    return _NO_PLACE if place is None else place


def _answer(
    segments: Sequence[tuple[int, int, int]], sites: Sequence[tuple[int, int, int]], semaphores: Sequence[int], *,
    big: bool,
) -> bytes:  # fmt: skip
    parts = [struct.pack("=4I", len(segments), len(sites), len(semaphores), big)]
    parts += [struct.pack("=3Q", *three) for three in (*segments, *sites)]
    parts += [struct.pack("=Q", address) for address in semaphores]
    return b"".join(parts)
