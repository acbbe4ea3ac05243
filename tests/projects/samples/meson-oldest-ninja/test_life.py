"""The samples' life with the oldest supported Meson and Ninja."""

from __future__ import annotations

from typing import Any


def test_life_of_a_sample(sample: Any, live: Any) -> None:
    live(sample)
