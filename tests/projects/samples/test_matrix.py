"""The folders are the matrix, and every sample is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent


def test_every_folder_builds_its_samples_and_every_sample_is_built(request: pytest.FixtureRequest) -> None:
    machinery = next(
        plugin for plugin in request.config.pluginmanager.get_plugins()
        if getattr(plugin, "__file__", None) == str(HERE / "conftest.py")
    )  # fmt: skip
    assert {path.parent.name for path in HERE.glob("*/test_life.py")} == set(machinery.FOLDERS)
    elsewhere = {
        "live-metrics",
        "probes-in-googletest",
        "committed-header",
    }  # ../test_live_runtime.py, ../test_committed.py
    there = {path.parent.name for path in (ROOT / "sample_projects").glob("*/README.md")}
    assert there == set(machinery.SAMPLES) | elsewhere
