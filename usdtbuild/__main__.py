"""The entry point: hands compiler launches to the launcher at once, everything else to the command line.

A compile step runs this once per source file, so the launcher's path imports nothing that it doesn't use; click
alone would triple its cost. Plain `header` commands, which builds run too, skip click as well.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run `usdtbuild` with `sys.argv`; return the process's exit code."""
    if len(sys.argv) > 1 and sys.argv[1] == "cc":
        from .launcher import main as launch

        return launch(sys.argv[2:])
    from .ending import run

    return run(_command, "usdtbuild")


def _command() -> int:
    if len(sys.argv) > 1 and sys.argv[1] == "header":
        from .provider.fast import main as header

        code = header(sys.argv[2:])
        if code is not None:
            return code
    from .cli import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
