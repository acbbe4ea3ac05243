"""Man pages and shell completion: every command and option is in them, and they lie where man and the shells look."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import click
import pytest

from usdtbuild.cli import cli

ROOT = Path(__file__).resolve().parent.parent
MAN = ROOT / "man"


def contexts(context: click.Context) -> list[click.Context]:
    """A command's context, and those of all commands below it."""
    found = [context]
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            assert command is not None
            found += contexts(click.Context(command, info_name=name, parent=context))
    return found


ROOT_CONTEXT = click.Context(cli, info_name="usdtbuild")
EVERY = {context.command_path.replace(" ", "-"): context for context in contexts(ROOT_CONTEXT)}


def test_there_is_a_page_for_each_command_and_no_other() -> None:
    assert len(EVERY) > 12
    assert {path.stem for path in MAN.glob("*.1")} == set(EVERY)


@pytest.mark.parametrize("name", EVERY)
def test_a_page_has_every_option_of_its_command(name: str) -> None:
    text = (MAN / f"{name}.1").read_text().replace("\\-", "-")
    options = [each for each in EVERY[name].command.params if isinstance(each, click.Option) and not each.hidden]
    for option in options:
        assert option.opts[-1] in text, f"{option.opts[-1]} is not in {name}.1; run make manual"
        assert " ".join((option.help or "").split())[:40] in " ".join(text.split()), f"{name}.1 is old; run make manual"


@pytest.mark.parametrize("name", EVERY)
def test_a_page_is_called_as_its_command_and_has_examples(name: str) -> None:
    text = (MAN / f"{name}.1").read_text()
    command = EVERY[name].command_path
    assert text.startswith(f'.TH "{name}" "1"')
    shown = text.partition(".SH EXAMPLES\n")[2].partition(".SH SEE ALSO")[0].replace("\\-", "-")
    assert command in shown


@pytest.mark.parametrize("name", EVERY)
def test_groff_has_nothing_to_say(name: str, need: Any, run: Any) -> None:
    done = run(need("groff"), "-man", "-ww", "-z", MAN / f"{name}.1", env={**os.environ, "LC_ALL": "C"})
    assert done.stderr == ""


def test_wheel_puts_them_where_they_are_looked_for(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        shared = {name.split(".data/data/")[1] for name in archive.namelist() if ".data/data/" in name}
    assert {f"share/man/man1/{name}.1" for name in EVERY} <= shared
    assert {
        "share/bash-completion/completions/usdtbuild",
        "share/zsh/site-functions/_usdtbuild",
        "share/fish/vendor_completions.d/usdtbuild.fish",
        "lib/systemd/system/usdtbuild-trace@.service",
    } <= shared


def test_bash_completes_commands_and_options(need: Any, tmp_path: Path) -> None:
    """The script is loaded by a real bash, which asks the program what may follow."""
    script = tmp_path / "usdtbuild"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m usdtbuild "$@"\n')
    script.chmod(0o755)
    for words, expected in (
        ("usdtbuild ver", "verify"), ("usdtbuild header --pro", "--provider"),
        ("usdtbuild verify --ignore argument-m", "argument-mismatch"),
        ("usdtbuild header --formats stapsdt,d", "stapsdt,dof"),
    ):  # fmt: skip
        line = words.split()
        code = (
            f"source {ROOT}/completion/bash/usdtbuild; COMP_WORDS=({' '.join(line)}); COMP_CWORD={len(line) - 1}; "
            "_usdtbuild_completion usdtbuild; printf '%s\\n' \"${COMPREPLY[@]}\""
        )
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(
            [need("bash"), "--norc", "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert expected in done.stdout.split()
