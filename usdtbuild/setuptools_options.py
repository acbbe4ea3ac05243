"""What a Python project asks for: the `usdt_providers=` keyword and `[tool.usdtbuild]`, checked and merged.

Reads what people write in setup.py and pyproject.toml, and says in one sentence what is wrong with it. Knows nothing
of setuptools, compilers or headers; `setuptools_ext` acts on what comes out.
"""

from __future__ import annotations

import difflib
import os
import platform
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .compilers.flags import parse_pair
from .errors import UsageError, UsdtError
from .options import BY_HEADER, FORMATS, NOPS, RELATIVE, TABLES
from .provider.complete import has_room

EVERY = "*"  # what the keyword calls all extensions
KEYS = (
    "providers", "committed", "formats", "nop", "disabled", "patchable-function-entry", "patchable-table", "live",
    "site-table",
)  # fmt: skip
TABLE_KEYS = (*KEYS, "extensions")


class OptionsError(UsdtError):
    """Something in the keyword, the table or the environment is wrong; the text says what and where."""


class ExtensionOptions(NamedTuple):
    """What one extension asks for. Empty values leave the choice to others."""

    providers: tuple[str, ...] = ()  # paths of .d files, relative to the project
    formats: tuple[str, ...] = ()
    nop: str = ""
    disabled: bool = False
    patchable: str = ""  # N,M or auto
    table: str = ""  # of the patchable entries
    live: bool = False  # with the runtime of usdt_live.h
    site_table: bool = False  # a loaded table of the sites, for that
    committed: bool = False  # app.h lies beside app.d; the build makes none

    @property
    def processed(self) -> bool:
        """Whether what is asked of its probes is more than a header can do."""
        live = self.live and not has_room(platform.machine())
        more = bool(set(self.formats) - set(BY_HEADER)) or self.nop or live or self.site_table
        return bool(self.providers and not self.disabled and more)

    @property
    def uses_launcher(self) -> bool:
        """Whether the extension's objects have anything to be worked on."""
        return self.processed or self.table == RELATIVE

    @property
    def anything(self) -> bool:
        """Whether the extension asks for anything at all."""
        return bool(self.providers or self.patchable or self.live)


class ProjectOptions(NamedTuple):
    """The options of all extensions, and of some by name. `where` is what messages call it."""

    where: str
    common: Mapping[str, Any]
    extensions: Mapping[str, Mapping[str, Any]]


def read_keyword(value: Any) -> ProjectOptions:
    """Return what setup(usdt_providers=...) asks for. Raises OptionsError.

    The value is a path or a list of paths, for all extensions; or it says for each extension by name (or `*` for all)
    either that, or a dictionary of options.
    """
    where = "setup(usdt_providers=...)"
    if not isinstance(value, Mapping):
        return ProjectOptions(where, _options(where, {"providers": value}), {})
    given: dict[str, Mapping[str, Any]] = {}
    for name, options in value.items():
        if not isinstance(name, str):
            raise OptionsError(f"{where}: {name!r} is not the name of an extension")
        at = f"{where}, {name}"
        given[name] = _options(at, options if isinstance(options, Mapping) else {"providers": options})
    return ProjectOptions(where, given.pop(EVERY, {}), given)


def read_table(table: Any) -> ProjectOptions:
    """Return what [tool.usdtbuild] of pyproject.toml asks for. Raises OptionsError."""
    where = "pyproject.toml, [tool.usdtbuild]"
    if not isinstance(table, Mapping):
        raise OptionsError(f"{where}: tool.usdtbuild is a table, not {table!r}")
    common = {key: value for key, value in table.items() if key != "extensions"}
    named = table.get("extensions", {})
    if not isinstance(named, Mapping):
        raise OptionsError(
            f'{where}: extensions holds a table for each extension: [tool.usdtbuild.extensions."package.module"]'
        )
    extensions: dict[str, Mapping[str, Any]] = {}
    for name, options in named.items():
        at = f'pyproject.toml, [tool.usdtbuild.extensions."{name}"]'
        if not isinstance(options, Mapping):
            raise OptionsError(f'{at}: the options of an extension are a table, such as providers = ["app.d"]')
        extensions[name] = _options(at, options)
    return ProjectOptions(where, _options(where, common, TABLE_KEYS), extensions)


def _options(where: str, given: Mapping[str, Any], known: tuple[str, ...] = KEYS) -> Mapping[str, Any]:
    checked: dict[str, Any] = {}
    for name, value in given.items():
        key = str(name).replace("_", "-")
        if key not in KEYS:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise OptionsError(f"{where}: there is no option {name}{hint} (the options are {', '.join(known)})")
        checked[key] = _CHECKS[key](f"{where}: {name}", value)
    return checked


def _words(where: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, (str, os.PathLike)):
        value = [value]
    is_list = isinstance(value, Iterable) and not isinstance(value, (Mapping, bytes))
    words: list[Any] = list(value) if is_list else [None]
    if not all(isinstance(word, (str, os.PathLike)) and str(word) for word in words):
        raise OptionsError(f"{where} is a text or a list of texts, not {value!r}")
    return tuple(dict.fromkeys(os.fspath(word) for word in words))


def _providers(where: str, value: Any) -> tuple[str, ...]:
    paths = _words(where, value)
    for path in paths:
        if not path.endswith(".d"):
            raise OptionsError(f"{where}: {path} is no provider file; their names end in .d")
    return paths


def _formats(where: str, value: Any) -> tuple[str, ...]:
    return tuple(_one_of(FORMATS)(where, word) for word in _words(where, value))


def _one_of(choices: tuple[str, ...]) -> Any:
    def check(where: str, value: Any) -> str:
        if value not in choices:
            raise OptionsError(f"{where} is one of {', '.join(choices)}, not {value!r}")
        return str(value)

    return check


def _truth(where: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise OptionsError(f"{where} is true or false, not {value!r}")
    return value


def _patchable(where: str, value: Any) -> str:
    if value == "auto":
        return "auto"
    if not isinstance(value, str):
        raise OptionsError(f'{where} is a text: "N,M", such as "7,5", or "auto"; not {value!r}')
    try:
        return "{},{}".format(*parse_pair(value, where))
    except UsageError as error:
        raise OptionsError(f'{error}, and not "auto"') from None


_CHECKS = {
    "providers": _providers,
    "committed": _truth,
    "formats": _formats,
    "nop": _one_of(NOPS),
    "disabled": _truth,
    "live": _truth,
    "site-table": _truth,
    "patchable-function-entry": _patchable,
    "patchable-table": _one_of(TABLES),
}


def merge(requests: Iterable[ProjectOptions], extension: str, sources: tuple[str, ...]) -> ExtensionOptions:
    """Return the options of one extension: those for all, then its own, which win; providers add up.

    `sources` are the provider files among its sources. Raises OptionsError.
    """
    merged: dict[str, Any] = {}
    providers: list[str] = []
    requests = list(requests)
    for options in [*(r.common for r in requests), *(r.extensions.get(extension, {}) for r in requests)]:
        merged.update(options)
        providers += options.get("providers", ())
    providers += sources
    where = f"extension {extension}"
    patchable, table = merged.get("patchable-function-entry", ""), merged.get("patchable-table", "")
    if table and not patchable:
        raise OptionsError(f"{where}: patchable-table goes with patchable-function-entry")
    unique = {os.path.normpath(path): path for path in reversed(providers)}
    _check_names(where, paths := tuple(reversed(unique.values())))
    return ExtensionOptions(
        paths, merged.get("formats", ()), merged.get("nop", ""), merged.get("disabled", False), patchable, table,
        merged.get("live", False), merged.get("site-table", False), merged.get("committed", False),
    )  # fmt: skip


def _check_names(where: str, paths: tuple[str, ...]) -> None:
    """Each provider file becomes a header of its own name in the extension's folder; two of one name can't."""
    seen: dict[str, str] = {}
    for path in paths:
        other = seen.setdefault(os.path.basename(path), path)  # noqa: PTH119 - it may be Windows' or a text of TOML
        if other != path:
            raise OptionsError(f"{where}: {other} and {path} would be the same header; rename one of them")


def with_environment(options: ExtensionOptions, environment: Mapping[str, str]) -> ExtensionOptions:
    """Return the options with what the person who builds has set. Raises OptionsError.

    USDTBUILD_DISABLED wins; USDTBUILD_FORMATS and USDTBUILD_NOP count where the project says nothing.
    """
    formats, nop, disabled = options.formats, options.nop, options.disabled
    if not formats and environment.get("USDTBUILD_FORMATS"):
        words = environment["USDTBUILD_FORMATS"].replace(";", ",").split(",")
        formats = _formats("the environment's USDTBUILD_FORMATS", words)
    if not nop and environment.get("USDTBUILD_NOP"):
        nop = _one_of(NOPS)("the environment's USDTBUILD_NOP", environment["USDTBUILD_NOP"])
    said = environment.get("USDTBUILD_DISABLED", "").lower()
    disabled = disabled or said not in ("", "0", "no", "off", "false")
    return options._replace(formats=formats, nop=nop, disabled=disabled)
