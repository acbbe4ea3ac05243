"""Programs with DOF, written in C and assembler text, and a stand-in for the device that takes it.

Objects get their DOF from assembler text that these fixtures write, with addresses as the assembler's expressions:
what the runtime makes of them is compared with what `nm` says of the finished program. Nothing here uses `instrument`.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from usdtbuild.formats.dof import layout
from usdtbuild.formats.dof.decode import decode
from usdtbuild.formats.dof.encode import encode, with_trailer
from usdtbuild.formats.dof.types import Dof, DofProbe, DofProvider
from usdtbuild.model import Attributes

HERE = Path(__file__).resolve().parent
RUNTIME = HERE.parent.parent / "usdtbuild" / "runtime" / "usdt_dof_register.c"


class Target(NamedTuple):
    """What of a machine shows in its DOF, and how its assembler spells a relocation that does nothing."""

    address_size: int = 8
    little: bool = True
    none: str = "R_X86_64_NONE"


HOST = Target()


class Piece(NamedTuple):
    """One DOF of an object: its providers, its DOF relocation, and whether it bears a trailer (else it isn't ours)."""

    providers: tuple[DofProvider, ...]
    relocation: int = layout.DOFREL
    trailer: bool = True
    version: int = 2
    function: str = ""  # that the section belongs to, with --gc-sections; '' for a section of its own


def probe(function: str, name: str, *offsets: int, enabled: tuple[int, ...] = (), types: str = "int") -> DofProbe:
    native = tuple(types.split(",")) if types else ()
    return DofProbe(function, name, native, native, tuple(range(len(native))), offsets, enabled)


def provider(name: str, *probes: DofProbe, attributes: Attributes = Attributes()) -> DofProvider:  # noqa: B008
    return DofProvider(name, attributes, probes)


def assembler(piece: Piece, number: int, target: Target = HOST) -> str:
    """Return assembler text for one DOF, whose addresses refer to the functions by their aliases `code_NAME`."""
    dof = Dof(piece.version, target.address_size, target.little, piece.relocation, piece.providers)
    encoded = encode(dof)
    data = with_trailer(encoded.data, little=target.little) if piece.trailer else encoded.data
    fields = {field.offset: dof.providers[field.provider].probes[field.probe].function for field in encoded.addresses}
    lines = ['.pushsection .SUNW_dof,"a",%0x6ffffff4', ".balign 8", f".Ldof{number}:"]
    if piece.function:
        lines[0] = f'.pushsection .SUNW_dof,"ao",%0x6ffffff4,{piece.function}'
    at = 0
    for place in [*sorted(fields), len(data)]:
        lines += [f".byte {','.join(map(str, data[i : min(i + 32, place)]))}" for i in range(at, place, 32)]
        if place < len(data):
            # On 32-bit big-endian machines the distance stands in the second half of the field it is counted from.
            shift = " + 4" if target == (4, False, target.none) else ""
            value = f"code_{fields[place]}" + (f" - .{shift}" if piece.relocation == layout.DOFREL else "")
            word = f".quad {value}" if target.address_size == 8 else f".long {value}"
            pad = [] if target.address_size == 8 else [".long 0"]
            lines += [word, *pad] if target.little else [*pad, word]
            at = place + 8
    return "\n".join([*lines, ".popsection"])


def c_source(functions: list[str], pieces: list[Piece], extra: str = "", target: Target = HOST) -> str:
    """Return a C file: functions of some bytes each, the DOFs that name them, and `extra` C text.

    A function named `static NAME` is one; a DOF with `function` is kept by that function, as by `instrument`.
    """
    keepers = {piece.function: number for number, piece in enumerate(pieces) if piece.function}
    text: list[str] = []
    for words in functions:
        name = words.split()[-1]
        tie = f".reloc ., {target.none}, .Ldof{keepers[name]}\\n\\t" if name in keepers else ""
        linkage, hidden = ("static ", "") if words.startswith("static ") else ("", ', visibility("hidden")')
        text.append(
            f"{linkage}__attribute__((noinline, noclone, noipa)) int {name}(int x)\n"
            f'{{ __asm__ volatile("{tie}" "nop\\n\\tnop\\n\\tnop\\n\\tnop"); return x + {len(text) + 1}; }}\n'
            f'{linkage}int code_{name}(int) __attribute__((used, alias("{name}"){hidden}));\n'
        )
    for number, piece in enumerate(pieces):
        lines = [line.replace('"', '\\"') for line in assembler(piece, number, target).splitlines()]
        text.append("__asm__(" + "\n".join(f'"{line}\\n"' for line in lines) + ");\n")
    return "".join(text) + extra


class Registered(NamedTuple):
    """One registration: the module's name, its load address, the DOF as the kernel copied it, and the process."""

    module: str
    base: int
    data: bytes
    dof: Dof
    pid: int
    own_pid: int

    def places(self) -> dict[tuple[str, str, str], set[int]]:
        """Return the addresses of all sites by provider, probe and function."""
        return {
            (p.name, entry.name, entry.function): {entry.address + self.base + offset for offset in entry.offsets}
            for p in self.dof.providers
            for entry in p.probes
        }

    def enabled_places(self) -> dict[tuple[str, str, str], set[int]]:
        return {
            (p.name, entry.name, entry.function): {
                entry.address + self.base + offset for offset in entry.enabled_offsets
            }
            for p in self.dof.providers
            for entry in p.probes
            if entry.enabled_offsets
        }


class Outcome(NamedTuple):
    """What a program printed, and what it did with the device: calls in order, and registrations."""

    out: str
    errors: str
    calls: list[str]
    registered: list[Registered]


@pytest.fixture(scope="session")
def helper(run: Any, tmp_path_factory: Any) -> Path:
    """The stand-in as a library to preload."""
    path = tmp_path_factory.mktemp("helper") / "helper.so"
    run("gcc", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-shared", HERE / "helper.c", "-o", path)
    return Path(path)


@pytest.fixture
def watch(run: Any, helper: Path, tmp_path: Path) -> Any:
    """Run a program with the stand-in: `watch(program, mode="present", preload=True, **environment) -> Outcome`."""
    count = 0

    def watch_program(
        *command: Any, mode: str = "present", preload: bool = True, cwd: Path | None = None, **environment: str
    ) -> Outcome:
        nonlocal count
        count += 1
        log = tmp_path / f"helper{count}.log"
        log.write_text("")
        clean = {key: value for key, value in os.environ.items() if not key.startswith("DTRACE_DOF")}
        preloaded = {"LD_PRELOAD": str(helper)} if preload else {}
        own = {"HELPER_LOG": str(log), "HELPER_MODE": mode}
        done = run(*command, env={**clean, **preloaded, **own, **environment}, cwd=cwd)
        calls = log.read_text().splitlines()
        registered = []
        for words in (line.split() for line in calls if line.startswith("add ") and mode == "present"):
            number, module, base, _, size, pid, owner = words[1:]
            data = Path(f"{log}.{owner}.{number}").read_bytes()
            assert len(data) == int(size, 16)
            registered.append(Registered(module, int(base, 16), data, decode(data), int(pid), int(owner)))
        return Outcome(done.stdout, done.stderr, calls, registered)

    return watch_program


@pytest.fixture
def build(run: Any, tmp_path: Path) -> Any:
    """Compile C texts and the runtime, and link them: `build({"name": text, ...}, "-pie", ...) -> program`.

    The runtime is linked where the name `runtime` stands among the texts; `platform` is its USDT_DOF_PLATFORM.
    """
    count = 0

    def build_program(
        texts: dict[str, str], *options: str, cc: str = "gcc", platform: str = "freebsd", flags_of_c: str = "-O1 -fPIC",
        more: tuple[Any, ...] = (),
    ) -> Path:  # fmt: skip
        nonlocal count
        count += 1
        folder = tmp_path / f"build{count}"
        folder.mkdir()
        objects = []
        for name, text in texts.items():
            source = RUNTIME if text == "runtime" else folder / f"{name}.c"
            if text != "runtime":
                source.write_text(text)
            flags = ["-Wall", "-Wextra", "-Werror", f"-DUSDT_DOF_PLATFORM={platform}"] if text == "runtime" else []
            run(cc, *flags_of_c.split(), *flags, "-c", source, "-o", folder / f"{name}.o")
            objects.append(folder / f"{name}.o")
        run(cc, *objects, *more, *options, "-o", folder / "program")
        return Path(folder / "program")

    return build_program


@pytest.fixture
def in_file(usdtbuild: Any) -> Any:
    """Return the addresses of all sites that the DOFs of a program's file tell, by provider, probe and function."""

    def read(program: Path) -> dict[tuple[str, str, str], set[int]]:
        (merged,) = json.loads(usdtbuild("dof", "dump", "--merged", "--json", program).stdout)["tables"]
        return {
            (each["name"], entry["name"], entry["function"]): {entry["address"] + offset for offset in entry["offsets"]}
            for each in merged["providers"]
            for entry in each["probes"]
        }

    return read


@pytest.fixture
def symbols(run: Any) -> Any:
    """Return the addresses of a file's symbols by name, all of them: `symbols(program)["main"] -> [0x1040]`."""

    def read(program: Path) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for value, name in re.findall(r"^([0-9a-f]+) \w (\S+)$", run("nm", program).stdout, re.MULTILINE):
            found.setdefault(name, []).append(int(value, 16))
        return found

    return read
