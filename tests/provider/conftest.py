"""What the provider language's tests share: parsing a snippet, making headers with the command, files to read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.model import Probe, Provider
from usdtbuild.provider.parser import parse

FILES = Path(__file__).parent / "files"


def _stem(path: Path) -> str:
    return path.stem


@pytest.fixture
def one_provider() -> Callable[[str], Provider]:
    """Parse a text that declares one provider, and return that."""

    def parse_one(text: str) -> Provider:
        (provider,) = parse(text, "app.d")
        return provider

    return parse_one


@pytest.fixture
def one_probe() -> Callable[..., Probe]:
    """Parse arguments (`int fd, char *s`), with declarations in front of the provider, and return their probe."""

    def parse_one(arguments: str, declarations: str = "") -> Probe:
        ((probe,),) = (p.probes for p in parse(f"{declarations}\nprovider app {{ probe p({arguments}); }};", "app.d"))
        return probe

    return parse_one


@pytest.fixture
def make_header(tmp_path: Path, usdtbuild: Any) -> Callable[..., Path]:
    """Write a provider file and make its header with the command; returns the header's path."""

    def make(text: str, name: str = "app", *options: str) -> Path:
        source = tmp_path / f"{name}.d"
        source.write_text(text)
        header = tmp_path / f"{name}.h"
        usdtbuild("header", "--formats=dof", source, "-o", header, *options)
        return header

    return make


@pytest.fixture(params=sorted(path for path in FILES.glob("*.d") if b"#define" not in path.read_bytes()), ids=_stem)
def plain_file(request: pytest.FixtureRequest) -> Path:
    """Those of the files that need no preprocessor."""
    return Path(request.param)


@pytest.fixture(params=sorted(FILES.glob("*.d")), ids=_stem)
def real_file(request: pytest.FixtureRequest) -> Path:
    """Each provider file in the manner of a well-known project."""
    return Path(request.param)
