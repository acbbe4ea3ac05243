"""Static probes (USDT) for C and C++ programs, from one provider file.

This package file is imported before everything else, the compiler launcher's hot path included, and therefore
imports nothing; the version is read when it is asked for.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._version import __version__

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    if name == "__version__":
        from ._version import __version__

        return __version__
    raise AttributeError(name)
