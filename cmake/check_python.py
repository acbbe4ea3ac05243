"""Tell CMake about the interpreter that runs this file: `python -E check_python.py FOLDER`.

Prints three lines: the interpreter's own path (which for a shim, as pyenv installs them, is not the path it was
called by; a shim costs 90 ms for each compiled file), its version, and the modules usdtbuild needs that it can't
find, FOLDER being where usdtbuild itself lies. Written so that any Python 3 can run it, the ones too
old for usdtbuild included.
"""

import sys
from importlib.util import find_spec

NEEDED = ("click", "rich", "elftools", "capstone")

if __name__ == "__main__":
    sys.path.append(sys.argv[1])
    print(sys.executable)
    print(".".join(str(number) for number in sys.version_info[:3]))
    print(" ".join(name for name in NEEDED if find_spec(name) is None))
