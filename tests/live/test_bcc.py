"""bcc's tplist shows the probes with all their arguments."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .conftest import SHAPES

pytestmark = pytest.mark.live
EXPECTED = {"ints": 8, "text": 2, "twelve": 12, "tail__call": 8, "guarded": 1, "real": 3}


@pytest.mark.parametrize("shape", SHAPES)
def test_tplist_shows_every_probe_with_its_arguments(need: Any, build_tracee: Any, run: Any, shape: str) -> None:
    tracee = build_tracee(shape)
    shown = run(need("tplist-bpfcc"), "-vv", "-l", tracee.binary).stdout
    blocks = re.split(r"^live:([\w-]+) ", shown, flags=re.MULTILINE)[1:]
    found = {name: len(re.findall("argument #", text)) for name, text in zip(blocks[::2], blocks[1::2])}
    assert found == EXPECTED
