"""The samples' life with the distribution's CMake and make."""

from __future__ import annotations

from typing import Any


def test_life_of_a_sample(sample: Any, live: Any) -> None:
    live(sample)
