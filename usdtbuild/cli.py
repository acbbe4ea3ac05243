"""The command line's front door: lists the commands and loads the one that was asked for.

Each command lives in its own module under `usdtbuild.commands`, as a click command named `command`; this module
knows only their names and one line about each, so that `usdtbuild --help` imports none of them. Errors of the user's
making (`UsdtError`) become one line on stderr and their exit code here, in one place.
"""

from __future__ import annotations

import importlib
import os

import click

from . import __version__
from .commands.say import complain, echo
from .errors import UsdtError
from .folders import folder as folder_of

# command -> (module under usdtbuild.commands, its line in `usdtbuild --help`)
COMMANDS = {
    "init": ("init", "Write a new project with probes for CMake, Meson or a Python build backend."),
    "add": ("add", "Put a first probe into a project that exists, or show what that changes."),
    "header": ("header", "Turn a provider file (.d) into a C and C++ header."),
    "vendor": ("vendor", "Put usdtbuild's files for CMake, Meson or Autotools into a project."),
    "install-dtrace": ("install_dtrace", "Put a program named dtrace into a folder, for builds that call one."),
    "list": ("list_", "Show the probes of a binary, object, folder or process."),
    "dof": ("dof", "Show and check DTrace's object format."),
    "verify": ("verify", "Check that the probes of a finished binary will work."),
    "functions": ("functions", "Show which functions can be patched while the program runs, and why not."),
    "calls": ("calls", "Show the library functions that a binary or process calls, and through what."),
    "trace": ("trace", "See probes and functions of a program fire, with their arguments."),
    "top": ("top", "See which probes, keys and latencies of a program are the busiest, as it runs."),
    "script": ("script", "Write a program for bpftrace, libbpf, SystemTap, perf, gdb or DTrace."),
    "flags": ("flags", "Print the compiler options for patchable function entries, checked for this compiler."),
    "cc": ("cc", "For DOF and special cases: run a compiler, and post-process the objects it writes."),
    "hook": ("hook", "For DOF and special cases: print options that make a compiler post-process its objects."),
    "instrument": ("instrument", "For DOF and special cases: turn an object's probe calls into NOPs with records."),
}


class _LazyCommands(click.Group):
    """A group whose commands are imported only when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f".commands.{COMMANDS[cmd_name][0]}", __package__)
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(name, COMMANDS, 1)
            ctx.fail(f"There is no command '{name}'." + (f" Did you mean '{near[0]}'?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _path_option(name: str, place: str, text: str) -> click.Option:
    """An option that prints the absolute paths of files or folders of the package, bare, for use in scripts."""
    room, *pattern = place.split("/", 1)

    def show(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted and not ctx.resilient_parsing:
            found = sorted(folder_of(room).glob(*pattern)) if pattern else [folder_of(room)]
            echo("\n".join(map(str, found)))
            ctx.exit()

    return click.Option([name], is_flag=True, expose_value=False, is_eager=True, callback=show, help=text)


@click.command(
    cls=_LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        _path_option("--cmake-dir", "cmake", "Print the folder with USDTBuildConfig.cmake."),
        _path_option("--meson-dir", "meson", "Print the folder with the Meson subproject."),
        _path_option("--pkgconfig-dir", "pkgconfig", "Print the folder with usdtbuild.pc."),
        _path_option("--version-file", "_version.py", "Print the path of a file that changes with the version."),
        _path_option("--include-dir", "runtime", "Print the folder with the runtime's C sources."),
        _path_option("--live-sources", "runtime/live/*.c", "Print the live runtime's C sources."),
    ],
    epilog="Exit codes: 0 success; 1 the input is wrong, or a check found an error; 2 the command line is wrong; 3 "
    "standard output can't be written.",
)
@click.version_option(__version__, prog_name="usdtbuild")
def cli() -> None:
    """Static probes (USDT) for C, C++ and Python extensions, from one provider file."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code; never lets a traceback of the user's making through."""
    try:
        # rich knows these variables by itself, click doesn't.
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        color = False if plain else None
        result = cli.main(args=arguments, prog_name="usdtbuild", standalone_mode=False, color=color)
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    except UsdtError as error:
        complain(error)
        return error.exit_code
