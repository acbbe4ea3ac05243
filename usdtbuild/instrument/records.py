"""The records of one text section's sites in every format that is wanted: which writer, in which order."""

from __future__ import annotations

from ..errors import UsdtError
from ..options import RECORDS, SAFE, Records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from ..elf.layout import SectionIndex
    from ..elf.object import ElfObject
    from .context import Context, RecordedPlace
    from .target import Options

    # Takes the context, the section, its sites, their group and the section's own, and a label to keep.
    Write = Callable[[Context, SectionIndex, Sequence[RecordedPlace], int, int, int], Sequence[int]]

# No format that tracers read: for the program itself, if it is wanted.
_SITES = Records("site table", ".usdtbuild.sites", "site_table", 4, loaded=True)
_chosen: dict[tuple[tuple[str, ...], bool], list[tuple[Write, bool]]] = {}  # by options' formats and site table


def write_records(
    context: Context, section: SectionIndex, places: Sequence[RecordedPlace], group: int
) -> Sequence[int]:
    """Append the records of the sites of `section` in every format; return a label on a record of each site.

    Record sections are linked to the code (SHF_LINK_ORDER) and members of its group, so that bfd and lld drop them
    with the code (for notes in gold and mold see `dropped`); the labels are what the neutralised relocations point to,
    so that a record is kept with the code. Only of loaded sections do linkers ask whether anything refers to them, so a
    label on DOF or on functions' names comes before one on a note. Raises UsdtError for a format that has no writer.
    """
    own = group
    writers = _writers(context)
    if not group:  # a group of its own, not COMDAT: bfd's -r would put all record sections into one
        group = context.editor.add_group(context.alias(section, 0), 0)
    labels: Sequence[int] = ()
    keep = 0
    for write, loaded in writers:
        labels = write(context, section, places, group, own, keep)
        keep = labels[0] if loaded else 0
    return labels


def refuse_complete(source: ElfObject, options: Options, providers: Container[str]) -> None:
    """Raise UsdtError where something is asked for that the object's probes, completed by a header, don't have.

    Only `providers` count, those that the object describes: probes of sys/sdt.h are somebody else's.
    """
    lacking = _lacking(source, options)
    if not lacking:
        return
    from ..formats import stapsdt

    size, little = 8 if source.layout.is64 else 4, source.layout.little
    for index in source.sections_named(stapsdt.SECTION):
        for note in stapsdt.decode(bytes(source.content(index)), size, little=little):
            if note.provider in providers:
                what, formats = lacking
                raise UsdtError(
                    f"{source.path}: the probes of provider {note.provider} are complete and have SDT notes, so "
                    f"{what} can't be added; make their header with `usdtbuild header --formats={formats}` "
                    "and compile again"
                )


def _lacking(source: ElfObject, options: Options) -> tuple[str, str] | None:
    """Return what the options ask for and a complete object lacks, and the formats of a header that leaves it open.

    Any format that a header can't write will do for NOPs and the table of sites.
    """
    for name in options.formats:
        if not source.sections_named(RECORDS[name].section):
            return name, ",".join(options.formats)
    if options.site_table and not source.sections_named(_SITES.section):
        return "--site-table", "dof"
    if options.nop != SAFE:
        strings = source.sections[source.sections[source.symtab].link]
        if source.data.find(b".usdt0", strings.offset, strings.offset + strings.size) < 0:  # not instrumented before
            return f"--nop={options.nop}", "dof"
    return None


def _writers(context: Context) -> list[tuple[Write, bool]]:
    """Return the functions that write what the options ask for, in their order, and whether each one's is loaded."""
    formats, table = context.options.formats, context.options.site_table
    if (formats, table) not in _chosen:
        wanted = [RECORDS[name] for name in formats] + [_SITES] * table
        try:
            _chosen[formats, table] = [
                # Only who asks for a format pays for its import; importlib costs as much as the module.
                (__import__(f"{__package__}.{one.writer}", fromlist=["write"]).write, one.loaded)
                for one in sorted(wanted, key=lambda one: one.turn)
            ]
        except ModuleNotFoundError as error:
            raise UsdtError(f"{context.source.path}: nothing here writes records of a format: {error}") from None
    return _chosen[formats, table]
