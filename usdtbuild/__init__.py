"""Static probes (USDT) for C and C++ programs, from one provider file.

This package file is imported before everything else, the compiler launcher's hot path included, and therefore
imports nothing but the version.
"""

from ._version import __version__

__all__ = ["__version__"]
