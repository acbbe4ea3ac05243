"""`usdtbuild dof`: DOF in any file is shown or refused with one clear line; what is wrong with it is said by system."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from usdtbuild import apart
from usdtbuild.cli import main
from usdtbuild.commands.dof import find
from usdtbuild.formats.dof import layout
from usdtbuild.formats.dof.decode import decode, split
from usdtbuild.formats.dof.encode import encode, with_trailer
from usdtbuild.formats.dof.types import Dof, DofError, DofProbe, DofProvider
from usdtbuild.model import Attribute, Attributes

BY_HAND = Path(__file__).resolve().parent / "by_hand.s"
SETX, DOFREL = layout.SETX, layout.DOFREL
PROBE = DofProbe("main", "start", ("int",), ("int",), (0,), (4, 60), (12,), 0x1000)
DOF = Dof(2, 8, True, SETX, (DofProvider("app", Attributes(), (PROBE,)),))


@pytest.fixture
def by_hand(run: Any, tmp_path: Path) -> Any:
    """Assemble and link the DOF written by hand: `by_hand(SETX, "-no-pie")`."""

    def make(relocation: int, *options: str) -> Path:
        made = tmp_path / "by_hand.o"
        run("as", "--defsym", f"RELOCATION={relocation}", BY_HAND, "-o", made)
        if not options:
            return made
        run("gcc", made, *options, "-o", tmp_path / "by_hand")
        return tmp_path / "by_hand"

    return make


def address_of(path: Path, name: str) -> int:
    listed = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    found = re.search(rf"^([0-9a-f]+) \w {name}$", listed, re.MULTILINE)
    assert found is not None
    return int(found.group(1), 16)


@pytest.mark.parametrize(("relocation", "shape"), [(SETX, "-no-pie"), (DOFREL, "-no-pie"), (DOFREL, "-pie")])
def test_dof_of_another_hand_is_understood(relocation: int, shape: str, by_hand: Any, usdtbuild: Any) -> None:
    program = by_hand(relocation, shape)
    (dof,) = json.loads(usdtbuild("dof", "dump", "--json", program).stdout)["tables"]
    assert (dof["version"], dof["address_size"], dof["byte_order"]) == (2, 8, "little")
    assert dof["relocation"] == {SETX: "SETX", DOFREL: "DOFREL"}[relocation]
    (provider,) = dof["providers"]
    assert provider["name"] == "hand"
    assert provider["attributes"] == ["0x05050500", "0x01010500", "0x01010500", "0x05050500", "0x05050400"]
    assert provider["probes"] == [
        {"function": "serve", "name": "req-start", "native": ["char *", "int"], "translated": ["int", "string"],
         "mapping": [1, 0], "offsets": [2, 4], "enabled_offsets": [1], "address": address_of(program, "serve")},
        {"function": "finish", "name": "req-done", "native": [], "translated": [], "mapping": [],
         "offsets": [0], "enabled_offsets": [], "address": address_of(program, "finish")},
    ]  # fmt: skip
    checked = usdtbuild("dof", "check", program).stdout.splitlines()
    systems = ["freebsd"] if relocation == DOFREL else ["freebsd", "illumos"]
    assert [line.split(": ", 1)[1] for line in checked] == [f"{system}: accepted" for system in systems]


def test_what_we_write_for_it_says_the_same(by_hand: Any) -> None:
    """encode and a human came to the same records."""
    program = by_hand(SETX, "-no-pie")
    theirs = decode(find(str(program))[0].data)
    stable = [Attribute(5, 5, 5), Attribute(1, 1, 5), Attribute(1, 1, 5), Attribute(5, 5, 5), Attribute(5, 5, 4)]
    ours = Dof(2, 8, True, SETX, (
        DofProvider("hand", Attributes(*stable), (
            DofProbe("serve", "req-start", ("char *", "int"), ("int", "string"), (1, 0), (2, 4), (1,),
                     address_of(program, "serve")),
            DofProbe("finish", "req-done", (), (), (), (0,), (), address_of(program, "finish")),
        )),
    ))  # fmt: skip
    assert theirs == ours == decode(encode(ours).data)


def test_a_table_for_people(by_hand: Any, usdtbuild: Any) -> None:
    out = usdtbuild("dof", "dump", by_hand(SETX, "-no-pie")).stdout
    assert [line for line in out.splitlines() if line != line.rstrip()] == []
    assert "version 2, 64-bit, little-endian, relocation SETX" in out
    assert "provider hand  (attributes 05050500 01010500 01010500 05050500 05050400)" in out
    (row,) = (line for line in out.splitlines() if line.startswith("req-start"))
    assert (
        row.split()
        == (
            f"req-start serve {address_of(by_hand(SETX, '-no-pie'), 'serve'):#x} 0x2 0x4 0x1 "
            "char *, int : int = arg1, string = arg0"
        ).split()
    )


@pytest.mark.parametrize("little", [True, False])
@pytest.mark.parametrize("size", [4, 8])
def test_raw_dof_of_any_machine(little: bool, size: int, usdtbuild: Any, tmp_path: Path) -> None:
    path = tmp_path / "raw"
    path.write_bytes(encode(DOF._replace(little=little, address_size=size)).data)
    (shown,) = json.loads(usdtbuild("dof", "dump", "--json", path).stdout)["tables"]
    assert (shown["address_size"], shown["byte_order"]) == (size, "little" if little else "big")
    assert shown["providers"][0]["probes"][0]["address"] == 0x1000
    usdtbuild("dof", "check", path)


def test_several_in_one_section(usdtbuild: Any, run: Any, tmp_path: Path) -> None:
    """With and without trailers, with the runtime's marks and with padding between them."""
    other = DOF._replace(providers=(DofProvider("other", Attributes(), (PROBE,)),))
    row = b"UDOF\0\0\0\0" + with_trailer(encode(DOF).data, little=True) + encode(other).data + bytes(24)
    row += with_trailer(encode(DOF).data, little=True) + b"UDOF\0\0\0\0"
    (tmp_path / "row").write_bytes(row)
    (tmp_path / "row.s").write_text('.section .SUNW_dof,"a",%0x6ffffff4\n.balign 8\n.incbin "row"\n')
    run("as", "row.s", "-o", "row.o", cwd=tmp_path)
    shown = json.loads(usdtbuild("dof", "dump", "--json", tmp_path / "row.o").stdout)["tables"]
    assert [dof["providers"][0]["name"] for dof in shown] == ["app", "other", "app"]
    (tmp_path / "raw").write_bytes(row[8:])
    assert len(json.loads(usdtbuild("dof", "dump", "--json", tmp_path / "raw").stdout)["tables"]) == 3


def test_merged_is_what_gets_registered(by_hand: Any, usdtbuild: Any) -> None:
    program = by_hand(DOFREL, "-pie")
    (merged,) = json.loads(usdtbuild("dof", "dump", "--merged", "--json", program).stdout)["tables"]
    (plain,) = json.loads(usdtbuild("dof", "dump", "--json", program).stdout)["tables"]
    assert merged["relocation"] == "none"
    key = "name"
    assert sorted(merged["providers"][0]["probes"], key=lambda p: str(p[key])) == sorted(
        plain["providers"][0]["probes"], key=lambda p: str(p[key])
    )
    error = usdtbuild("dof", "dump", "--merged", by_hand(DOFREL), code=2).stderr
    assert "give the linked program" in error


def test_dof_of_another_machine_than_its_file_is_found(usdtbuild: Any, run: Any, tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(encode(DOF._replace(little=False, address_size=4)).data)
    (tmp_path / "raw.s").write_text('.section .SUNW_dof,"a",%0x6ffffff4\n.balign 8\n.incbin "raw"\n')
    run("as", "raw.s", "-o", "raw.o", cwd=tmp_path)
    out = usdtbuild("dof", "check", tmp_path / "raw.o", code=1).stdout
    assert "it is 32-bit, big-endian, and the file is 64-bit, little-endian" in out


def test_each_system_judges_by_itself(usdtbuild: Any, tmp_path: Path) -> None:
    path = tmp_path / "raw"
    path.write_bytes(encode(DOF._replace(relocation=DOFREL)).data)
    usdtbuild("dof", "check", path)
    options = ["--platform", "freebsd", "--platform", "illumos", "--platform", "oracle", "--json"]
    results = json.loads(usdtbuild("dof", "check", *options, path, code=1).stdout)["results"]
    assert [(result["platform"], result["accepted"]) for result in results] == [
        ("freebsd", True), ("illumos", False), ("oracle", False),
    ]  # fmt: skip
    assert results[1]["findings"] == [{"effect": "rejected", "what": "relocation 0: only FreeBSD knows DOFREL"}]
    path.write_bytes(encode(DOF._replace(version=3)).data)
    assert usdtbuild("dof", "check", path).stdout == "DOF at offset 0x0: oracle: accepted\n"
    assert "version 3 is Oracle's own" in usdtbuild("dof", "check", "--platform", "freebsd", path, code=1).stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is neither DOF nor an ELF file"),
        (b"hello", "is neither DOF nor an ELF file"),
        (b"\x7fDOF", "at offset 0x0: 4 bytes are less than a DOF header's 64"),
        (b"\x7fDOF" + bytes(100), "model 0, encoding 0, version 0: one of them is unknown"),
        (b"\x7fELF" + bytes(100), "ELF class 0, byte order 0, version 0 are not valid"),
        (encode(DOF).data[:-8], "are there"),
        (encode(DOF).data + b"more" * 16, "begins with 6d6f7265"),
    ],
)
def test_garbage_gives_one_clear_line(content: bytes, message: str, usdtbuild: Any, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    for command in ("dump", "check"):
        done = usdtbuild("dof", command, path, code=1)
        assert done.stdout == ""
        assert re.fullmatch(r"usdtbuild: [^\n]+\n", done.stderr)
        assert message in done.stderr


def test_a_file_without_dof_says_what_to_do(usdtbuild: Any, run: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.s").write_text("")
    run("as", "empty.s", "-o", "empty.o", cwd=tmp_path)
    assert "has no DOF; build it with --formats dof" in usdtbuild("dof", "dump", tmp_path / "empty.o", code=1).stderr


def test_names_of_files_do_not_reach_the_terminal(usdtbuild: Any, tmp_path: Path) -> None:
    """Escape sequences, line breaks and bytes that are no text."""
    nasty = PROBE._replace(function="\x1b[2Jf\n\udcff", native=("[red]",), translated=("[red]",))
    path = tmp_path / "raw"
    path.write_bytes(encode(DOF._replace(providers=(DofProvider("app", Attributes(), (nasty,)),))).data)
    out = usdtbuild("dof", "dump", path).stdout
    assert "\x1b" not in out
    assert r"\x1b[2Jf\n\xff" in out
    assert "[red]" in out
    (shown,) = json.loads(usdtbuild("dof", "dump", "--json", path).stdout)["tables"]
    assert shown["providers"][0]["probes"][0]["function"] == r"\x1b[2Jf\n\xff"


def test_damage_of_any_byte_never_ends_in_a_traceback(
    tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "look", lambda user, named, run: run() or 0)  # in this process
    plain = encode(DOF).data
    path = tmp_path / "raw"
    for place in range(len(plain)):
        for value in (plain[place] ^ 0x80, plain[place] ^ 1, 0xFF):
            path.write_bytes(plain[:place] + bytes([value]) + plain[place + 1 :])
            for command in ("dump", "check"):
                assert main(["dof", command, str(path)]) in (0, 1)
    assert "Traceback" not in "".join(capfd.readouterr())


def test_split_reads_a_long_row_in_one_pass() -> None:
    piece = with_trailer(encode(DOF).data, little=True)
    assert len(split(piece * 5000)) == 5000
    assert split(bytes(1 << 24)) == []
    with pytest.raises(DofError, match="at offset 0x"):
        split(piece + b"junk")


@pytest.mark.parametrize("kind", ["padding", "size", "ELF"])
def test_a_file_of_3_gb_takes_little_memory(kind: str, tmp_path: Path, run: Any) -> None:
    """A sparse file, of which only what is looked at may be read: a header, then nothing but zeros or one large DOF."""
    path = tmp_path / "large"
    header = bytearray(64)
    header[:8] = b"\x7fDOF\x02\x01\x02\x03"
    header[20:36] = struct.pack("<IIQ", 32, 0, 64)  # secsize, secnum, secoff
    header[36:44] = struct.pack("<Q", 64 if kind == "padding" else 3 << 30)  # loadsz
    if kind == "ELF":
        header = bytearray(Path(sys.executable).read_bytes()[:64])
    with path.open("wb") as file:
        file.write(header)
        file.truncate(3 << 30)
    script = (
        "import resource, subprocess, sys; "
        "done = subprocess.run(sys.argv[1:]); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, done.returncode)"
    )
    words = [sys.executable, "-c", script, sys.executable, "-m", "usdtbuild", "dof", "check", path]
    done = run(*words, cwd=tmp_path)
    kilobytes, code = done.stdout.splitlines()[-1].split()
    assert "Traceback" not in done.stderr
    assert code in ("0", "1")
    assert int(kilobytes) < 300_000
