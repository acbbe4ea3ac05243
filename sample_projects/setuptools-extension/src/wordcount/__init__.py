"""Counts words."""

from ._core import count

__all__ = ["count"]
