"""Probes in setuptools' extension modules: what the entry points of this package hang into setuptools.

A project asks with `setup(usdt_providers=...)`, with `[tool.usdtbuild]` in pyproject.toml, or with a `.d` file among
the sources of an Extension. Then whatever `build_ext` the project has, setuptools' own, pybind11's or Cython's, is
subclassed, and nothing else is touched: the subclass writes the headers before an extension is built. Only for what
a header can't do (`formats = ["dof"]`) it also puts our launcher in front of the compiler. Where nothing asks, nothing
happens.

Not here: the checking of what was asked (`setuptools_options`), what an extension needs then (`setuptools_prepare`),
and any work on objects (`launcher`).
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from . import __version__
from .errors import UsdtError, reason
from .setuptools_options import (
    ExtensionOptions,
    OptionsError,
    ProjectOptions,
    merge,
    read_keyword,
    read_table,
    with_environment,
)
from .setuptools_prepare import CHANGED, COMPILERS, LAUNCHER, compile_live, forget, prepare
from .text import shown

OLDEST = 61  # the first setuptools that reads pyproject.toml
# What sysconfig.get_platform() calls the systems whose tracers we know; elsewhere probes compile to nothing.
TRACED = ("linux", "android", "freebsd", "solaris", "sunos")
TARGETS = {"freebsd": "freebsd", "solaris": "illumos", "sunos": "illumos"}


# -- the entry points ------------------------------------------------------------------------------------------------


def keyword(_: Any, __: str, value: Any) -> None:
    """Check the keyword of setup(); setuptools has stored its value. Raises SetupError."""
    _check_version()
    from setuptools.errors import SetupError

    try:
        read_keyword(value)
    except UsdtError as error:
        raise SetupError(str(error)) from None


def finalize(distribution: Any) -> None:
    """Have the distribution use our build_ext, if anything asks for it."""
    if not _asks(distribution):
        return
    _check_version()
    original = distribution.get_command_class

    def get_command_class(name: str) -> Any:
        # As late as this, because pyproject.toml may name another build_ext, and that is read last.
        found = original(name)
        return extend(found) if name == "build_ext" else found

    distribution.get_command_class = get_command_class


def _check_version() -> None:
    import setuptools

    version = setuptools.__version__
    if int(version.partition(".")[0]) < OLDEST:
        from distutils.errors import DistutilsSetupError  # which setuptools.errors of that time lacks

        raise DistutilsSetupError(f"probes need setuptools {OLDEST} or newer, and this is {version}; update it")


def _asks(distribution: Any) -> bool:
    """Tell whether anything in the project wants us; guesses from pyproject.toml's bytes, to spare others the time."""
    if getattr(distribution, "usdt_providers", None) is not None:
        return True
    extensions = distribution.ext_modules if isinstance(distribution.ext_modules, (list, tuple)) else ()
    if any(_provider_sources(extension) for extension in extensions):
        return True
    try:
        text = _pyproject(distribution).read_bytes()
    except OSError:
        return False
    return b"usdtbuild" in text or (b"ext-modules" in text and b".d" in text)


def _provider_sources(extension: Any) -> tuple[str, ...]:
    sources = getattr(extension, "sources", None) or ()
    return tuple(str(source) for source in sources if str(source).endswith(".d"))


def _pyproject(distribution: Any) -> Path:
    return Path(distribution.src_root or os.curdir, "pyproject.toml")


def _table(distribution: Any) -> ProjectOptions | None:
    """Return what [tool.usdtbuild] asks for, if there is one. Raises OptionsError."""
    try:
        text = _pyproject(distribution).read_text(encoding="utf-8")
    except OSError:
        return None
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        table = tomllib.loads(text).get("tool", {}).get("usdtbuild")
    except ValueError as error:
        raise OptionsError(f"pyproject.toml: {error}") from None
    return None if table is None else read_table(table)


# -- build_ext -------------------------------------------------------------------------------------------------------


def extend(registered: Any) -> Any:
    """Return the registered build_ext with our steps in it."""
    if issubclass(registered, ProbesBuildExt):
        return registered
    # Commands are told apart by the name of their class.
    return type("build_ext", (ProbesBuildExt, registered), {"__module__": __name__, "__doc__": registered.__doc__})


class ProbesBuildExt:
    """The steps that a build_ext gets in front of its own. Each can be repeated: editable installs do so."""

    # What the base class brings.
    build_temp: str
    debug: Any
    force: Any
    plat_name: str
    compiler: Any
    extensions: list[Any]
    parallel: Any
    distribution: Any
    warn: Any

    def finalize_options(self) -> None:
        """Take the provider files out of the sources, and work out what each extension asks for."""
        super().finalize_options()  # type: ignore[misc]
        with _told():
            self._usdt_options = self._plan()

    def _plan(self) -> dict[str, ExtensionOptions]:
        distribution = self.distribution
        value = getattr(distribution, "usdt_providers", None)
        requests = [read_keyword(value)] if value is not None else []
        table = _table(distribution)
        requests = [*([table] if table else []), *requests]  # what is said in setup.py wins
        names = [extension.name for extension in self.extensions]
        for request in requests:
            for name in request.extensions:
                if name not in names:
                    there = f"there are {', '.join(names)}" if names else "there is none"
                    raise OptionsError(f"{request.where}: there is no extension {name}; {there}")
        return {extension.name: self._options_of(extension, requests) for extension in self.extensions}

    def _options_of(self, extension: Any, requests: list[ProjectOptions]) -> ExtensionOptions:
        found = _provider_sources(extension)
        if found:
            extension.sources = [source for source in extension.sources if not str(source).endswith(".d")]
            # Kept, because a command may be finalised again and will find the sources without them.
            extension.usdt_providers = (*getattr(extension, "usdt_providers", ()), *found)
        options = merge(requests, extension.name, getattr(extension, "usdt_providers", ()))
        if not options.anything:
            return ExtensionOptions()
        if not extension.sources:
            raise OptionsError(f"extension {extension.name} has no source but provider files")
        for path in options.providers:
            if not Path(path).is_file():
                raise OptionsError(f"extension {extension.name}: there is no provider file {path} in {Path.cwd()}")
        if not self.plat_name.startswith(TRACED):
            return ExtensionOptions(options.providers, disabled=True, committed=options.committed)
        options = with_environment(options, os.environ)
        if not options.formats and self.plat_name.startswith(tuple(TARGETS)):
            options = options._replace(formats=("dof",))
        if options.committed and options.processed:
            raise OptionsError(
                f"extension {extension.name}: a committed header makes SDT notes alone; leave out committed, or "
                "formats, nop, live and site-table"
            )
        return options

    def get_source_files(self) -> list[str]:
        """Return the files that belong into a source distribution: the provider files, too."""
        files: list[str] = super().get_source_files()  # type: ignore[misc]
        paths = [path for options in self._usdt_options.values() for path in options.providers]
        for path in dict.fromkeys(paths):
            inside = os.path.relpath(path)
            if inside.startswith(os.pardir):
                self.warn(f"{path} lies outside the project and can't be part of its source distribution")
            elif inside not in files:
                files.append(inside)
        return files

    # -- building ----------------------------------------------------------------------------------------------------

    def build_extensions(self) -> None:
        """Build the extensions in groups that need the same launcher in front of the compiler, or none."""
        every = self.extensions
        groups = self._groups()
        try:
            for launcher, group in groups:
                self._usdt_launcher = launcher
                if len(groups) > 1:
                    self.extensions = group
                try:
                    super().build_extensions()  # type: ignore[misc]
                finally:
                    self._set_launcher(wanted=False)
        finally:
            if len(groups) > 1:
                self.extensions = every

    def _groups(self) -> list[tuple[list[str], list[Any]]]:
        """Return (launcher, extensions) in the order of the project; in parallel builds, each launcher once.

        The threads of a parallel build share one compiler object, so those that run at a time must agree.
        """
        groups: list[tuple[list[str], list[Any]]] = []
        for extension in self.extensions:
            launcher = self._launcher_of(self._usdt_options.get(extension.name, ExtensionOptions()))
            candidates = groups if self.parallel else groups[-1:]
            group = next((members for words, members in candidates if words == launcher), None)
            if group is None:
                groups.append((launcher, [extension]))
            else:
                group.append(extension)
        return groups or [([], [])]

    def _launcher_of(self, options: ExtensionOptions) -> list[str]:
        if not options.uses_launcher:
            return []
        # Isolated mode without site-packages starts in 9 ms.
        return [sys.executable, "-I", "-S", LAUNCHER, *self._launcher_options(options), "--"]

    def _launcher_options(self, options: ExtensionOptions) -> list[str]:
        words = [f"--tool-version={__version__}"]
        words += [f"--target-os={TARGETS[name]}" for name in TARGETS if self.plat_name.startswith(name)]
        words += [f"--nop={options.nop}"] if options.nop else []
        words += [f"--formats={','.join(options.formats)}"] if options.formats else []
        words += [f"--patchable-table={options.table}"] if options.table else []
        words += ["--site-table"] * options.site_table
        return words

    def build_extension(self, extension: Any) -> None:
        """Write the extension's headers, and build it with them in its include folders."""
        options = self._usdt_options.get(extension.name, ExtensionOptions())
        folder = Path(self.build_temp, "usdt", extension.name)
        kept = {name: getattr(extension, name) for name in (CHANGED if options.anything else ("depends",))}
        try:
            with _told(building=True):
                if options.anything:
                    words = self._launcher_options(options) if options.uses_launcher else []
                    flags = prepare(extension, options, folder, words, self.compiler, self.warn)
                    if options.live:
                        compile_live(extension, folder, flags, self.compiler, self.debug, self.force)
                    self._set_launcher(wanted=True)
                else:
                    forget(extension, folder)
            super().build_extension(extension)  # type: ignore[misc]
        finally:
            for name, value in kept.items():
                setattr(extension, name, value)

    # -- the compiler ------------------------------------------------------------------------------------------------

    def _set_launcher(self, *, wanted: bool) -> None:
        launcher = self._usdt_launcher
        found = [self.compiler, getattr(self, "shlib_compiler", None)]
        for compiler in [compiler for compiler in found if hasattr(compiler, COMPILERS[0])]:
            for name in COMPILERS:
                words = getattr(compiler, name, None)
                # Each extension makes sure of it, because the registered build_ext may have set other words meanwhile.
                if words and launcher and (words[: len(launcher)] == launcher) != wanted:
                    setattr(compiler, name, [*launcher, *words] if wanted else words[len(launcher) :])


@contextlib.contextmanager
def _told(building: bool = False) -> Any:
    """Let setuptools tell the user about our errors, as it does about its own: one line, no traceback.

    An extension that is optional may fail to build; what is wrong with the project's settings is another matter.
    """
    from setuptools.errors import CompileError, SetupError

    from .provider.parser import ParseError

    try:
        yield
    except ParseError as error:
        sys.stderr.write(shown(f"{error}\n"))
        raise CompileError(f"{error.diagnostics[0].path} can't be turned into a header") from None
    except OSError as error:
        raise CompileError(f"{error.filename}: {reason(error)}") from None
    except UsdtError as error:
        raise (CompileError if building else SetupError)(str(error)) from None
