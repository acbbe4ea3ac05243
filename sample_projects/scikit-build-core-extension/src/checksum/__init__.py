"""Adler-32 checksums."""

from ._core import adler32

__all__ = ["adler32"]
