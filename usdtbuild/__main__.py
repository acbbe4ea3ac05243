"""The entry point: hands compiler launches to the launcher at once, everything else to the command line.

A compile step runs this once per source file, so the launcher's path imports nothing that it doesn't use; click
alone would triple its cost. Plain `header` and `instrument` commands, which builds run too, skip click as well.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run `usdtbuild` with `sys.argv`; return the process's exit code."""
    if sys.argv[1:2] == ["cc"] and sys.argv[2:3] not in ([], ["-h"], ["--help"]):
        from .launcher import main as launch

        return launch(sys.argv[2:])
    from . import ending

    if len(sys.argv) > 1 and sys.argv[1] in ("header", "instrument"):
        return ending.run_and_leave(_quick_way, "usdtbuild")
    traces = sys.argv[1:2] in (["trace"], ["top"]) and "--help" not in sys.argv
    return ending.run(_trace if traces else _command_line, "usdtbuild")


def _quick_way() -> int:
    if sys.argv[1] == "header":
        from .provider.fast import main as quick
    else:
        from .instrument.fast import main as quick
    code = quick(sys.argv[2:])
    return _command_line() if code is None else code


def _command_line() -> int:
    from .cli import main

    return main()


def _trace() -> int:
    if any(word.partition("=")[0] == "--last" for word in sys.argv):
        import _signal  # type: ignore[import-not-found]  # `signal` takes 4 ms

        # SIGUSR1 asks for what is kept, and has no answer yet. What is ignored or blocked, a command would inherit.
        _signal.signal(_signal.SIGUSR1, lambda *_: None)
    from .tracing.begin import begin_ahead, end_ahead

    begin_ahead()
    try:
        return _command_line()
    finally:
        end_ahead()


if __name__ == "__main__":
    sys.exit(main())
