"""In which function a place in a file is, and where the frame of its call is: the symbol of the function says the one,
its unwind record both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..machines import facts_of
from ..machines.frame_rules import FrameRules
from .model import Around

if TYPE_CHECKING:
    from ..elf.image import FunctionAt, Image

_COLD = ".cold"  # what compilers add to the name of a part, which a demangler may have put in brackets


class Surroundings:
    """What is around places of one file."""

    def __init__(self, image: Image) -> None:
        facts = facts_of(image.machine)
        self._calling = facts.calling() if facts is not None and facts.calling is not None and image.is64 else None
        section = next(((one.address, one.size) for one in image.sections_named(".eh_frame")), (0, 0))
        self._rules = FrameRules(image.bytes_at, image.unwind_header, section)

    def of(self, address: int, function: FunctionAt | None) -> Around:
        """Return what is around an address; `function` is what its symbol says, None if there is none."""
        rule = self._rules.at(address)
        start = address - function.offset if function else rule.start if rule is not None else 0
        is_part = (rule is not None and rule.is_part) or (function is not None and _COLD in function.name)
        found = Around(start, is_part)
        if rule is not None and rule.frame is not None and self._calling is not None:
            register, offset = rule.frame
            by_frame = register == self._calling.framed
            if 0 <= offset < 1 << 31 and (by_frame or self._calling.kept.get(register) == self._calling.stack):
                return found._replace(by_frame=by_frame, offset=offset & ~1)
        return found
