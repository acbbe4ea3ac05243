"""Prime numbers."""

from ._core import count

__all__ = ["count"]
