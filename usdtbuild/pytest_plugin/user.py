"""The object behind the fixture `usdt`: checks and traced runs, with failures and skips as pytest has them."""

from __future__ import annotations

import contextlib
import glob
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from ..api import trace
from ..errors import InputError, UsageError, UsdtError
from ..tracing import testing
from ..tracing.job import Job
from ..tracing.model import Target
from ..tracing.testing import Hit, Hits, UnknownProbeError
from ..tracing.tracer import NoTracerError, Tracer, choose
from ..verify.declared import complaints

# A path, or an imported extension module.
Binary = str | os.PathLike[str] | ModuleType

__all__ = ["Binary", "Hit", "Hits", "Run", "UnknownProbeError", "Usdt"]


class Run(NamedTuple):
    """A program that ran under a tracer: how it ended, what it wrote, and the hits."""

    returncode: int
    stdout: str
    stderr: str
    hits: Hits


class Usdt:
    """What the fixture `usdt` gives. Relative paths of binaries and provider files count from pytest's root folder,
    unless they exist in the current one."""

    def __init__(self, tracer: str, required: bool, root: Path) -> None:
        self.tracer, self.required, self.root = tracer, required, root

    def assert_declared(
        self,
        binaries: Binary | Sequence[Binary],
        *provider_files: str | os.PathLike[str],
        missing: Sequence[str] = (),
        extra: Sequence[str] = (),
    ) -> None:
        """Fail unless the binaries together have the probes that the provider files declare, and no others of
        their providers.

        Counts, sizes and signs of arguments are compared, semaphores checked, and everything else that `usdtbuild
        verify` calls an error. `missing` and `extra` name probes (`probe` or `provider:probe`, `*` for any letters)
        that may be missing or undeclared.
        """
        __tracebackhide__ = True
        several = [binaries] if isinstance(binaries, (str, os.PathLike, ModuleType)) else list(binaries)
        if not several or not provider_files:
            raise UsageError("a binary and its provider file are needed: assert_declared('build/app', 'app.d')")
        with self._failing():
            paths = [self._path(binary) for binary in several]
            found = complaints(paths, [self._path(file) for file in provider_files], missing, extra)
        if found:
            pytest.fail(found, pytrace=False)

    def run(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *probes: str,
        binary: Binary | None = None,
        stdin: str = "",
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
        tracer: str = "",
        emulator: str = "",
    ) -> Run:
        """Run a command while a tracer watches the named probes (all of them if none is named) of `binary`.

        `binary` is the file with the probes, if that isn't the command's program: a library, an extension module.
        A `timeout` in seconds ends the command and raises subprocess.TimeoutExpired. `emulator` runs it:
        "qemu-aarch64 -L /usr/aarch64-linux-gnu". Without a tracer the test is skipped, or fails, as the options say.
        """
        __tracebackhide__ = True
        words = [os.fspath(word) for word in argv]
        with self._failing():
            program = self._program(words[0], env)
            target = self._path(binary) if binary is not None else program
            probes_there = testing.probes_of(target, probes)
        job = self._job(target, probes_there, tracer, command=[program, *words[1:]], cwd=cwd or "", env=env,
                        emulator=emulator)  # fmt: skip
        hits = Hits(probes_there)
        with self._failing():
            finished, seen = testing.run(self._choose(job), stdin, timeout)
        hits.extend(seen)
        return Run(finished.returncode, finished.stdout, finished.stderr, hits)

    @contextlib.contextmanager
    def trace(
        self, binary: Binary, *probes: str, pid: int | None = None, tracer: str = "", remote: str = ""
    ) -> Iterator[Hits]:
        """Watch the named probes (all of them if none is named) of `binary` while the body of the `with` runs.

        In this process, where the body calls what fires them, in the process `pid`, or in the program that a gdb
        server holds (`remote`, "HOST:PORT"). Look at the hits after the body. All threads of the process count.
        """
        __tracebackhide__ = True
        with self._failing():
            target = self._path(binary)
            probes_there = testing.probes_of(target, probes)
        whom: dict[str, Any] = {"remote": remote} if remote else {"pid": pid or os.getpid()}
        with self._choose(self._job(target, probes_there, tracer, **whom)) as chosen:
            job = chosen.wish
        hits = Hits(probes_there)
        with self._failing():
            watching = testing.attached(job)
            seen = watching.__enter__()
        done = False
        try:
            yield hits
            done = True
        finally:
            # An exception of the body is the test's own, and must not be mistaken for one of ours.
            with self._failing() if done else contextlib.suppress(UsdtError):
                watching.__exit__(None, None, None)
        hits.extend(seen)

    def _job(self, binary: str, probes: Sequence[Target], tracer: str, **more: Any) -> Job:
        names, modules = [probe.title for probe in probes], [glob.escape(os.path.realpath(binary))]
        made = trace(probes=names, modules=modules, engine=tracer or self.tracer, string_size=1024, buffer=64, **more)
        return made.asked.job

    def _choose(self, job: Job) -> Tracer:
        __tracebackhide__ = True
        try:
            return choose(job)
        except NoTracerError as error:
            reason = f"no tracer to see probes fire: {error}"
        if self.required:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        __tracebackhide__ = True
        try:
            yield
        except UsageError:
            raise
        except UsdtError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None

    def _program(self, name: str, env: Mapping[str, str] | None) -> str:
        import shutil

        path = None if env is None else env.get("PATH")
        found = shutil.which(self._path(name) if os.sep in name else name, path=path)
        if found is None:
            raise InputError(name, "there is no such program" if os.sep in name else "is not in PATH")
        return found

    def _path(self, binary: Binary | str | os.PathLike[str]) -> str:
        """Return the absolute path of a binary, of a module's file, or of a provider file.

        Links stay: the `python` of a virtual environment is one, and is another Python under its own name.
        """
        if isinstance(binary, ModuleType):
            path = getattr(binary, "__file__", None)
            if not path:
                raise InputError(binary.__name__, "is built into the interpreter, not an extension module with a file")
            return str(Path(path).absolute())
        here, at_root = Path.cwd() / os.fspath(binary), self.root / os.fspath(binary)
        return str(at_root if at_root.exists() and not here.exists() else here)


# The exception that a test sees when its command takes too long.
TimeoutExpired = subprocess.TimeoutExpired
