"""Says what a file's declarations mean: types are resolved, pragmas applied, and names held against each other.

All of that needs the whole file: a typedef may follow its use. Takes what grammar.py read and returns `model.Provider`
records; reads no text.
"""

from __future__ import annotations

from ..model import Argument, Attributes, CType, Probe, Provider, Translated, macro_name
from .declarations import Parameter
from .diagnostics import Reports
from .grammar import DeclaredProbe, DeclaredProvider
from .lexer import Pragma
from .types import Resolver, Shape, TypeProblem


class Meaning:
    """Makes records of declarations; each type is resolved once."""

    def __init__(self, resolver: Resolver, reports: Reports) -> None:
        self.resolver, self.reports = resolver, reports
        self.types: dict[tuple[Shape, str], CType] = {}

    def providers(self, declared: list[DeclaredProvider], pragmas: list[Pragma]) -> tuple[Provider, ...]:
        """Resolve types, apply pragmas, and check what can be checked only when the whole file is known."""
        found: dict[str, Provider] = {}
        macros: dict[str, str] = {}
        for provider in declared:
            probes = self._probes(provider)
            if provider.name in found:
                self._check_reopened(provider, found[provider.name], probes)
                continue
            found[provider.name] = Provider(provider.name, probes, Attributes(), provider.comment)
            for probe in provider.probes:
                self._check_macros(provider.name, probe, macros)
        if pragmas:
            from . import stability

            for pragma in pragmas:
                stability.apply(pragma, found, self.reports)
        return tuple(found.values())

    def _probes(self, provider: DeclaredProvider) -> tuple[Probe, ...]:
        seen: dict[str, Probe] = {}
        for probe in provider.probes:
            if probe.name in seen:
                twice = f"probe '{probe.name[:80]}' is declared twice in provider {provider.name}"
                self.reports.report(probe.offset, twice)
                continue
            native = tuple(Argument(self._resolve(p), p.name) for p in probe.native)
            self._check_names(probe)
            translated = None if probe.translated is None else self._translated(probe)
            seen[probe.name] = Probe(probe.name, native, translated, probe.comment)
        return tuple(seen.values())

    def _check_names(self, probe: DeclaredProbe) -> None:
        names = set[str]()
        for _, _, name, offset in probe.native:
            if name in names:
                twice = f"probe '{probe.name[:80]}' has two arguments named '{name[:80]}'"
                self.reports.tolerate(offset, twice, "taken as it stands")
            names.update([name] if name else [])

    def _resolve(self, parameter: Parameter) -> CType:
        key = (parameter.shape, parameter.spelling)
        if key not in self.types:
            try:
                self.types[key] = self.resolver.resolve(*key)
            except TypeProblem as problem:
                if problem.instead is None or not self.reports.forgiving:
                    self.reports.report(parameter.offset, str(problem))
                    return CType("", "", False, 0, 0)
                self.reports.tolerate(parameter.offset, str(problem), problem.so)
                self.types[key] = problem.instead
        return self.types[key]

    def _translated(self, probe: DeclaredProbe) -> tuple[Translated, ...]:
        """Say which native argument each translated one comes from: the one of its name, else of its place."""
        found: list[Translated] = []
        names = [native.name for native in probe.native]
        for index, (_, spelling, name, offset) in enumerate(probe.translated or ()):
            if len(spelling) > 127:
                self.reports.report(offset, f"the type is {len(spelling)} characters long, and DTrace takes 127")
            if name and name in names:
                found.append(Translated(spelling, name, names.index(name)))
            elif name:
                missing = "has no argument of that name to come from"
                self.reports.report(offset, f"translated argument '{name[:80]}' {missing}")
            elif index < len(names):
                found.append(Translated(spelling, name, index))
            else:
                self.reports.report(offset, f"translated argument {index + 1} has no argument to come from")
        return tuple(found)

    def _check_reopened(self, provider: DeclaredProvider, first: Provider, probes: tuple[Probe, ...]) -> None:
        """A provider may be declared again with probes that it has; anything else is two providers of one name."""
        known = {probe.written: probe._replace(comment="") for probe in first.probes}
        for probe, place in zip(probes, provider.probes):
            if known.get(probe.written) != probe._replace(comment=""):
                self.reports.report(place.offset, f"provider {first.name} is declared already, and has no such probe")

    def _check_macros(self, provider: str, probe: DeclaredProbe, macros: dict[str, str]) -> None:
        """Two probes must not become one macro (`a_b` and `a__b`; `a` and `a_enabled`)."""
        name = f"{provider}:{probe.name}"
        macro = macro_name(provider, probe.name)
        for each in (macro, f"{macro}_ENABLED"):
            other = macros.setdefault(each, name)
            if other != name:
                both = f"probes {other[:120]} and {name[:120]}"
                self.reports.report(probe.offset, f"{both} would both be the macro {each[:120]}")
                return
