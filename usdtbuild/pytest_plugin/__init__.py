"""The pytest plugin: a project's own tests check its probes, and see them fire (docs/pytest.md).

    def test_probes(usdt):
        usdt.assert_declared("build/app", "app.d")
        ran = usdt.run(["build/app", "Ada"])
        assert [hit.args for hit in ran.hits["app:start"]] == [(1, "Ada")]

pytest imports this module in every environment that has usdtbuild, so it imports nothing until the fixture is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .user import Usdt

_TRACERS = "auto, patch, trap, inside, remote, bpftrace or gdb"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the fixture."""
    group = parser.getgroup("usdt", "probes (usdtbuild)")
    group.addoption("--usdt-tracer", metavar="NAME", help=f"what sees probes fire: {_TRACERS} (ini: usdt_tracer)")
    group.addoption(
        "--usdt-require-tracer",
        action="store_true",
        default=None,
        help="fail tests that need a tracer where there is none, instead of skipping them (ini: usdt_require_tracer)",
    )
    parser.addini("usdt_tracer", f"what sees probes fire: {_TRACERS}", default="auto")
    parser.addini("usdt_require_tracer", "fail where there is no tracer", type="bool", default=False)


@pytest.fixture(scope="session")
def usdt(request: pytest.FixtureRequest) -> Usdt:
    """Check that a binary has the probes its provider declares, and see them fire."""
    from .user import Usdt

    config = request.config
    tracer = config.getoption("usdt_tracer") or config.getini("usdt_tracer")
    required = config.getoption("usdt_require_tracer") or config.getini("usdt_require_tracer")
    return Usdt(str(tracer), bool(required), config.rootpath)
