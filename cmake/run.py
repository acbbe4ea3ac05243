"""Run the `usdtbuild` that this file belongs to, wherever it lies: `python -E run.py header app.d -o app.h`.

CMake's rules call this instead of the installed `usdtbuild` script, because the CMake package may have been found in
a folder that no Python environment knows: a checkout, a `cmake --install` prefix, another environment's site-packages.
The package is loaded by its path and not by name, so that a second usdtbuild on the same machine can't step in.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_ABOVE = Path(__file__).absolute().parent.parent
# Around this folder where usdtbuild was installed, beside it in a checkout.
PACKAGE = _ABOVE if (_ABOVE / "_version.py").exists() else _ABOVE / "usdtbuild"


def load() -> None:
    """Make `import usdtbuild` mean the package that this file belongs to, and find its dependencies beside it."""
    # The folder of this script is of no use to anybody. The package's own goes last: it is site-packages, where
    # click and the others lie too, or a folder like /usr/share, which must not hide anything.
    sys.path[0:1] = []
    sys.path.append(str(PACKAGE.parent))
    spec = spec_from_file_location("usdtbuild", PACKAGE / "__init__.py", submodule_search_locations=[str(PACKAGE)])
    if spec is None or spec.loader is None:
        raise SystemExit(f"{PACKAGE} doesn't hold usdtbuild")
    package = module_from_spec(spec)
    sys.modules["usdtbuild"] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    load()
    from usdtbuild.__main__ import main

    sys.exit(main())
