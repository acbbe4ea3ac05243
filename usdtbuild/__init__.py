"""Static probes (USDT) for C and C++ programs, from one provider file.

What other programs may use is named here, and is `api`'s (docs/api.md). This package file is imported before
everything else, the compiler launcher's hot path included, and therefore imports nothing before it is asked for.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._version import __version__
    from .api import (
        Argument,
        Counts,
        Finding,
        Frame,
        Hit,
        InputError,
        ParseError,
        Probe,
        Row,
        Trace,
        TracerError,
        Unreadable,
        UsageError,
        UsdtError,
        check,
        compile_provider,
        probes,
        trace,
    )

__all__ = ["Argument", "Counts", "Finding", "Frame", "Hit", "InputError", "ParseError", "Probe", "Row", "Trace",
           "TracerError", "Unreadable", "UsageError", "UsdtError", "__version__", "check", "compile_provider",
           "probes", "trace"]  # fmt: skip


def __getattr__(name: str) -> object:
    if name == "__version__":
        from ._version import __version__

        return __version__
    if name in __all__:
        from importlib import import_module

        found: object = getattr(import_module(".api", __name__), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
