"""The options of build steps on the command line, as `options.STEP_OPTIONS` declares them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..options import STEP_OPTIONS

Command = TypeVar("Command", bound="Callable[..., object]")


def take(*names: str, chosen: bool = True) -> Callable[[Command], Command]:
    """Return a decorator that gives a command these options; without `chosen` none of them has a value by default."""

    def decorate(command: Command) -> Command:
        for name in reversed(names):
            command = click.option(name, **_attributes(name, chosen))(command)
        return command

    return decorate


def _attributes(name: str, chosen: bool) -> dict[str, Any]:
    choices, default, called, text = STEP_OPTIONS[name]
    found: dict[str, Any] = {"help": text}
    if choices is None:
        return {**found, "is_flag": True}
    if not called:
        found |= {"type": click.Choice(choices or ())} | ({"default": default, "show_default": True} if chosen else {})
        return found
    return {**found, "metavar": called, "multiple": default == (), "default": default}
