"""Write man pages and shell completion from the commands' own help: `python tools/manual.py [--check]`.

A page's examples are those that its command's page in docs/commands begins with.

The files are committed, in man/ and completion/, so that wheels, CMake's install and distributions carry them without
any tool; `--check` says which of them are not what the help says today.
"""

from __future__ import annotations

import re
import sys
from inspect import cleandoc
from pathlib import Path

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete
from click_man.man import ManPage

from usdtbuild import __version__
from usdtbuild.cli import cli

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "usdtbuild"
COMPLETIONS = {
    "bash/usdtbuild": BashComplete, "zsh/_usdtbuild": ZshComplete, "fish/usdtbuild.fish": FishComplete,
}  # fmt: skip


def main() -> int:
    """Write the files, or compare them; return the exit code."""
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        print(__doc__, file=sys.stderr)
        return 2
    stale = [path for path, text in pages().items() if not path.is_file() or path.read_text() != text]
    if check:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what the help says; run make manual", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages()[path])
    return 0


def pages() -> dict[Path, str]:
    """Return every file's text."""
    root = click.Context(cli, info_name=PROGRAM)
    found = {ROOT / "man" / f"{PROGRAM}.1": page(root)}
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None
        add(found, click.Context(command, info_name=name, parent=root))
    for name, shell in COMPLETIONS.items():
        # click's bash support starts a bash to see that it is a new one; the script is the same.
        script = shell(cli, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE")
        found[ROOT / "completion" / name] = script.source_template % script.source_vars()
    return found


def add(found: dict[Path, str], context: click.Context) -> None:
    """Add the page of a command, and of the commands below it."""
    found[ROOT / "man" / f"{context.command_path.replace(' ', '-')}.1"] = page(context)
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            assert command is not None
            add(found, click.Context(command, info_name=name, parent=context))


def page(context: click.Context) -> str:
    """Return a command's man page."""
    command = context.command
    made = ManPage(context.command_path)
    made.version = __version__
    made.date = f"usdtbuild {__version__}"  # no day: the same help gives the same bytes
    made.short_help = command.get_short_help_str(200).rstrip(".")
    made.description = cleandoc(command.help or "").replace("\b\n", "")
    made.synopsis = " ".join(command.collect_usage_pieces(context))
    options = [option for option in command.get_params(context) if isinstance(option, click.Option)]
    made.options = [record for option in options if (record := option.get_help_record(context))]
    if isinstance(command, click.Group):
        commands = {name: command.get_command(context, name) for name in command.list_commands(context)}
        made.commands = [(name, each.get_short_help_str(200)) for name, each in commands.items() if each]
    text = str(made).rstrip("\n")
    name = context.command_path.replace(" ", "-")
    text = text.replace(f'.TH "{context.command_path.upper()}"', f'.TH "{name}"', 1)
    if command.epilog:
        text += "\n.SH EXIT STATUS\n" + command.epilog.replace("Exit codes: ", "").replace("\\", "\\e")
    text += "\n.SH EXAMPLES\n" + "\n".join(map(_example, examples(context)))
    return text + f"\n.SH SEE ALSO\nThe page docs/commands/{_page(context)} of the sources, and docs/index.md.\n"


def examples(context: click.Context) -> list[str]:
    """Return the examples of a command: lines of a shell, perhaps with a comment. A command's command has its own."""
    text = (ROOT / "docs/commands" / _page(context)).read_text()
    found = re.search(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert found, f"{_page(context)} has no examples"
    lines = found[1].splitlines()
    depth = context.command_path.count(" ")
    return [line for line in lines if context.command_path in line] if depth > 1 else lines


def _page(context: click.Context) -> str:
    return f"{context.command_path.split()[:2][-1]}.md"


def _example(line: str) -> str:
    command, _, comment = line.partition("  #")
    command = re.sub("^'", "\\\\&'", command.strip().replace("\\", "\\e").replace("-", "\\-"))
    head = f".PP\n{comment.strip()[:1].upper()}{comment.strip()[1:]}:\n" if comment else ""
    return f"{head}.PP\n.RS 4\n.nf\n{command}\n.fi\n.RE"


if __name__ == "__main__":
    sys.exit(main())
