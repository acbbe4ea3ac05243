"""From a project's folder to the texts of its files with a first probe, proved in a copy of the project.

The copy is built as it is, then with a probe in the most wanted product's source, until a place is found with which it
builds and the probe is in the product. The build finds no usdtbuild, so the people who build the project need none.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ..errors import InputError, UsageError
from ..inspection.probes import inspect
from ..inspection.targets import files as binaries
from ..provider import complete
from ..provider.parser import parse_bytes
from .builds import Build, BuildError, Tick
from .changes import ProjectFiles
from .products import Product, Products, Source, find_products
from .scratch import copy, project_files
from .sources import RANKS, Place, fired, places

_PROVIDER = """\
/* The probes of {name}. More go here, with arguments as in C: probe request__done(int id, char *path); then make the
   header again, in the project's folder: usdtbuild header {provider} -o {header} */
provider {name} {{
    /* {comment} */
    probe {probe}();
}};
"""
COMMENTS = {
    "started": "The program starts.",
    "loaded": "Python loads the module.",
    "called": "A first probe: put it where it says something.",
}
_IS_PROVIDER = re.compile(r"^\s*provider\s+(\w+)\s*\{", re.MULTILINE)
# A compiler judges so many places, and the whole build so many that passed.
_MOST_PLACES, _MOST_BUILDS = 80, 3
_LARGEST_SOURCE = 4 << 20


class Wish(NamedTuple):
    """What is asked for: the provider's name, the product's and the source's or "", and words for the configuration."""

    name: str
    target: str
    source: str
    options: tuple[str, ...]


class ProbePlan(NamedTuple):
    """What `usdtbuild add` found and proved, and what it changes; `new` are the files that there are only then."""

    kind: str
    product: Product
    others: list[Product]
    source: str
    probe: str
    new: list[str]
    changes: ProjectFiles


def plan(root: Path, kind: str, wish: Wish, tick: Tick) -> ProbePlan:
    """Return what gives the project a first probe. Raises UsdtError where that can't be had."""
    files = project_files(root)
    for path in files:
        if path.endswith(".d") and (root / path).is_file() and _IS_PROVIDER.search(ProjectFiles(root).text(path)):
            raise InputError(str(root / path), "is a provider file: the project has probes", "add to it")
    with TemporaryDirectory(prefix="usdtbuild-add-", ignore_cleanup_errors=True) as name:
        scratch = Path(name).resolve()
        copied = scratch / "copy" / (root.resolve().name or "project")
        copy(root, files, copied)
        build = Build(kind, copied, scratch, wish.options, tick)
        try:
            build.configure()
            build.build()
        except BuildError as error:
            raise error.without_probe(kind) from None
        return _Search(root, build, wish, files).run()


class _Search:
    """The way through products, sources and places, until one is right."""

    def __init__(self, root: Path, build: Build, wish: Wish, files: list[str]) -> None:
        self.root, self.build, self.wish, self.files = root, build, wish, files
        self.object = str(build.root.parent / "tried.o")
        self.places = self.builds = 0
        self.why: BuildError | None = None

    def run(self) -> ProbePlan:
        """Return the first plan that holds. Raises InputError, UsageError and BuildError."""
        products = find_products(self.build, self.files)
        chosen = self._chosen(products)
        for product in chosen:
            for rank in RANKS:
                for source in product.sources:
                    if self.wish.source in ("", source.path):
                        found = self._try_source(product, source, rank)
                        if found:
                            others = [each for each in products.found if each != product]
                            return found._replace(others=others)
        if self.why:
            raise self.why
        sources = ", ".join(source.path for source in chosen[0].sources[:3])
        what = f"there is no function in {sources} that can have a probe: none of its places is in what is built"
        raise InputError(str(self.root), what, "choose another with --source or --target")

    def _chosen(self, products: Products) -> list[Product]:
        """Return the products to try, without tests and the build's own tools unless there is nothing else."""
        found, wish = products.found, self.wish
        if not found:
            reasons = [f"{path} {reason}" for path, reason in products.left_out.items() if reason][:3]
            unseen = "a library of headers only, or a compiler that isn't called by its name"
            why = "; ".join(reasons) or unseen
            raise InputError(
                str(self.root), f"builds no program or library from C or C++ sources of its own ({why})",
                "add probes by hand, as the page on the build system says",
            )  # fmt: skip
        if wish.target:
            chosen = [product for product in found if product.called(wish.target)]
            if not chosen:
                names = ", ".join(product.name for product in found)
                raise UsageError(
                    f"--target {wish.target}: the build makes no such program or library; it makes {names}"
                )
            found = chosen
        if wish.source:
            chosen = [product for product in found if wish.source in (source.path for source in product.sources)]
            if not chosen:
                reason = products.left_out.get(wish.source) or "is compiled into none of the programs and libraries"
                raise UsageError(f"--source {wish.source}: it {reason}")
            found = chosen
        return [product for product in found if product.order()[:2] == found[0].order()[:2]]

    def _try_source(self, product: Product, source: Source, rank: int) -> ProbePlan | None:
        file = self.root / source.path
        if file.stat().st_size > _LARGEST_SOURCE:
            return None
        text = ProjectFiles(self.root).text(source.path)
        wanted = list(islice(places(text, rank), _MOST_PLACES))
        if not wanted:
            return None
        flags, absent_in = self._flags(source), -1
        for place in wanted:
            if self.places >= _MOST_PLACES or self.builds >= _MOST_BUILDS:
                return None
            if place.function == absent_in:
                continue
            self.places += 1
            self.build.tick(source.path)
            found = self._planned(product, source, place)
            self._put(found.changes)
            try:
                if flags is not None and self._compile(source, flags):
                    continue
                if flags is not None and not self._has(Path(self.object), found.probe):
                    absent_in = place.function  # an #if leaves it out, or nothing calls it
                elif self._holds(found):
                    return found
            finally:
                self._put(found.changes, back=True)
        return None

    def _flags(self, source: Source) -> list[str] | None:
        """Return what is added to the command that compiles a source; None if that command fails by itself.

        A declaration behind a statement is refused in the sources that have none, as C90 wants it.
        """
        strict = ["-Werror=declaration-after-statement"] if source.path.endswith(".c") else []
        return next((flags for flags in (strict, []) if not self._compile(source, flags)), None)

    def _compile(self, source: Source, flags: list[str]) -> int:
        path = str(self.build.root / source.path)
        Path(self.object).unlink(missing_ok=True)
        words = [self.build.recorder.real(source.command.tool), *source.command.only(path, self.object), *flags]
        try:
            return subprocess.run(
                words, cwd=source.command.folder, env=self.build.environment, capture_output=True, check=False,
                stdin=subprocess.DEVNULL,
            ).returncode  # fmt: skip
        except OSError:  # its folder is gone
            return 1

    def _planned(self, product: Product, source: Source, place: Place) -> ProbePlan:
        name, changes = self.wish.name, ProjectFiles(self.root)
        folder = os.path.dirname(source.path)  # noqa: PTH120 (relative, with slashes)
        # Where Make builds, `*.d` beside sources are often lists of dependencies, which `make clean` removes.
        within = "probes/" if self.build.kind in ("make", "autotools") else ""
        stem = _stem(self.root, self.files, name)
        provider, header = (f"{folder}/{within}{stem}{end}".lstrip("/") for end in (".d", ".h"))
        text = provider_text(provider, name, place.probe)
        changes.put(provider, text)
        changes.put(header, header_of(text, provider))
        macro = f"{name}_{place.probe}".upper()
        changes.put(source.path, fired(changes.text(source.path), place, f"{within}{stem}.h", macro))
        if self.build.kind == "setuptools":  # whose sdist takes no headers by itself
            manifest = "MANIFEST.in"
            before = changes.text(manifest) if (self.root / manifest).exists() else ""
            separate = "\n" if before and not before.endswith("\n") else ""
            changes.put(manifest, f"{before}{separate}{manifest_line(provider)}\n")
        return ProbePlan(self.build.kind, product, [], source.path, place.probe, [provider, header], changes)

    def _put(self, changes: ProjectFiles, *, back: bool = False) -> None:
        for path, text in changes.changed().items():
            target = self.build.root / path
            target.unlink(missing_ok=True)
            if not back or not changes.is_new(path):
                target.parent.mkdir(parents=True, exist_ok=True)
                content = ProjectFiles(self.root).text(path) if back else text or ""
                target.write_bytes(content.encode("utf-8", "surrogateescape"))

    def _has(self, path: Path, probe: str) -> bool:
        try:
            seen = [inspect(image) for image in binaries(str(path), lambda _: None)]
        except InputError:
            return False
        wanted = (self.wish.name, probe.replace("_", "-"))
        return any((each.provider, each.name.replace("_", "-")) == wanted for found in seen for each in found.probes)

    def _holds(self, found: ProbePlan) -> bool:
        """Whether the whole copy builds with the probe, and it is in the product."""
        self.builds += 1
        try:
            self.build.build()
        except BuildError as error:
            self.why = error
            return False
        kept = [self.build.root / path for path in found.new]
        there = any(self._has(path, found.probe) for path in self.build.results(found.product.path))
        return there and self.build.survives_cleaning(kept)


def header_of(text: str, provider: str) -> str:
    """Return the header that `usdtbuild header` makes of a provider file's text. Raises ParseError."""
    return complete.write(parse_bytes(text.encode(), provider))


def manifest_line(provider: str) -> str:
    """Return the line of MANIFEST.in that puts a provider and its header into an sdist."""
    return f"include {provider} {provider[:-2]}.h"


def provider_text(path: str, name: str, probe: str) -> str:
    """Return the provider file that is written to a path below the project's folder."""
    return _PROVIDER.format(
        name=name, provider=path, header=f"{path[:-2]}.h", probe=probe, comment=COMMENTS.get(probe, "")
    )


def _stem(root: Path, files: Sequence[str], name: str) -> str:
    """Return what the provider file and its header are called: as nothing else there is. Raises InputError."""
    used = {path.rpartition("/")[2].lower() for path in files}
    for stem in (name, f"{name}_probes"):
        if not {f"{stem}.h", f"{stem}.d"} & used and not Path(f"/usr/include/{stem}.h").exists():
            return stem
    raise InputError(str(root), f"{name}.h and {name}_probes.h are there already", "choose another --name")
