"""Write the list of what the product is made of, sbom.cdx.json (CycloneDX): `python tools/sbom.py [--check]`.

The source distribution carries it. It names this project, what it brings along, and the packages that it needs, in the
versions that tools/locked/demo.txt has. The same sources give the same bytes. It is not part of the product.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot5
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parent.parent
SBOM = ROOT / "sbom.cdx.json"
UPLOT = ROOT / "usdtbuild/tracing/outputs/page/uPlot.iife.min.js"
BUILD_ONLY = {"hatchling", "editables", "packaging", "pathspec", "pluggy", "trove-classifiers"}


def main(arguments: list[str]) -> int:
    """Write the file, or compare it; return the exit code."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    text = written()
    if arguments and (not SBOM.is_file() or SBOM.read_text() != text):
        print("sbom.cdx.json is not what the sources say; run make sbom", file=sys.stderr)
        return 1
    SBOM.write_text(text)
    return 0


def written() -> str:
    """Return the file's content."""
    from usdtbuild import __version__

    licence = LicenseFactory()
    product = component("usdtbuild", __version__, "Apache-2.0")
    uplot = re.search(r"\(v([\d.]+)\)", UPLOT.read_text()[:200])
    assert uplot
    brought = Component(
        type=ComponentType.LIBRARY, name="uPlot", version=uplot[1], licenses=[licence.make_from_string("MIT")],
        purl=PackageURL("npm", None, "uplot", uplot[1]), bom_ref=f"uPlot@{uplot[1]}",
    )  # fmt: skip
    needed = [component(name, version) for name, version in locked() if name not in BUILD_ONLY]
    bom = Bom(components=[brought, *needed], serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"usdtbuild@{__version__}"))
    bom.metadata.component = product
    bom.register_dependency(product, [brought, *needed])
    document = json.loads(JsonV1Dot5(bom).output_as_string())
    del document["metadata"]["timestamp"]  # the same sources, the same bytes
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def component(name: str, version: str, licence: str = "") -> Component:
    """Return a package of Python's index."""
    return Component(
        type=ComponentType.LIBRARY, name=name, version=version, purl=PackageURL("pypi", None, name, version),
        licenses=[LicenseFactory().make_from_string(licence)] if licence else [], bom_ref=f"{name}@{version}",
    )  # fmt: skip


def locked() -> list[tuple[str, str]]:
    """Return names and versions of what is installed to run the product."""
    text = (ROOT / "tools/locked/demo.txt").read_text()
    return sorted(set(re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
