"""Names and types of the arguments of well-known programs' probes, which their own records don't tell (`known.d`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from ..formats.operands import CONSTANT, Operand
from ..model import FLOAT, POINTER, Argument, Provider, dashed

FILE = Path(__file__).with_name("known.d")


@lru_cache(maxsize=64)
def declared(provider: str) -> tuple[Provider, ...]:
    """Return what is declared of a provider, what newer versions have first. Nothing else is parsed."""
    blocks = re.findall(rf"^provider {re.escape(provider)} {{.*?^}};$", _text(), re.DOTALL | re.MULTILINE)
    if not blocks:
        return ()
    from ..provider.parser import parse

    return tuple(one for block in blocks for one in parse(block, str(FILE)))


@lru_cache(maxsize=1)
def _text() -> str:
    return FILE.read_text("utf-8")


def known_arguments(provider: str, probe: str, operands: Sequence[Operand], address_size: int) -> Sequence[Argument]:
    """Return the arguments of a probe as its program declares it, if these operands can be they; else nothing."""
    name = dashed(probe)
    found = (one.arguments for block in declared(provider) for one in block.probes if one.name == name)
    return next((one for one in found if _fit(one, operands, address_size)), ())


def _fit(arguments: Sequence[Argument], operands: Sequence[Operand], address_size: int) -> bool:
    """Whether there are as many, and pointers are as wide as addresses, or constants."""
    return len(arguments) == len(operands) and all(
        (one.type.kind == FLOAT) == operand.floating
        and (one.type.kind != POINTER or operand.size == address_size or operand.place.kind == CONSTANT)
        for one, operand in zip(arguments, operands)
    )
