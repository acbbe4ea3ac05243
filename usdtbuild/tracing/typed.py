"""Give functions their arguments and results: from what is kept of earlier traces, or from debug information.

A child reads that, without rights and with limits. What it found is kept by the file's build id, in a folder that
nobody else may write to, and is checked each time like what the child says.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .. import __version__
from ..apart import apart
from ..errors import InputError
from ..formats.operands import MEMORY, REGISTER, Operand, OperandPlace
from ..inspection.demangle import parameter_count
from ..inspection.signatures import Wanted
from ..limits import DEBUG, DEBUG_MEMORY, DEBUG_SECONDS, KEPT, KEPT_FILES
from ..machines import facts_of
from .compiled import cache
from .debuginfod import downloaded
from .errors import TracerError
from .job import Job
from .model import ENTER, EXIT, FRAMES, Argument, Module, Site, Target
from .signatures import Typed, parsed, signatures_of

_MARGIN = 5  # seconds of CPU time beyond which a child is ended that doesn't end by itself


def typed(pid: int, targets: Sequence[Target], wish: Job, tell: Callable[[str], None]) -> Sequence[Target]:
    """Return targets of a process; functions have their arguments and results, where these are known and anything is to
    be done with them. `tell` is told of which files they couldn't be read."""
    if wish.wanted.frames:
        plain = typed(pid, targets, wish._replace(wanted=wish.wanted._replace(frames=False)), tell)
        return [_with_frame(one) if one.kind in {ENTER, EXIT} else one for one in plain]
    if not wish.needs_arguments:
        return targets
    modules: dict[Module, dict[int, Wanted]] = {}
    for one in targets:
        if one.kind == ENTER:
            modules.setdefault(one.module, {})[one.sites[0].begins] = Wanted(
                one.name, one.sites[0].body, parameter_count(one.written) if one.written else None
            )
    known = {module: _signatures(pid, module, names, wish, tell) for module, names in modules.items()}
    return [_with(one, known[one.module]) if one.module in known else one for one in targets]


def _with(target: Target, known: Mapping[int, Typed | None]) -> Target:
    found = known.get(target.sites[0].begins) if target.kind in {ENTER, EXIT} else None
    if found is None:
        return target
    return _reading(target, found.arguments if target.kind == ENTER else found.result, instead=True)


def _reading(target: Target, more: Sequence[tuple[Argument, Operand]], *, instead: bool = False) -> Target:
    """Return a function with more arguments, or results; or with these alone."""
    operands = tuple(operand for _, operand in more)

    def read(site: Site) -> Site:
        return site._replace(operands=site.operands * (not instead) + operands, returns=tuple(map(read, site.returns)))

    arguments = (*target.arguments * (not instead), *(argument for argument, _ in more))
    return target._replace(arguments=arguments, sites=tuple(map(read, target.sites)))


def _with_frame(target: Target) -> Target:
    """Return a function of which it is recorded where on the stack it returns, and at its entry to where."""
    facts = facts_of(target.module.machine)
    assert facts is not None
    assert facts.stopped is not None
    stack, link = facts.stopped.stack, facts.stopped.link
    back = OperandPlace(REGISTER, link, link) if link else OperandPlace(MEMORY, f"({stack})", base=stack)
    places = (OperandPlace(REGISTER, stack, stack), back)[: 2 if target.kind == ENTER else 1]
    return _reading(target, [(one, Operand("", 8, False, False, place)) for one, place in zip(FRAMES, places)])


def _signatures(
    pid: int, module: Module, names: Mapping[int, Wanted], wish: Job, tell: Callable[[str], None]
) -> dict[int, Typed | None]:
    members = wish.wanted.members
    file = f"{module.build_id}-{members}-{__version__}.json" if module.build_id else ""
    kept = _kept(file) if file else {}
    missing = {address: name for address, name in names.items() if address not in kept}
    if missing:
        read, limit = partial(_read, pid, module, missing, members), (DEBUG_SECONDS + _MARGIN, DEBUG_MEMORY)
        try:
            text, trouble = apart(wish.user, partial(read, b""), limit)
            if wish.servers and module.build_id and not (trouble or json.loads(text)):
                other = downloaded(wish.servers, module.build_id, wish.user)
                text, trouble = apart(wish.user, partial(read, other), limit)
            found = parsed(text)
        except (InputError, TracerError, OSError, ValueError, TypeError) as error:
            text, trouble, found = "{}", str(error), {}
        if trouble:
            tell(f"{module.path}: arguments of {'some of ' * bool(found)}its functions are not known: {trouble}")
        else:
            text = json.dumps({**dict.fromkeys(missing), **json.loads(text)})  # nothing is known of the others
        if file and found:
            _keep(file, {**kept, **{int(address): one for address, one in json.loads(text).items()}})
        return {**_parsed(kept), **found}
    return _parsed(kept)


def _read(
    pid: int,
    module: Module,
    wanted: Mapping[int, Wanted],
    members: int,
    other: bytes,
    opened: Callable[[], None] | None,
) -> tuple[str, str]:
    from ..inspection.targets import loaded

    for one in loaded(pid, lambda error: None, opened):
        if (one.image.path, one.bias) == (module.path, module.load_bias):
            return signatures_of(one.image, wanted, members, DEBUG_SECONDS, DEBUG, other)
    return "{}", ""


# -- what is kept ------------------------------------------------------------------------------------------------------


def _parsed(kept: Mapping[int, Any]) -> dict[int, Typed | None]:
    return parsed(json.dumps(kept))


def _kept(name: str) -> dict[int, Any]:
    """Return what is kept of a file, checked; nothing where somebody else may have put it there."""
    with contextlib.suppress(TracerError, OSError, ValueError, AttributeError, RecursionError, InputError):
        handle = os.open(cache("functions") / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(handle, "rb") as file:  # noqa: PTH123 - a descriptor
            status = os.fstat(handle)
            ours = status.st_uid == os.geteuid() and not status.st_mode & 0o022 and stat.S_ISREG(status.st_mode)
            if ours and status.st_size <= KEPT:
                found = {int(address): one for address, one in json.loads(file.read()).items()}
                _parsed(found)
                return found
    return {}


def _keep(name: str, found: Mapping[int, Any]) -> None:
    text = json.dumps(found, separators=(",", ":")).encode()
    if len(text) > KEPT:
        return
    with contextlib.suppress(TracerError, OSError):
        folder = cache("functions")
        handle, temporary = tempfile.mkstemp(dir=folder, prefix="making-")
        with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(text)
        Path(temporary).replace(folder / name)
        files = sorted(folder.iterdir(), key=lambda one: one.lstat().st_mtime)
        for old in files[:-KEPT_FILES]:
            old.unlink()
