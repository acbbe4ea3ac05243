"""The library's sample as a shared library: its probes are its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from usdtbuild.pytest_plugin.user import Usdt

pytestmark = [pytest.mark.project, pytest.mark.live("gdb")]


def test_shared_library_keeps_its_probes_to_itself(builder_of: Any) -> None:
    builder = builder_of("cmake-library")
    configure, make = builder.first()
    builder.do([*configure, "-DBUILD_SHARED_LIBS=ON"])
    builder.do(make)
    builder.finish()
    ctest = Path(builder.tool()).with_name("ctest")
    assert "usdt-verify-tally" in builder.do([ctest, "--test-dir", "build"])
    installed = builder.source / "installed/lib/libtally.so"
    usdt = Usdt("gdb", True, builder.source)
    usdt.assert_declared(installed, builder.source / "tally.d")
    ran = usdt.run(builder.command(), binary=installed)
    assert [(f"{hit.provider}:{hit.probe}", hit.args) for hit in ran.hits] == list(builder.sample.hits)
