"""Run the `usdtbuild` that this file belongs to, wherever it lies: `python -E run.py header app.d -o app.h`.

CMake's rules call this instead of the installed `usdtbuild` script, because the CMake package may have been found in
a folder that no Python environment knows: a checkout, a `cmake --install` prefix, another environment's site-packages.
The package is loaded by its path and not by name, so that a second usdtbuild on the same machine can't step in.
"""

# pathlib and importlib.util would take longer to import than a header to make.
# ruff: noqa: PTH109, PTH110, PTH118, PTH120

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader

_ABOVE = os.path.dirname(os.path.dirname(os.path.join(os.getcwd(), __file__)))
# Around this folder where usdtbuild was installed, beside it in a checkout.
PACKAGE = _ABOVE if os.path.exists(f"{_ABOVE}/_version.py") else f"{_ABOVE}/usdtbuild"


def load() -> None:
    """Make `import usdtbuild` mean the package that this file belongs to, and find its dependencies beside it."""
    # The folder of this script is of no use to anybody. The package's own goes last: it is site-packages, where
    # click and the others lie too, or a folder like /usr/share, which must not hide anything.
    sys.path[0:1] = []
    sys.path.append(os.path.dirname(PACKAGE))
    start = f"{PACKAGE}/__init__.py"
    if not os.path.exists(start):
        raise SystemExit(f"{PACKAGE} doesn't hold usdtbuild")
    loader = SourceFileLoader("usdtbuild", start)
    package = type(sys)("usdtbuild")
    package.__spec__ = ModuleSpec("usdtbuild", loader, origin=start, is_package=True)
    package.__file__, package.__path__, package.__package__ = start, [PACKAGE], "usdtbuild"
    sys.modules["usdtbuild"] = package
    loader.exec_module(package)


if __name__ == "__main__":
    load()
    from usdtbuild.__main__ import main

    sys.exit(main())
