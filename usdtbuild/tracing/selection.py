"""Find what can be traced in a process: probes and functions of the files it has loaded, chosen by patterns.

Files are opened the way `process` does it: deleted ones and those of other mount namespaces too. What a probe's
arguments are called comes from the file's own description, from provider files that the user names, or from
`known`, the declarations of well-known programs. Nothing here stops or changes the process.
"""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, NamedTuple

from .. import model as declared
from ..elf import layout as elf
from ..errors import InputError
from ..inspection.demangle import all_spellings, demangle_if_possible
from ..inspection.probes import find_declared, inspect
from .library_calls import call_targets, return_target
from .model import (
    ENTER,
    EXIT,
    FLOAT,
    INTEGER,
    POINTER,
    PROBE,
    RETURN,
    STRING,
    Argument,
    Around,
    Module,
    Refusal,
    Site,
    Target,
)
from .surroundings import Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from ..elf.image import Image
    from ..formats.operands import Operand
    from ..functions.exits import Ends
    from ..functions.report import Function
    from ..inspection.probes import Inspection, SeenProbe, Semaphore
    from ..inspection.probes import SeenArgument as Shown
    from ..inspection.targets import Loaded
    from ..model import Provider
    from ..provider.enumerators import Values
    from .model import As

_JUMP_SIZE = 5  # the longest thing that a site becomes
# Formats whose records say where the arguments are, the better first.
_FORMATS = ("stapsdt",)
_NO_SEMAPHORE = "its record names a semaphore outside the writable data of its file"
# What a pattern of `Wanted.order` is for.
PROBE_RULE, FUNCTION_RULE, CALL_RULE, EXCLUDE_RULE = "P", "F", "L", "X"
# What the compiler's start files, the dynamic linker and compilers themselves add to programs.
_RUNTIME = re.compile(
    r"_start|_init|_fini|frame_dummy|(de)?register_tm_clones|__do_global_dtors_aux|call_weak_fn|__libc_csu_(init|fini)"
    r"|_dl_relocate_static_pie|_dl_runtime_(resolve|profile)\w*|_dl_tlsdesc\w*|__x86\.\w+\.\w+|__x86_\w*thunk\w*"
)
_KINDS = {declared.FLOAT: FLOAT, declared.POINTER: POINTER}


class Wanted(NamedTuple):
    """What a user wants to trace: patterns of probes (`provider:probe` or `probe`), functions, modules and calls.

    `returns`: functions and calls are traced also when they return. Functions of fewer than `smallest` bytes are left
    out. `order`: all patterns as they were given, each with what it is for, where that matters: the last that matches
    decides, but one of `exclude` before all others leaves out for good. Without it all of `exclude` do. Functions of
    C++ and Rust are known by all that `demangle.all_spellings` says; `mangled`: they are shown as they are linked.
    `members`: structures among functions' arguments are taken apart so many times. `frames`: with calls and returns of
    functions it is recorded where they are on the stack, and no breakpoint comes: some returns aren't seen then.
    `shown_as`: arguments that the user gives a type. `enumerators`: types with the names of their values. `pairs`: it
    is asked which functions are around probes.
    """

    probes: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    providers: tuple[Provider, ...] = ()
    calls: tuple[str, ...] = ()
    returns: bool = False
    smallest: int = 0
    order: tuple[tuple[str, str], ...] = ()
    mangled: bool = False
    members: int = 1
    frames: bool = False
    shown_as: tuple[As, ...] = ()
    enumerators: tuple[tuple[str, Values], ...] = ()
    pairs: bool = False

    @property
    def is_open(self) -> bool:
        """Whether nothing says what to trace, so all probes are."""
        return not (self.probes or self.functions or self.calls)

    @property
    def ordered(self) -> tuple[tuple[str, str], ...]:
        """All patterns in the order in which they count: what is left out for good comes last."""
        given = self.order or (
            *((PROBE_RULE, one) for one in self.probes),
            *((FUNCTION_RULE, one) for one in self.functions),
            *((CALL_RULE, one) for one in self.calls),
            *((EXCLUDE_RULE, one) for one in self.exclude),
        )
        first = next((i for i, (kind, _) in enumerate(given) if kind != EXCLUDE_RULE), len(given))
        return (*given[first:], *given[:first])

    def _takes(self, kind: str, names: Sequence[str], *, taken: bool = False) -> bool:
        for rule, pattern in self.ordered:
            if rule in {kind, EXCLUDE_RULE} and matches(names, pattern):
                taken = rule == kind
        return taken

    def takes_probe(self, provider: str, name: str) -> bool:
        """Whether a probe is wanted."""
        return self._takes(PROBE_RULE, spellings(provider, name), taken=self.is_open)

    def within(self, module: Module) -> Wanted:
        """Return what is wanted of a file's functions: of `FILE!PATTERN` the pattern, or nothing."""
        names = (module.path, module.path.rpartition("/")[2])
        here: list[tuple[str, str]] = []
        for rule, pattern in self.ordered:
            file, bare = of_file(pattern)
            if file is None or (matches(names, file) if file else not module.is_library):
                here.append((rule, bare))
        return self._replace(order=tuple(here) or ((EXCLUDE_RULE, "*"),))

    def takes_function(self, names: Sequence[str]) -> bool:
        """Whether a function is wanted."""
        return self._takes(FUNCTION_RULE, names)

    def names_function(self, names: Sequence[str]) -> bool:
        """Whether a function is wanted by its very name."""
        return any(rule == FUNCTION_RULE and pattern in names for rule, pattern in self.ordered)

    def takes_call(self, names: Sequence[str]) -> bool:
        """Whether calls of a library function are wanted."""
        return self._takes(CALL_RULE, names)

    def takes_module(self, path: str) -> bool:
        """Whether a file is wanted, by its path or its name."""
        names = (path, path.rpartition("/")[2])
        return not self.modules or any(matches(names, pattern) for pattern in self.modules)


def of_file(pattern: str) -> tuple[str | None, str]:
    """Split `FILE!PATTERN`, a pattern of functions of some files; without a file those of the program itself."""
    file, mark, rest = pattern.partition("!")
    return (file, rest) if mark and not file.endswith(("operator", "[")) else (None, pattern)


class Selection(NamedTuple):
    """What was found: targets, and what can't be looked at and why."""

    targets: tuple[Target, ...]
    refusals: tuple[Refusal, ...]


def spellings(provider: str, name: str) -> tuple[str, ...]:
    """Return the names that mean a probe."""
    dashed = declared.dashed(name)
    return tuple(dict.fromkeys((f"{provider}:{name}", name, f"{provider}:{dashed}", dashed)))


def called(target: Target) -> tuple[str, ...]:
    """Return the names that mean a target, of a return those with `:return` behind them."""
    if target.kind == PROBE:
        return spellings(target.provider, target.name)
    names = all_spellings((target.name,), {target.name: target.written} if target.written else {})
    return tuple(f"{name}:return" for name in names) if target.kind in {EXIT, RETURN} else names


def is_meant(target: Target, pattern: str) -> bool:
    """Whether a pattern of a probe, or of a function, is for a target."""
    whole = (target.title, target.name) if target.provider else called(target)
    names = {*whole, *(name.replace("__", "-") for name in whole)}
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)


def matches(names: Sequence[str], pattern: str) -> bool:
    """Whether a pattern matches one of these names, or is one: `operator[]` is both."""
    return pattern in names or any(fnmatch.fnmatchcase(name, pattern) for name in names)


def select(pid: int, wanted: Wanted) -> Selection:
    """Return the targets in all files of a process. Raises InputError."""
    return together(by_file(pid, wanted).values())


def by_file(
    pid: int, wanted: Wanted, is_known: Callable[[str, int], bool] = lambda path, bias: False,
    opened: Callable[[], None] | None = None,
) -> dict[str, Selection]:  # fmt: skip
    """Return what is in the files of a process, by path; in `""` what can't be opened. Raises InputError.

    What `is_known`, by path and load bias, is left out. `opened` is called when all files are open and none has been
    read.
    """
    from ..inspection.targets import loaded

    found: dict[str, Selection] = {}

    def add(path: str, targets: Iterable[Target], *refusals: Refusal) -> None:
        before = found.get(path, Selection((), ()))
        found[path] = Selection((*before.targets, *targets), before.refusals + refusals)

    def trouble(error: InputError, path: str = "") -> None:
        if wanted.takes_module(error.where):
            add(path, (), Refusal(error.where, error.what, error.cure))

    for one in loaded(pid, trouble, opened):
        path, refusals = one.image.path, list[Refusal]()
        if is_known(path, one.bias):
            continue
        try:
            targets = list(targets_in(one, wanted, refuse=refusals.append)) if wanted.takes_module(path) else []
        except InputError as error:
            targets = []
            trouble(error, path)
        add(path, targets, *refusals)
    return found


def together(found: Iterable[Selection]) -> Selection:
    """Return all that was found as one."""
    found = list(found)
    return Selection(
        tuple(target for one in found for target in one.targets), tuple(one for each in found for one in each.refusals)
    )


def targets_in(
    one: Loaded,
    wanted: Wanted,
    first: int = 0,
    *,
    slots: bool = False,
    missing: Callable[[str], None] = lambda why: None,
    refuse: Callable[[Refusal], None] = lambda refusal: None,
) -> Iterator[Target]:
    """Yield the targets of one loaded file, numbered from `first`; `slots`: PLT entries, too. Raises InputError.

    `missing` is told which calls are not known, `refuse` which probes are left out.
    """
    image, bias = one.image, one.bias
    module = Module(image.path, bias, "", image.machine, image.build_id.hex())
    number = first
    if any(section.name == ".note.stapsdt" for section in image.sections):
        seen = inspect(image)
        places = {site.location.address for probe in seen.probes for site in probe.sites}
        around = Surroundings(image) if wanted.pairs else None
        for probe in seen.probes:
            if probe.format in _FORMATS and wanted.takes_probe(probe.provider, probe.name):
                if not all(_may_count(image, one) for one in _semaphores(probe)):
                    refuse(Refusal(f"{probe.provider}:{probe.name}", _NO_SEMAPHORE))
                    continue
                target = probe_target(number, seen, probe, module, wanted.providers, around)
                target = with_enumerators(target, wanted)
                yield target._replace(sites=tuple(_with_near(site, places) for site in target.sites))
                number += 1
    if wanted.functions:
        for target in _functions(one, module, wanted, number):
            yield target
            number += 1
    if wanted.calls:
        takes = wanted.takes_call
        yield from call_targets(one, module, takes, number, returns=wanted.returns, slots=slots, missing=missing,
                                mangled=wanted.mangled)  # fmt: skip


def probe_target(
    number: int, seen: Inspection, probe: SeenProbe, module: Module, providers: Sequence[Provider],
    around: Surroundings | None = None,
) -> Target:  # fmt: skip
    """Return a probe of an inspected file as a target; `around` says what is around its sites, if that is asked."""
    longest = max((site.arguments for site in probe.sites), key=len)
    types = _declared_types(seen, probe, providers, longest)
    arguments = tuple(_argument(shown, types[i] if i < len(types) else None) for i, shown in enumerate(longest))
    bias = module.load_bias
    passed = {id(site.arguments): site.arguments for site in probe.sites}  # sites that pass the same share it
    operands = {
        key: tuple([_with_sign(shown.operand, one) for shown, one in zip(shared, arguments)])
        for key, shared in passed.items()
    }
    sites = [
        Site(
            site.location.address + bias,
            site.location.address,
            operands[id(site.arguments)],
            site.semaphore.location.address + bias if site.semaphore else 0,
            site.function.name if site.function else "",
            around=Around() if around is None else around.of(site.location.address, site.function),
        )
        for site in probe.sites
    ]  # fmt: skip
    if len({site.address for site in sites}) < len(sites):  # functions that a linker has folded may have a record each
        sites = [*dict.fromkeys(sites)]
    return Target(number, PROBE, probe.provider, probe.name, module, arguments, tuple(sites))


def with_enumerators(target: Target, wanted: Wanted) -> Target:
    """Return a probe whose arguments know what their types call some values."""
    known = dict(wanted.enumerators)
    if not known:
        return target
    types = (" ".join(word for word in one.type.split() if word != "const") for one in target.arguments)
    return target._replace(
        arguments=tuple(one._replace(values=known.get(type_, ())) for one, type_ in zip(target.arguments, types))
    )


def _semaphores(probe: SeenProbe) -> Iterable[Semaphore]:
    """Return a probe's semaphores, of which its sites share one."""
    return {one.location.address: one for site in probe.sites if (one := site.semaphore) is not None}.values()


def _may_count(image: Image, semaphore: Semaphore) -> bool:
    """Whether a probe's semaphore is two bytes of its own file's writable data: a note can name any address.

    Executable segments don't count, nor what the dynamic linker makes read-only.
    """
    at, data = semaphore.location.address, elf.PF_R | elf.PF_W
    if at % 2:
        return False
    inside = [one for one in image.segments if 0 <= at - one.address <= one.memory_size - 2]
    writable = any(one.type == elf.PT_LOAD and one.flags & (data | elf.PF_X) == data for one in inside)
    return writable and not any(one.type == elf.PT_GNU_RELRO for one in inside)


def _declared_types(
    seen: Inspection, probe: SeenProbe, providers: Sequence[Provider], longest: Sequence[Shown]
) -> Sequence[declared.Argument]:
    own = find_declared(seen.providers, probe.provider, probe.name)
    if own is not None:
        return own.arguments
    if any(one.name == probe.provider for one in providers):
        found = find_declared({one.name: (one, "") for one in providers}, probe.provider, probe.name)
        return found.arguments if found is not None else ()
    from .known import known_arguments

    operands = [shown.operand for shown in longest]
    return known_arguments(probe.provider, probe.name, operands, seen.address_size)


def _argument(shown: Shown, known: declared.Argument | None) -> Argument:
    operand = shown.operand
    size = operand.size or 8
    if known is None:
        return Argument("", "", size, operand.signed, FLOAT if operand.floating else INTEGER)
    # Programs cast numbers to words without a sign, as libvirt does: what was declared says what they are.
    return declared_argument(known, size, signed=known.type.signed if known.type.size64 == size else operand.signed)


def _with_sign(operand: Operand, declared: Argument) -> Operand:
    is_whole = declared.type and declared.kind == INTEGER and operand.size == declared.size
    return operand._replace(signed=declared.signed) if is_whole and operand.signed != declared.signed else operand


def declared_argument(known: declared.Argument, size: int, *, signed: bool) -> Argument:
    """Return an argument as a provider file declares it, whose value has so many bytes."""
    type_ = known.type
    kind = STRING if type_.is_string else _KINDS.get(type_.kind, INTEGER)
    return Argument(known.name, type_.spelling, size, signed and kind not in {POINTER, STRING}, kind)


def _functions(one: Loaded, module: Module, wanted: Wanted, first: int) -> Iterator[Target]:
    from ..functions.exits import Exits
    from ..functions.read import FunctionReader

    reader = FunctionReader(one.image)
    report = reader.report
    exits = Exits(reader.space, reader.starts, reader.machine, report.functions) if wanted.returns else None
    starts = reader.starts.by_address
    wanted = wanted.within(module)
    written = demangle_if_possible(name for function in report.functions for name in function.names)
    for function in report.functions:
        names = all_spellings(function.names, written)
        if names and function.size >= wanted.smallest and wanted.takes_function(names):
            if _is_no_function(function) and not wanted.names_function(function.names):
                continue
            site = _entry(function, one.bias)
            shown = written.get(function.name, "")
            found = exits.of(function, partly=wanted.frames) if exits is not None else ""
            leads = found.leads if wanted.frames and not isinstance(found, str) else ()
            sites = (site._replace(leads=leads),)
            yield Target(first, ENTER, "", function.name, module, (), sites, shown, wanted.mangled)
            first += 1
            if exits is not None:
                target = return_target(first, EXIT, function.name, module, (site,), None, one.image)
                returns = _with_returns(target.sites[0], found, function, one.bias, starts.keys())
                yield target._replace(sites=(returns,), written=shown, mangled=wanted.mangled)
                first += 1


def _is_no_function(function: Function) -> bool:
    """Whether it is a part of another function, or of what every program has and nobody calls."""
    return function.reason == "cold-part" or _RUNTIME.fullmatch(function.name) is not None


def _entry(function: Function, bias: int) -> Site:
    """Return the site of a function's entry: its NOPs, if it has some, which stand behind a landing pad."""
    address = (function.entry or function.address) + function.local_entry
    pad = function.landing if function.nops else 0
    padding = function.padding + pad if function.hotpatchable and function.padding else 0
    body = address + function.landing + function.nops
    return Site(address + pad + bias, address + pad, (), 0, function.name, padding=padding, begins=address, body=body)


def _with_returns(site: Site, found: Ends | str, function: Function, bias: int, starts: AbstractSet[int]) -> Site:
    """Return the site of a function's returns with those that it has in its own code."""
    if not function.nops:
        return site._replace(unknown="its entry has no NOPs")
    if isinstance(found, str):
        return site._replace(unknown=found)
    returns = [
        site._replace(
            address=one.address + bias, file_address=one.address, entry=site.address, unused=one.unused, padding=0
        )
        for one in found.exits
    ]
    return site._replace(returns=tuple(_with_near(one, starts) for one in returns))


def _with_near(site: Site, places: AbstractSet[int]) -> Site:
    """Return a site with those of the places (of the file) that are within a jump behind it."""
    if places.isdisjoint(range(site.file_address + 1, site.file_address + _JUMP_SIZE)):
        return site
    behind = [offset for offset in range(1, _JUMP_SIZE) if site.file_address + offset in places]
    return site._replace(near=tuple(site.address + offset for offset in behind))
