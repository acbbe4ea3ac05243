"""Choices are said once, in `usdtbuild/options.py`; what other languages must say again is compared with it here.

CMake's and Meson's files are read as they are shipped. Every place that lists choices must be found by these tests:
`test_nothing_else_lists_them` looks for others in the Python code.
"""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from usdtbuild import api, meson_wrapper, options, setuptools_options
from usdtbuild.commands import cc, hook, instrument, trace_options
from usdtbuild.inspection.records import READERS
from usdtbuild.instrument.target import Options
from usdtbuild.launch import settings as launcher
from usdtbuild.pytest_plugin import _TRACERS
from usdtbuild.tracing.job import Cut, Job
from usdtbuild.tracing.outputs.choose import Wishes
from usdtbuild.tracing.tracer import ENGINES

ROOT = Path(__file__).resolve().parent.parent
CMAKE = "\n".join(path.read_text() for path in sorted((ROOT / "cmake").glob("*.cmake")))
MESON = (ROOT / "meson" / "meson_options.txt").read_text()
CHOSEN = {"nop": options.NOPS, "target_os": tuple(options.SYSTEMS), "patchable_table": options.TABLES}


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


@pytest.mark.parametrize(
    ("variable", "choices"),
    [("USDTBUILD_NOP", options.NOPS), ("arg_PATCHABLE_TABLE", options.TABLES), ("format", options.FORMATS)],
)
def test_cmake_takes_these_and_names_them_in_its_message(variable: str, choices: tuple[str, ...]) -> None:
    found = re.findall(rf'NOT {variable} MATCHES "\^\(([\w|]+)\)\$".*\n\s*message\(FATAL_ERROR "(.*)"\)', CMAKE)
    assert [set(taken.split("|")) for taken, _ in found] == [set(choices)]
    said = [word for word in words(found[0][1]) if word in choices]
    assert tuple(said[: len(choices)]) == choices


def test_cmake_explains_the_same_choices() -> None:
    (nops,) = re.findall(r"^#   USDTBUILD_NOP +what takes .*: (.*) \(usdtbuild cc --help\)$", CMAKE, re.M)
    assert tuple(word for word in words(nops) if word != "or") == options.NOPS
    (formats,) = re.findall(r"^# +\[FORMATS ([\w|]+)\.\.\.\]", CMAKE, re.M)
    assert tuple(formats.split("|")) == options.FORMATS
    (tables,) = re.findall(r"^# +\[PATCHABLE_TABLE ([\w|]+)\]", CMAKE, re.M)
    assert tuple(tables.split("|")) == options.TABLES


def meson_options() -> dict[str, dict[str, Any]]:
    """The subproject's options: type, choices and value of each."""
    found = {}
    for name, rest in re.findall(r"^option\('(\w+)', (.*)\)$", MESON, re.M):
        kind, value = re.search(r"type: '(\w+)'", rest), re.search(r"value: ('[^']*'|true|false)", rest)
        assert kind is not None
        assert value is not None
        choices = re.search(r"choices: (\[[^]]*\])", rest)
        literal = value[1].title() if value[1][0] != "'" else value[1]
        found[name] = {
            "type": kind[1],
            "value": ast.literal_eval(literal),
            "choices": tuple(ast.literal_eval(choices[1])) if choices else (),
            "text": rest,
        }
    return found


@pytest.mark.parametrize("name", CHOSEN)
def test_meson_offers_these_and_leaves_the_choice_to_us(name: str) -> None:
    assert meson_options()[name]["choices"] == ("", *CHOSEN[name])
    assert meson_options()[name]["value"] == ""


def test_mesons_function_has_the_options_of_the_subproject() -> None:
    ours = meson_options()
    types = {"string": str, "combo": str, "boolean": bool}
    # `probes` and `command` are decided for the subproject as a whole; the function says `disabled` for the first.
    shared = {name: types[option["type"]] for name, option in ours.items() if name not in ("probes", "command")}
    assert {**shared, "disabled": bool} == meson_wrapper.KEYWORDS
    for name, choices in meson_wrapper.CHOICES.items():
        assert set(ours[name]["choices"]) - {"", "auto"} == set(choices)
    assert ", ".join(options.FORMATS) in ours["formats"]["text"]


def test_meson_hands_over_options_that_the_hook_has() -> None:
    known = {param.name for param in hook.command.params}
    text = (ROOT / "meson" / "meson.build").read_text()
    (names,) = re.findall(r"^foreach name : (\[.*\])$", text, re.M)
    assert set(ast.literal_eval(names)) <= known
    flags = set(re.findall(r"hook_options \+= '--([\w-]+)", text)) - {"@0@"}
    assert {flag.replace("-", "_") for flag in flags} <= known


def test_setuptools_takes_these() -> None:
    assert set(setuptools_options._CHECKS) == set(setuptools_options.KEYS)
    for key, choices in (
        ("nop", options.NOPS),
        ("patchable-table", options.TABLES),
        ("formats", options.FORMATS),
    ):
        check = setuptools_options._CHECKS[key]
        for choice in choices:
            assert check("here", choice) in (choice, (choice,))
        with pytest.raises(setuptools_options.OptionsError, match=re.escape(", ".join(choices))):
            check("here", "other")


def parameters(command: click.Command) -> dict[str, click.Parameter]:
    return {str(param.name): param for param in command.params if isinstance(param, click.Option)}


def test_the_launcher_has_the_defaults_that_its_help_shows() -> None:
    shown = parameters(cc.command)
    assert {one.opts[0] for one in shown.values()} - {"-v"} == set(options.STEP_OPTIONS)
    settings = launcher.read_options(["--", "cc"])
    assert shown["lto"].default == settings.lto
    assert shown["nop"].default == (settings.nop or Options().nop)
    assert (shown["patchable_table"].default == options.RELATIVE) == settings.relative_table


@pytest.mark.parametrize("command", [cc.command, hook.command, instrument.command], ids=["cc", "hook", "instrument"])
def test_commands_offer_the_same(command: click.Command) -> None:
    there = parameters(command)
    assert tuple(there["nop"].type.choices) == options.NOPS  # type: ignore[attr-defined]
    assert tuple(there["patchable_table"].type.choices) == options.TABLES  # type: ignore[attr-defined]
    assert ", ".join(options.FORMATS) in str(getattr(there["formats"], "help", ""))
    assert options.one_of(tuple(options.SYSTEMS)) in str(getattr(there["target_os"], "help", ""))


def test_the_plugin_names_all_tracers() -> None:
    assert options.one_of(ENGINES) == _TRACERS


def test_nothing_else_lists_them() -> None:
    """A tuple, list, set or the keys of a dict with all of a kind's choices is a second list of them."""
    kinds = [set(options.NOPS), set(options.FORMATS), set(options.SYSTEMS), set(options.LTO), set(options.TABLES)]
    found = set()
    for path in sorted((ROOT / "usdtbuild").rglob("*.py")):
        name = path.relative_to(ROOT / "usdtbuild").as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            items = getattr(node, "elts", None) or getattr(node, "keys", None) or ()
            said = {item.value for item in items if isinstance(item, ast.Constant)}
            if any(said == kind for kind in kinds):
                found.add(name)
    assert found == {"options.py"}


def test_every_format_has_a_reader_and_a_writer() -> None:
    assert [(one.format, one.section) for one in READERS] == [(name, r.section) for name, r in options.RECORDS.items()]
    writers = [import_module(f"usdtbuild.instrument.{one.writer}") for one in options.RECORDS.values()]
    assert all(callable(one.write) for one in writers)
    assert {name for formats in options.SYSTEMS.values() for name in formats} <= set(options.FORMATS)


def test_the_help_has_every_option_of_trace_below_its_heading(usdtbuild: Any) -> None:
    shown = usdtbuild("trace", "--help").stdout
    for heading in trace_options.HEADINGS:
        _, _, below = shown.partition(f"\n{heading}:\n")
        below = re.split(r"\n(?=\S)", below)[0]
        words = [one.opts[-1] for one in trace_options.OPTIONS if one.heading == heading]
        assert words
        assert [one for one in words if not re.search(rf"^  (-\w, )?{one}\b", below, re.MULTILINE)] == []


@pytest.mark.parametrize(
    ("place", "known"),
    [
        (trace_options.TRACE, set(inspect.signature(api.trace).parameters)),
        (trace_options.WISHES, set(Wishes._fields)),
        (trace_options.JOB, set(Job._fields)),
        (trace_options.CUT, set(Cut._fields)),
    ],
    ids=["trace", "wishes", "job", "cut"],
)
def test_an_option_of_trace_becomes_what_there_is(place: str, known: set[str]) -> None:
    names = {one.name for one in trace_options.OPTIONS if place in one.to}
    assert names
    assert names - known == set()


@pytest.mark.parametrize(
    ("typed", "meant"), [("trac", " Did you mean 'trace'?"), ("vendor-cmake", " Did you mean 'vendor'?"), ("zzz", "")]
)
def test_a_command_that_is_nearly_right_is_named(typed: str, meant: str, usdtbuild: Any) -> None:
    assert usdtbuild(typed, code=2).stderr.endswith(f"Error: There is no command '{typed}'.{meant}\n")
