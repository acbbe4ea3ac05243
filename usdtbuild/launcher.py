"""The compiler launcher's door: `usdtbuild cc`, and the file that build systems run as `python -I -S launcher.py`.

Started as a script, this file is compiled anew each time, and the package around it is not on the path; so it holds
nothing but the way to `launch.compile`, which does the work and is cached like any module. `-I -S` leave out the user's
environment and site-packages: together with importing almost nothing this is what makes a compile step cheap.
"""

import sys


def main(arguments: "list[str]") -> int:
    """Run one compile step (`[OPTIONS] -- COMPILER ARGS`); return the exit code of `usdtbuild cc`."""
    from usdtbuild.launch.compile import run

    return run(arguments)


def _run_as_script() -> int:
    package = __file__[: __file__.rfind("/")]
    # Last, so that nothing in the folder around the package hides a module of Python's own; and never the package
    # itself, which Python puts first without -I, and which has modules named like some of Python's.
    sys.path[:] = [folder for folder in sys.path if folder != package]
    above = f"{package}/.." if package.endswith("/..") else package[: package.rfind("/")]  # usdtbuild.pc says "/.."
    sys.path.append(above)
    if sys.argv[1:2] == ["--link-step"]:
        from usdtbuild.launch.link import link

        return link(sys.argv[2], sys.argv[3:])
    if sys.argv[1:2] == ["--assembler-step"]:
        from usdtbuild.launch.assemble import assemble

        return assemble(sys.argv[2:])
    return main(sys.argv[1:])


if __name__ == "__main__":
    from posix import _exit

    _exit(_run_as_script())  # nothing is buffered, and tearing the interpreter down takes a millisecond
