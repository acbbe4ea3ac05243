"""`usdtbuild dof`: shows and checks DOF, in ELF files or by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .. import apart
from ..elf.layout import ET_REL
from ..errors import InputError, UsageError
from ..formats.dof import layout
from ..formats.dof.check import PLATFORMS, REJECTED, DofFinding, check, made_for
from ..formats.dof.decode import decode, split
from ..formats.dof.encode import encode
from ..formats.dof.merge import merge, resolve
from ..formats.dof.types import Dof, DofError
from ..record import NamedTuple
from ..text import one_line
from . import checked
from .as_json import dumps, headed
from .say import echo, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ..files import Data


class Piece(NamedTuple):
    """One DOF found in a file.

    `address` is where its first byte will be in memory, before the program is moved as a whole; None where there are
    no addresses (objects, raw DOF). `machine` is (bytes in an address, little-endian) of the ELF file, None for raw.
    """

    offset: int
    data: bytes
    address: int | None = None
    machine: tuple[int, bool] | None = None


@click.group(name="dof", short_help="Show and check DTrace's object format.")
def command() -> None:
    """Show (dump) or check the DOF of ELF files, or of files that hold nothing else."""


@command.command()
@click.argument("file")
@click.option("--merged", is_flag=True, help="Show the one DOF that the runtime makes of a program's, and registers.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@checked.user
def dump(file: str, merged: bool, as_json: bool, user: str) -> int:
    """Print what the DOF in FILE says: providers, probes, functions, offsets, arguments, stability.

    Addresses are those of the file where it has any; in objects and raw DOF they are what stands in the field.
    """

    def run() -> None:
        pieces = find(file)
        if merged:
            pieces = [_merged(file, pieces)]
        shown = [(piece, _decode(file, piece)) for piece in pieces]
        if as_json:
            echo(dumps(headed("dof-dump", {"tables": [_as_dict(piece, dof) for piece, dof in shown]})))
            return
        console = _console()
        for piece, dof in shown:
            _print(console, piece, dof)

    return apart.look(user, [file], run)


@command.command(name="check")
@click.argument("file")
@click.option(
    "--platform", "platforms", type=click.Choice(PLATFORMS), multiple=True,
    help="Check against this system; may be repeated. Default: those that the DOF was made for.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@checked.user
def check_command(file: str, platforms: tuple[str, ...], as_json: bool, user: str) -> int:
    """Say whether consumers would take the DOF in FILE. Exit code 1 if one would reject it or ignore a part of it."""

    def run() -> int:
        results = [
            (piece, platform, check(piece.data, platform) + _misfits(piece))
            for piece in find(file)
            for platform in platforms or made_for(piece.data)
        ]
        if as_json:
            echo(dumps(headed("dof-check", {"results": [_result(*result) for result in results]})))
        else:
            for piece, platform, findings in results:
                echo(f"DOF at offset {piece.offset:#x}: {platform}: " + ("" if findings else "accepted"))
                for finding in findings:
                    effect = "rejects it" if finding.effect == REJECTED else "ignores this"
                    echo(f"  {platform} {effect}: {one_line(finding.what)}")
        return int(any(findings for _, _, findings in results))

    return apart.look(user, [file], run)


# -- finding -----------------------------------------------------------------------------------------------------------


def find(path: str) -> list[Piece]:
    """Return every DOF in a file: all of a raw file, or the DOF sections of an ELF file. Raises InputError."""
    opened = apart.open_named(path)
    if opened is None:
        raise InputError(path, "is a folder")
    with opened:
        data = opened.view  # of a large file a mapping, of which only what is looked at is read
    if data[:4] == b"\x7fELF":
        pieces = _in_elf(path, data)
    elif data[:4] == layout.MAGIC:
        pieces = [Piece(*found) for found in _split(path, data)]
    else:
        raise InputError(path, "is neither DOF nor an ELF file")
    if not pieces:
        raise InputError(path, "has no DOF", "build it with --formats dof")
    return pieces


def _in_elf(path: str, data: Data) -> list[Piece]:
    from ..elf.image import Image
    from ..inspection.records import dof_sections, loaded_content

    image = Image(data, path)
    pieces = []
    for section in dof_sections(image):
        where = f"{path}, section {section.name}"
        if section.size > layout.MAX_SIZE_ORACLE:
            raise InputError(where, f"{section.size} bytes of DOF are more than any consumer takes")
        for place, content in _split(where, loaded_content(image, section)):
            address = None if image.type == ET_REL else section.address + place
            machine = (image.address_size, image.little)
            pieces.append(Piece(section.offset + place, content, address, machine))
    return pieces


def _split(where: str, content: Data) -> list[tuple[int, bytes]]:
    try:
        return split(content)
    except DofError as error:
        raise InputError(where, str(error)) from None


def _decode(path: str, piece: Piece) -> Dof:
    """Return a DOF with addresses that mean something, if there are any. Raises InputError."""
    try:
        dof = decode(piece.data)
        if piece.address is None:
            return dof
        return resolve(piece.data, piece.address)._replace(relocation=dof.relocation)  # as the file has them
    except DofError as error:
        raise InputError(f"{path}, DOF at offset {piece.offset:#x}", str(error)) from None


def _merged(path: str, pieces: Sequence[Piece]) -> Piece:
    addresses = [piece.address for piece in pieces if piece.address is not None]
    if len(addresses) < len(pieces):
        raise UsageError(f"--merged: {path} has no addresses yet; give the linked program or library")
    try:
        dof = merge([resolve(piece.data, address) for piece, address in zip(pieces, addresses)])
        return Piece(pieces[0].offset, encode(dof).data)
    except DofError as error:
        raise InputError(path, str(error)) from None


def _misfits(piece: Piece) -> list[DofFinding]:
    """Say where a DOF is not of the machine that its ELF file is for."""
    found = (8 if piece.data[4] == layout.MODEL_LP64 else 4, piece.data[5] == layout.ENCODING_LSB)
    if piece.machine is None or found == piece.machine:
        return []
    names = [f"{8 * size}-bit, {'little' if little else 'big'}-endian" for size, little in (found, piece.machine)]
    return [DofFinding(REJECTED, f"it is {names[0]}, and the file is {names[1]}")]


# -- showing -----------------------------------------------------------------------------------------------------------


def _result(piece: Piece, platform: str, findings: list[DofFinding]) -> dict[str, object]:
    found = [{"effect": finding.effect, "what": one_line(finding.what)} for finding in findings]
    return {"offset": piece.offset, "platform": platform, "accepted": not findings, "findings": found}


def _as_dict(piece: Piece, dof: Dof) -> dict[str, Any]:
    return {
        "offset": piece.offset,
        "size": len(piece.data),
        "version": dof.version,
        "address_size": dof.address_size,
        "byte_order": "little" if dof.little else "big",
        "relocation": layout.RELOCATION_NAMES.get(dof.relocation, dof.relocation),
        "addresses": "field" if piece.address is None else "file",
        "providers": [
            {
                "name": one_line(provider.name),
                "attributes": [f"{attribute.encode():#010x}" for attribute in provider.attributes],
                "probes": [
                    {
                        "function": one_line(probe.function),
                        "name": one_line(probe.name),
                        "native": [one_line(text) for text in probe.native],
                        "translated": [one_line(text) for text in probe.translated],
                        "mapping": probe.mapping,
                        "offsets": probe.offsets,
                        "enabled_offsets": probe.enabled_offsets,
                        "address": probe.address,
                    }
                    for probe in provider.probes
                ],
            }
            for provider in dof.providers
        ],
    }


def _console() -> Console:
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=100_000)  # a pipe gets whole lines


def _print(console: Console, piece: Piece, dof: Dof) -> None:
    from rich.table import Table
    from rich.text import Text

    echo(
        f"DOF at offset {piece.offset:#x}: {len(piece.data)} bytes, version {dof.version}, {8 * dof.address_size}-bit, "
        f"{'little' if dof.little else 'big'}-endian, "
        f"relocation {layout.RELOCATION_NAMES.get(dof.relocation, 'unknown')}"
    )
    for provider in dof.providers:
        attributes = " ".join(f"{attribute.encode():08x}" for attribute in provider.attributes)
        echo(f"provider {one_line(provider.name)}  (attributes {attributes})")
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
            table.add_row(*(Text(one_line(cell)) for cell in row))
        print_table(console, table)
