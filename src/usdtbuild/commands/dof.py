"""`usdtbuild dof`: shows and checks DOF, in ELF files or by itself."""

from __future__ import annotations

import json
from typing import NamedTuple

import click

from ..dof_records import TRAILER
from ..errors import InputError
from ..files import open_input
from ..formats.dof import layout as L
from ..formats.dof.check import PLATFORMS, REJECTED, check
from ..formats.dof.decode import decode, size_of
from ..formats.dof.types import Dof, DofError

SECTION_TYPE = 0x6FFFFFF4
SECTION_NAME = ".SUNW_dof"


class Piece(NamedTuple):
    """One DOF found in a file: where it begins, and its bytes."""

    offset: int
    data: bytes


@click.group(name="dof", short_help="Show and check DTrace's object format.")
def command() -> None:
    """Show (dump) or check the DOF of ELF files, or of files that hold nothing else."""


@command.command()
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def dump(file: str, as_json: bool) -> None:
    """Print what the DOF in FILE says: providers, probes, functions, offsets, arguments, stability."""
    shown = []
    for piece in find(file):
        try:
            dof = decode(piece.data)
        except DofError as error:
            raise InputError(f"{file}, DOF at offset {piece.offset:#x}", str(error)) from None
        shown.append(_as_dict(piece, dof))
    if as_json:
        click.echo(json.dumps(shown, indent=2))
        return
    for entry, piece in zip(shown, find(file)):
        _print(entry, decode(piece.data))


@command.command(name="check")
@click.argument("file")
@click.option(
    "--platform", "platforms", type=click.Choice(PLATFORMS), multiple=True,
    help="Check against one system only; may be repeated. Default: all of them.",
)  # fmt: skip
def check_command(file: str, platforms: tuple[str, ...]) -> None:
    """Say whether consumers would take the DOF in FILE. Exit code 1 if one would reject it or ignore a part of it."""
    bad = False
    for piece in find(file):
        for platform in platforms or PLATFORMS:
            findings = check(piece.data, platform)
            bad = bad or bool(findings)
            click.echo(f"DOF at offset {piece.offset:#x}: {platform}: " + ("accepted" if not findings else ""))
            for finding in findings:
                effect = "rejects it" if finding.effect == REJECTED else "ignores this"
                click.echo(f"  {platform} {effect}: {finding.what}")
    if bad:
        click.get_current_context().exit(1)


def find(path: str) -> list[Piece]:
    """Return every DOF in a file: all of a raw file, or the DOF sections of an ELF file. Raises InputError."""
    with open_input(path) as opened:
        data = bytes(opened.view)
    if data[:4] == L.MAGIC:
        return _split(path, data, 0)
    if data[:4] != b"\x7fELF":
        raise InputError(path, "is neither DOF nor an ELF file")
    pieces = []
    for offset, content in _elf_sections(path, data):
        pieces += _split(path, content, offset)
    if not pieces:
        raise InputError(path, "has no DOF", "build it with --formats dof")
    return pieces


def _split(path: str, data: bytes, base: int) -> list[Piece]:
    """Return the DOFs that follow one another in a section; zero bytes between them are a linker's padding."""
    pieces = []
    offset = 0
    while data[offset:].strip(b"\0"):
        try:
            size = size_of(data, offset)
        except DofError as error:
            raise InputError(f"{path}, offset {base + offset:#x}", str(error)) from None
        pieces.append(Piece(base + offset, data[offset : offset + size]))
        offset += size + -size % 8
        if data[offset : offset + 4] == TRAILER:  # ours, for the runtime that registers the DOF
            offset += 8
    return pieces


def _elf_sections(path: str, data: bytes) -> list[tuple[int, bytes]]:
    from ..elf.image import Image

    image = Image(data, path)
    return [
        (section.offset, data[section.offset : section.offset + section.size])
        for section in image.sections
        if section.type == SECTION_TYPE or section.name == SECTION_NAME
    ]


def _as_dict(piece: Piece, dof: Dof) -> dict[str, object]:
    return {
        "offset": piece.offset,
        "size": len(piece.data),
        "version": dof.version,
        "address_size": dof.address_size,
        "byte_order": "little" if dof.little else "big",
        "relocation": L.RELOCATION_NAMES.get(dof.relocation, dof.relocation),
        "providers": [
            {
                "name": provider.name,
                "attributes": [f"{attribute.encode():#010x}" for attribute in provider.attributes],
                "probes": [probe._asdict() for probe in provider.probes],
            }
            for provider in dof.providers
        ],
    }


def _print(entry: dict[str, object], dof: Dof) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=100_000)  # a pipe gets whole lines
    click.echo(
        f"DOF at offset {entry['offset']:#x}: {entry['size']} bytes, version {dof.version}, "
        f"{8 * dof.address_size}-bit, {entry['byte_order']}-endian, relocation {entry['relocation']}"
    )
    for provider in dof.providers:
        attributes = " ".join(f"{attribute.encode():08x}" for attribute in provider.attributes)
        click.echo(f"provider {provider.name}  (attributes {attributes})")
        table = Table(box=None, pad_edge=False)
        for name in ("probe", "function", "address", "offsets", "is-enabled", "arguments"):
            table.add_column(name, overflow="fold")
        for probe in provider.probes:
            arguments = ", ".join(probe.native)
            if probe.translated != probe.native or probe.mapping != tuple(range(len(probe.native))):
                mapped = ", ".join(f"{text} = arg{index}" for text, index in zip(probe.translated, probe.mapping))
                arguments += f" : {mapped}"
            row = (
                probe.name, probe.function, f"{probe.address:#x}", " ".join(f"{o:#x}" for o in probe.offsets),
                " ".join(f"{o:#x}" for o in probe.enabled_offsets), arguments,
            )  # fmt: skip
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)
