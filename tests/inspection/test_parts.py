"""One provider in several files, as large programs have it: one in each directory, with that directory's probes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

PARTS = {
    "net": "provider app { probe sent(int fd, long bytes); probe shared(int); };",
    "disk": "provider app { probe stored(const char *path); probe shared(int number); };\n"
    "#pragma D attributes Evolving/Evolving/ISA provider app args",
    "main": "provider app { probe started(); };\nprovider other { probe alone(int x); };",
}
CALLS = {
    "net": "APP_SENT(3, 5L); APP_SHARED(1);",
    "disk": 'APP_STORED("x"); APP_SHARED(2);',
    "main": "APP_STARTED(); OTHER_ALONE(4);",
}


def build(usdtbuild: Any, run: Any, folder: Path, parts: dict[str, str], calls: dict[str, str], order: Any) -> Path:
    """Return a program of an object for each part, linked in the order given."""
    for name, text in parts.items():
        (folder / f"{name}.d").write_text(text)
        usdtbuild("header", "--formats=dof", f"{name}.d", "-o", f"{name}.h", cwd=folder)
        entry = "main" if name == "main" else name
        (folder / f"{name}.c").write_text(
            f'#include "{name}.h"\nint {entry}(void);\nint {entry}(void) {{ {calls[name]} return 0; }}\n'
        )
        usdtbuild("cc", "--", "gcc", "-O2", "-c", f"{name}.c", "-o", f"{name}.o", cwd=folder)
    run("gcc", "-Wl,--build-id=sha1", *[f"{name}.o" for name in order], "-o", "program", cwd=folder)
    return folder / "program"


@pytest.fixture(scope="module")
def program(usdtbuild: Any, run: Any, need: Any, tmp_path_factory: Any) -> Path:
    """A program of three parts that say nothing against each other."""
    need("gcc")
    return build(usdtbuild, run, tmp_path_factory.mktemp("parts"), PARTS, CALLS, list(PARTS))


def listed(usdtbuild: Any, path: Path) -> Any:
    (file,) = json.loads(usdtbuild("list", "--json", path).stdout)["files"]
    return file


def test_all_parts_give_their_types(usdtbuild: Any, program: Path) -> None:
    file = listed(usdtbuild, program)
    types = {
        probe["name"]: [(a["type"], a["name"]) for a in probe["sites"][0]["arguments"]] for probe in file["probes"]
    }
    assert types == {
        "sent": [("int", "fd"), ("long", "bytes")],
        "shared": [("int", "number")],  # `net` doesn't name it, `disk` does
        "stored": [("const char *", "path")],
        "started": [],
        "alone": [("int", "x")],
    }
    names = {provider["name"]: sorted(probe["name"] for probe in provider["probes"]) for provider in file["providers"]}
    assert names == {"app": ["sent", "shared", "started", "stored"], "other": ["alone"]}


def test_nothing_is_found_wrong_with_them(usdtbuild: Any, program: Path) -> None:
    (file,) = json.loads(usdtbuild("verify", "--strict", "--json", program).stdout)["files"]
    assert file["findings"] == []


def test_a_provider_in_one_part_keeps_its_hash(usdtbuild: Any, program: Path) -> None:
    hashes = {provider["name"]: provider["hash"] for provider in listed(usdtbuild, program)["providers"]}
    part = listed(usdtbuild, program.parent / "main.o")["providers"]
    single = {provider["name"]: provider["hash"] for provider in part}
    assert hashes["other"] == single["other"]
    assert hashes["app"] != single["app"]


def test_the_parts_may_all_be_given(usdtbuild: Any, program: Path) -> None:
    files = [word for name in PARTS for word in ("--provider", program.parent / f"{name}.d")]
    done = usdtbuild("verify", "--strict", program, *files)
    assert "nothing found" in done.stdout
    more = program.parent / "more.d"
    more.write_text("provider app { probe nowhere(int x); };")
    done = usdtbuild("verify", program, *files, "--provider", more, code=1)
    assert "app:nowhere" in done.stdout


def test_given_parts_that_contradict_each_other_are_refused(usdtbuild: Any, program: Path) -> None:
    other = program.parent / "contradicting.d"
    other.write_text("provider app { probe sent(int fd, int bytes); };")
    net = program.parent / "net.d"
    done = usdtbuild("verify", program, "--provider", net, "--provider", other, code=1)
    assert f"{other}: declares probe sent of provider app otherwise than {net}" in done.stderr
    assert done.stdout == ""


WRONG = {
    "a type": ("probe shared(int number)", "probe shared(long number)", "probe shared"),
    "a name": ("probe shared(int)", "probe shared(int count)", "probe shared"),
    "a count": ("probe shared(int number)", "probe shared(int number, int more)", "probe shared"),
}


@pytest.mark.parametrize("which", list(WRONG))
def test_parts_that_contradict_each_other_are_two_versions(
    usdtbuild: Any, run: Any, need: Any, tmp_path: Path, which: str
) -> None:
    need("gcc")
    old, new, differing = WRONG[which]
    parts = {name: text.replace(old, new) for name, text in PARTS.items()}
    calls = {name: text.replace("APP_SHARED(2)", "APP_SHARED(2, 3)") if "more" in new else text
             for name, text in CALLS.items()}  # fmt: skip
    path = build(usdtbuild, run, tmp_path, parts, calls, list(PARTS))
    (file,) = json.loads(usdtbuild("verify", "--json", path, code=None).stdout)["files"]
    (found,) = [finding for finding in file["findings"] if finding["check"] == "description-conflict"]
    assert f"two versions of provider app ({differing})" in found["what"]


def test_attributes_that_contradict_each_other_are_two_versions() -> None:
    from usdtbuild.provider.join import join_all
    from usdtbuild.provider.parser import parse

    texts = [
        "provider app { probe a(); };",
        "provider app { probe b(); };\n#pragma D attributes Evolving/Evolving/ISA provider app args",
        "provider app { probe c(); };\n#pragma D attributes Stable/Stable/ISA provider app args",
    ]
    parts = [parse(text, "")[0] for text in texts]
    providers, differing = join_all(parts[:2])
    assert differing == {}
    assert providers["app"].attributes == parts[1].attributes
    assert join_all(parts)[1] == {"app": ("the attributes of its args",)}


def test_the_order_of_the_objects_decides_nothing(usdtbuild: Any, run: Any, program: Path, tmp_path: Path) -> None:
    other = build(usdtbuild, run, tmp_path, PARTS, CALLS, list(reversed(PARTS)))
    shown = [
        {probe["name"]: probe["sites"][0]["arguments"] for probe in listed(usdtbuild, path)["probes"]}
        for path in (program, other)
    ]
    assert shown[0] == shown[1]
