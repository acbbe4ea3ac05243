"""Writes a provider's documentation in Markdown: what each probe means, what it carries, and a command to try.

The words are those of the comments above the provider and its probes. The commands are for programs on Linux, whose
probes bpftrace and perf find by provider and name; `PROGRAM` stands for the path of the executable or library.
"""

from __future__ import annotations

from ..model import FLOAT, INTEGER, Argument, Attributes, Probe, Provider, macro_name
from .printer import signature
from .stability import attribute_text

# SDT notes describe no more arguments than that (reference: systemtap-sdt's STAP_PROBE12).
_VISIBLE_ARGUMENTS = 12
# bpftrace knows arg0 to arg5 on x86-64 before it learnt to read the others from SDT notes (0.17 doesn't).
_PRINTED_ARGUMENTS = 6


def write(providers: tuple[Provider, ...]) -> str:
    """Return the document for these providers."""
    if not providers:
        return "No provider is declared.\n"
    return "\n".join(_provider(provider) for provider in providers)


def _provider(provider: Provider) -> str:
    rows = "".join(
        f"| [`{probe.name}`](#{_anchor(provider, probe)}) | {_code(signature(probe.arguments))} "
        f"| {_text_cell(_first_sentence(probe.comment))} |\n"
        for probe in provider.probes
    )
    table = f"| Probe | Arguments | |\n|---|---|---|\n{rows}\n" if rows else "It has no probes.\n\n"
    sections = "\n".join(_probe(provider, probe) for probe in provider.probes)
    return f"# Provider `{provider.name}`\n\n{_paragraph(provider.comment)}{table}{_stability(provider)}{sections}"


def _stability(provider: Provider) -> str:
    if provider.attributes == Attributes():
        return ""
    rows = "".join(
        f"| {part} | {attribute_text(attribute)} |\n"
        for part, attribute in zip(Attributes._fields, provider.attributes)
    )
    return f"| Part | Name/data/class stability |\n|---|---|\n{rows}\n"


def _anchor(provider: Provider, probe: Probe) -> str:
    return f"{provider.name}{probe.name}".lower()


def _probe(provider: Provider, probe: Probe) -> str:
    macro = macro_name(provider.name, probe.written)
    names = ", ".join(argument.name or f"arg{index}" for index, argument in enumerate(probe.arguments))
    return (
        f"## `{provider.name}:{probe.name}`\n\n{_paragraph(probe.comment)}"
        f"Fired by `{macro}({names})`; `{macro}_ENABLED()` tells whether anyone is watching.\n\n"
        f"{_arguments(probe)}```sh\n{bpftrace(provider, probe)}\n{_perf(provider, probe)}\n```\n"
    )


def _arguments(probe: Probe) -> str:
    if not probe.arguments:
        return "It has no arguments.\n\n"
    shown = {t.native: _code(t.type) for t in probe.translated or ()}
    head = "| | Argument | Type | Kind |" + (" DTrace sees |" if shown else "")
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    for index, argument in enumerate(probe.arguments):
        line = f"| arg{index} | {argument.name or '–'} | {_code(argument.type.spelling)} | {_kind(argument)} |"
        lines.append(line + (f" {shown.get(index, '–')} |" if shown else ""))
    text = "\n".join(lines) + "\n\n"
    if len(probe.arguments) > _VISIBLE_ARGUMENTS:
        text += f"Tracers that read SDT notes see the first {_VISIBLE_ARGUMENTS} arguments.\n\n"
    return text


def _kind(argument: Argument) -> str:
    """Say in a few words what a tracer gets for an argument."""
    ctype = argument.type
    if ctype.kind == INTEGER:
        size = f"{ctype.size64}" if ctype.size64 == ctype.size32 else f"{ctype.size64} (32-bit: {ctype.size32})"
        return f"{'signed' if ctype.signed else 'unsigned'}, {size} byte{'s' if size != '1' else ''}"
    if ctype.kind == FLOAT:
        return f"the bits of a {'double' if ctype.size64 == 8 else 'float'}, as an integer"
    return "string" if ctype.is_string else "address"


def bpftrace(provider: Provider, probe: Probe) -> str:
    """Return a bpftrace command that prints the probe's arguments, or as many as any bpftrace can."""
    formats, values = [], []
    for index, argument in enumerate(probe.arguments[:_PRINTED_ARGUMENTS]):
        conversion, value = _conversion(argument, f"arg{index}")
        formats.append(f"{argument.name or f'arg{index}'}={conversion}")
        values.append(value)
    text = " ".join([probe.sdt_name, *formats])
    action = f'printf("{text}\\n"{"".join(f", {value}" for value in values)});'
    return f"bpftrace -e 'usdt:PROGRAM:{provider.name}:{probe.sdt_name} {{ {action} }}'"


def _conversion(argument: Argument, place: str) -> tuple[str, str]:
    ctype = argument.type
    if ctype.is_string:
        return "%s", f"str({place})"
    if ctype.kind == INTEGER:
        return ("%lld" if ctype.signed else "%llu"), place
    return ("0x%llx" if ctype.kind == FLOAT else "%p"), place


def _perf(provider: Provider, probe: Probe) -> str:
    event = f"sdt_{provider.name}:{probe.sdt_name}"
    made = event.replace("__", "_*")  # newer versions name the event with one
    return f"perf buildid-cache --add PROGRAM && perf probe {event} && perf record -e {made} -a"


def _paragraph(text: str) -> str:
    return f"{_text(text)}\n\n" if text else ""


def _first_sentence(text: str) -> str:
    first = text.partition("\n\n")[0].replace("\n", " ")
    sentence, stop, _ = first.partition(". ")
    return sentence + stop.rstrip(" ") if stop else first


def _code(text: str) -> str:
    """Return code for a table's cell; a backquote in it needs a longer fence, and a bar would end the cell."""
    if not text:
        return "–"
    return f"`` {text} ``".replace("|", "\\|") if "`" in text else f"`{text}`".replace("|", "\\|")


def _text_cell(text: str) -> str:
    return _text(text).replace("|", "\\|")


def _text(text: str) -> str:
    """Return a comment's words as Markdown, which takes `<` for the start of a tag."""
    return text.replace("<", "\\<")
