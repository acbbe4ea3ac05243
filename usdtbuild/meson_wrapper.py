"""`usdtbuild-meson`: Meson with one function more, `usdt_provider('app.d')`.

Runs the Meson that is installed, in this process, after adding the function to its interpreter. The function returns a
dependency: header and compiler options in one, to be named in a target's `dependencies:`, or among its sources. What
it does is written in Meson's own language (`meson/dependency/meson.build`, which the subproject runs too), because the
language is stable and Meson's Python is not: all that is used of the latter is the table of functions, the parser, and
the evaluation of a block of code, unchanged from Meson 1.0 to 1.12. Meson writes the name of the program that it was
started with into build.ninja, so configuring anew comes here again.
"""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .folders import folder
from .options import NOPS, SYSTEMS, TABLES

CODE = folder("meson") / "dependency" / "meson.build"
TARGETS = (
    *("executable", "library", "shared_library", "static_library", "both_libraries", "shared_module"),
    "build_target",
)
# Keyword -> what its value must be; these are the options of the subproject.
KEYWORDS = {
    "formats": str, "nop": str, "target_os": str, "patchable_function_entry": str, "patchable_table": str,
    "site_table": bool, "live": bool, "disabled": bool, "language": str,
}  # fmt: skip
CHOICES = {
    "nop": NOPS,
    "target_os": tuple(SYSTEMS),
    "patchable_table": TABLES,
    "language": ("c", "cpp"),
}
_MARK = "_usdtbuild_provider"


def main() -> int:
    """Run Meson with `sys.argv`; return its exit code."""
    try:
        from mesonbuild import mesonmain
    except ImportError:
        sys.stderr.write(
            "usdtbuild-meson: Meson isn't installed for this Python; install it with "
            f"'{sys.executable} -m pip install meson'\n"
        )
        return 1
    extend()
    return int(mesonmain.main())


def extend() -> None:
    """Add `usdt_provider()` to Meson's interpreter."""
    from mesonbuild.interpreter import Interpreter

    build_table = Interpreter.build_func_dict

    def with_ours(self: Any) -> None:
        build_table(self)
        self.funcs["usdt_provider"] = _Function(self)
        for name in TARGETS:
            self.funcs[name] = _taking_providers(self.funcs[name])

    Interpreter.build_func_dict = with_ours
    _extend_python_module()
    _extend_reader()


def _extend_python_module() -> None:
    """Let Python's `extension_module()` take providers among its sources."""
    from mesonbuild.modules.python import PythonInstallation

    name = "extension_module"
    taking = _taking_providers(PythonInstallation.extension_module_method)
    PythonInstallation.extension_module_method = taking
    if name in getattr(PythonInstallation, "METHODS", {}):  # where newer Mesons look methods up
        PythonInstallation.METHODS[name] = taking


def _extend_reader() -> None:
    """Let `introspect` and `rewrite`, which read meson.build without running it, know the function."""
    from mesonbuild.ast import AstInterpreter

    start = AstInterpreter.__init__

    @functools.wraps(start)
    def with_ours(self: Any, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **kwargs)
        self.funcs["usdt_provider"] = self.func_do_nothing

    AstInterpreter.__init__ = with_ours


def _taking_providers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function that makes a target take what `usdt_provider()` returns among its sources."""

    @functools.wraps(function)  # it may carry marks that say how it wants its arguments
    def call(node: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        ours = [item for item in args if hasattr(item, _MARK)]
        if ours:
            given = kwargs.get("dependencies", [])
            kwargs = {**kwargs, "dependencies": [*(given if isinstance(given, list) else [given]), *ours]}
            args = [item for item in args if not hasattr(item, _MARK)]
        return function(node, args, kwargs)

    return call


class _Function:
    """`usdt_provider()` of one project; it remembers the compilers' options, which take a compilation to find out."""

    def __init__(self, interpreter: Any) -> None:
        self.interpreter = interpreter
        self.made: dict[tuple[Any, ...], dict[str, Any]] = {}

    def __call__(self, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        from mesonbuild.interpreterbase import InvalidArguments

        sources = [item for arg in args for item in (arg if isinstance(arg, list) else [arg])]
        if not sources:
            raise InvalidArguments("usdt_provider() needs a provider file, such as usdt_provider('app.d').")
        for name, value in kwargs.items():
            if name not in KEYWORDS:
                raise InvalidArguments(f"usdt_provider() has no keyword {name}; it has {', '.join(sorted(KEYWORDS))}.")
            if not isinstance(value, KEYWORDS[name]):
                raise InvalidArguments(f"usdt_provider(): {name} must be of type {KEYWORDS[name].__name__}.")
            if value and value not in CHOICES.get(name, (value,)):
                raise InvalidArguments(f"usdt_provider(): {name} is one of {', '.join(CHOICES[name])}, not '{value}'.")
        variables = self._common(dict(kwargs))
        language = kwargs.get("language")
        options = variables[f"usdt_{language}_dep" if language else "usdt_dep"]
        made = self._run(
            "usdt_result = declare_dependency(sources: usdt_provider.process(sources), dependencies: options)",
            {"usdt_provider": variables["usdt_provider"], "options": options, "sources": sources},
        )
        found = made["usdt_result"].held_object
        setattr(found, _MARK, True)
        return found

    def _common(self, wanted: dict[str, Any]) -> dict[str, Any]:
        from mesonbuild.mesonlib import MachineChoice

        wanted.pop("language", None)
        present = self.interpreter.coredata.compilers[MachineChoice.HOST]
        languages = [name for name in ("c", "cpp") if name in present]
        key = (*languages, *sorted(wanted.items()))
        if key not in self.made:
            options = [
                f"--{'patchable' if name == 'patchable_function_entry' else name.replace('_', '-')}"
                + ("" if value is True else f"={value}")
                for name, value in sorted(wanted.items())
                if name not in ("disabled", "live") and value
            ]
            given = {
                "program": _program(),
                "probes": not wanted.get("disabled", False),
                "live": wanted.get("live", False),
                "languages": languages,
                "hook_options": options,
            }
            self.made[key] = self._run(_PREAMBLE + CODE.read_text(), given)
        return self.made[key]

    def _run(self, code: str, given: dict[str, Any]) -> dict[str, Any]:
        """Evaluate Meson code in which only the variables of `given`, and Meson's own, exist; return all variables."""
        from mesonbuild import mparser

        interpreter = self.interpreter
        # The call may stand inside another's arguments, where nothing can be assigned; our code isn't an argument.
        names = ("variables", "current_node", "argument_depth")
        before = {name: getattr(interpreter, name) for name in names}
        try:
            interpreter.variables, interpreter.argument_depth = {}, 0
            for name, value in given.items():
                interpreter.variables[name] = value if hasattr(value, "held_object") else interpreter._holderify(value)  # noqa: SLF001
            interpreter.evaluate_codeblock(mparser.Parser(code, str(CODE)).parse())
            return dict(interpreter.variables)
        except Exception as error:
            if hasattr(error, "lineno"):  # Meson fills in where nothing is known yet: the line that called us
                error.lineno = None
            raise
        finally:
            for name, value in before.items():
                setattr(interpreter, name, value)


_PREAMBLE = """\
usdtbuild = find_program(program)
hook_folder = meson.global_build_root() / 'meson-private' / 'usdtbuild'
"""


def _program() -> str:
    beside = Path(sys.argv[0]).resolve().with_name("usdtbuild")
    return str(beside) if beside.is_file() else shutil.which("usdtbuild") or "usdtbuild"


if __name__ == "__main__":
    sys.exit(main())
