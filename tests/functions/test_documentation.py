"""The documentation's worked example, command by command, and its list of reasons against the program's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


def squeezed(text: str) -> list[str]:
    """Return lines without what varies: trailing blanks (a terminal's width), the number of tables (GCC's version)."""
    return [re.sub(r" in \d+ sections$", "", line.rstrip()) for line in text.strip().splitlines()]


def test_the_worked_example_prints_what_it_says(run: Any, usdtbuild: Any, need: Any, tmp_path: Any) -> None:
    need("gcc")
    text = (DOCS / "functions.md").read_text()
    (source,) = re.findall(r"```c\n(.*?)```", text, re.DOTALL)
    (tmp_path / "two.c").write_text(source)
    (session,) = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE)
    assert len(steps) == 3
    for command, expected in steps:
        program, *arguments = shlex.split(command)
        done = usdtbuild(*arguments, cwd=tmp_path) if program == "usdtbuild" else run(program, *arguments, cwd=tmp_path)
        assert squeezed(done.stdout) == squeezed(expected), command


def test_every_reason_is_documented() -> None:
    from usdtbuild.functions.entry import REASONS
    from usdtbuild.functions.report import WARNINGS

    text = (DOCS / "functions.md").read_text()
    assert len(REASONS) > 20
    assert WARNINGS
    for code in (*REASONS, *WARNINGS):
        assert f"`{code}`" in text, code


def test_every_option_is_documented(usdtbuild: Any) -> None:
    for name in ("functions", "flags"):
        text = (DOCS / "commands" / f"{name}.md").read_text()
        options = re.findall(r"(--[a-z][a-z-]+)", usdtbuild(name, "--help").stdout)
        assert {"--help", "--patchable", "--json"} <= set(options)
        for option in options:
            assert option == "--help" or option in text, (name, option)


def test_refusals_of_flags_are_quoted_as_they_are(usdtbuild: Any, need: Any) -> None:
    text = (DOCS / "commands" / "flags.md").read_text()
    quoted = re.findall(r"^usdtbuild: .*$", text, re.MULTILINE)
    runs = [("5,0", []), ("8,6", ["-fcf-protection"]), ("7,5", ["-pg"])]
    assert len(quoted) == len(runs)
    for line, (pair, options) in zip(quoted, runs):
        done = usdtbuild("flags", "--patchable", pair, "--compiler", need("gcc"), "--", *options, code=1)
        assert done.stderr == line + "\n"
