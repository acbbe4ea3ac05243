"""The entry point: hands compiler launches to the launcher at once, everything else to the command line.

A compile step runs this once per source file, so the launcher's path imports nothing that it doesn't use; click
alone would triple its cost.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run `usdtbuild` with `sys.argv`; return the process's exit code."""
    if len(sys.argv) > 1 and sys.argv[1] == "cc":
        from .launcher import main as launch

        return launch(sys.argv[2:])
    from .cli import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
