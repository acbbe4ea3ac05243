"""What root runs or loads lies nowhere that another user can write to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.files import who_may_change

NOBODY = 65534


@pytest.fixture
def theirs(folder: Path) -> Path:
    """A home folder of another user's."""
    home = folder.parent / "home"
    home.mkdir(mode=0o755)
    os.chown(home, NOBODY, NOBODY)
    return home


@pytest.mark.parametrize("name", ["HOME", "XDG_CACHE_HOME"])
def test_root_neither_runs_nor_leaves_anything_in_a_user_s_cache(
    name: str, theirs: Path, forged: Any, command: Any
) -> None:
    environment = {**os.environ, name: str(theirs)}
    said = command("trace", "--engine", "inside", "--count", "--", forged(b"tick"), "10", env=environment)
    assert "the NOP has no room for a jump" in said.err, said  # the library was made, and loaded
    assert list(theirs.iterdir()) == []


def test_a_cache_behind_a_link_of_theirs_is_not_used(theirs: Path, forged: Any, command: Any, tmp_path: Path) -> None:
    (theirs / "cache").mkdir()
    os.chown(theirs / "cache", NOBODY, NOBODY)
    (tmp_path / "link").symlink_to(theirs / "cache")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "link")}
    said = command("trace", "--engine", "inside", "--count", "--", forged(b"tick"), "10", env=environment)
    assert "the NOP has no room for a jump" in said.err, said
    assert list((theirs / "cache").iterdir()) == []


def test_who_may_change_a_path(tmp_path: Path, folder: Path) -> None:
    own = tmp_path / "a" / "b"
    own.mkdir(parents=True)
    assert who_may_change(str(own)) == ""
    own.chmod(0o777)
    assert who_may_change(str(own)) == str(own)
    inner = own / "c"
    inner.mkdir()
    assert who_may_change(str(inner)) == str(own)
    own.chmod(0o1777)
    assert who_may_change(str(inner)) == ""
    os.chown(own, NOBODY, NOBODY)
    assert who_may_change(str(inner)) == str(own)
