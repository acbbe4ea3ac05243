"""A folder to assemble in, for objects with exactly the ELF feature that a test is about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Assemble = Callable[..., Path]


@pytest.fixture
def assemble(tmp_path: Path, run: Any) -> Assemble:
    """Assemble a text: `assemble(".text; ret")`, `assemble(text, "clang")`."""

    def make(text: str, compiler: str = "gcc", *flags: str) -> Path:
        source = tmp_path / "source.s"
        source.write_text(text + "\n")
        target = tmp_path / f"{compiler}.o"
        run(compiler, *flags, "-c", source, "-o", target)
        return target

    return make
