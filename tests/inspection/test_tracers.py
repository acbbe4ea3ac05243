"""What `inspection.tracers` says of operands is what tracers do: gdb, perf, bpftrace get each form and are watched."""

from __future__ import annotations

import re
from typing import Any

import pytest

from usdtbuild.formats import operands
from usdtbuild.inspection import tracers
from usdtbuild.tracing.others import watching

X86 = 62
# The program has 5 in di, 7 in si, 9 at -4(%rbp).
OPERANDS = (
    "-4@%edi", "8@%rdi", "2@%di", "1@%dil", "1@%bpl", "1@%al", "1@%ah", "4@%r9d", "2@%r8w", "1@%r9b", "8@%rip",
    "4@%eip", "8@%xmm0", "8@%mm0", "4@%k1", "%edi", "4@%edi,",
    "4@-4(%rbp)", "4@+8(%rsp)", "4@(%rsp)", "4@0x10(%rsp)", "4@(%rsp,%rdi,4)", "4@4(%rsp,%rdi)", "4@8(,%rdi,4)",
    "4@(%rip)", "4@8(%rip)", "4@-4+8(%rbp)",
    "4@count(%rip)", "4@count+4(%rip)", "4@4+count(%rip)", "4@count", "8@$count",
    "4@$71", "8@$-1", "8@$0x10",
    "8f@%xmm0", "4f@-4(%rbp)", "16@%rax", "9@%rax", "5@%eax", "3@%eax", "0@%eax",
)  # fmt: skip
COUNT = "\n .data\ncount: .long 1, 2\n"


def troubles(text: str, tracer: str) -> list[str]:
    operand = operands.parse_one(text, X86)
    return [trouble.effect for trouble in tracers.operand_troubles(operand, X86) if trouble.tracer == tracer]


@pytest.mark.live("gdb")
def test_gdb_reads_exactly_the_operands_it_is_said_to(program: Any, note: Any, gdb: str, run: Any) -> None:
    notes = (note(text, site=f".Lsite{i}", probe=f"p{i}") for i, text in enumerate(OPERANDS))
    path = program(*notes, COUNT, sites=("nop",) * len(OPERANDS))
    script = [word for i in range(len(OPERANDS)) for word in ("-ex", f"break -probe-stap pv:p{i}")] + ["-ex", "run"]
    script += ["-ex", "info registers k1"]
    for _ in OPERANDS:
        script += ["-ex", "echo <", "-ex", "print $_probe_arg0", "-ex", "echo >", "-ex", "continue"]
    done = run(gdb, "-nx", "-batch", *script, path, code=None)
    answers = re.findall(r"<([^>]*)>", done.stdout)
    assert len(answers) == len(OPERANDS), done.stdout + done.stderr
    # A processor without AVX-512 has no %k1, and gdb then knows none there.
    here = [text for text in OPERANDS if text != "4@%k1" or re.search(r"^k1 ", done.stdout, re.MULTILINE)]
    read = {text for text, answer in zip(OPERANDS, answers) if "=" in answer}
    assert read == {text for text in here if not troubles(text, "gdb")}


@pytest.mark.live
def test_perf_takes_exactly_the_operands_it_is_said_to(program: Any, note: Any, perf_probes: Any) -> None:
    provider = perf_probes.provider()
    alone = {"perf shows no probe of the file"}
    together = [text for text in OPERANDS if not alone & set(troubles(text, "perf"))]
    notes = (note(text, site=f".Lsite{i}", probe=f"{provider}p{i}", provider=provider)
             for i, text in enumerate(together))  # fmt: skip
    path = program(*notes, COUNT, sites=("nop",) * len(together))
    said: dict[str, str] = {}
    found: dict[str, str] = {}
    for i, text in enumerate(together):
        event = perf_probes.add(path, f"{provider}p{i}")
        found[text] = "added" if "arg1=" in event else "left out" if event else "refused"
        effects = troubles(text, "perf")
        said[text] = "refused" if "perf can't add the probe" in effects else "left out" if any(
            "leaves" in effect for effect in effects) else "added"  # fmt: skip
    assert found == said


@pytest.mark.live
@pytest.mark.parametrize(
    "text", [text for text in OPERANDS if "perf shows no probe of the file" in troubles(text, "perf")]
)
def test_one_such_operand_costs_perf_every_probe(text: str, program: Any, note: Any, perf_probes: Any) -> None:
    for order in ("good", "good bad", "bad good"):
        provider = perf_probes.provider()
        records = {"good": note(probe=f"{provider}good", provider=provider),
                   "bad": note(text, probe=f"{provider}bad", provider=provider, site=".Lsite1")}  # fmt: skip
        path = program(*(records[which] for which in order.split()), sites=("nop", "nop"))
        assert bool(perf_probes.add(path, f"{provider}good")) == (order == "good"), order


@pytest.mark.live
def test_bpftrace_reads_the_operands_it_is_said_to(program: Any, note: Any, bpftrace: str, run: Any) -> None:
    values = {"-4@%edi": 5, "8@%rdi": 5, "2@%di": 5, "1@%dil": 5, "8@%rsi": 7, "4@-4(%rbp)": 9, "4@$71": 71,
              "8@$-1": -1, "%edi": 5, "8@$0x10": 16, "4@-24(%rbp,%rdi,4)": 9}  # fmt: skip
    assert not any(troubles(text, "bcc") + troubles(text, "bpftrace") for text in values)
    if watching.version() >= (0, 27):  # it reads records with libbpf
        values = {text: value for text, value in values.items() if not troubles(text, "libbpf")}
    notes = (note(text, site=f".Lsite{i}", probe=f"p{i}") for i, text in enumerate(values))
    path = program(*notes, sites=("nop",) * len(values))
    script = "".join(f'usdt:{path}:pv:p{i} {{ printf("p{i}=%lld;", arg0) }} ' for i in range(len(values)))
    shown = run(bpftrace, "-e", script, "-c", path).stdout
    read = {int(number): int(value) for number, value in re.findall(r"p(\d+)=(-?\d+);", shown)}
    assert read == dict(enumerate(values.values()))


@pytest.mark.live
@pytest.mark.parametrize("text", ["1@%ah", "8f@%xmm0", "4@count", "16@%rax", "8@%xmm0"])
def test_bpftrace_does_not_read_the_others(text: str, program: Any, note: Any, bpftrace: str, run: Any) -> None:
    assert troubles(text, "bcc") + troubles(text, "bpftrace")
    script = f"usdt:{program(note(text), COUNT)}:pv:p0 {{ @ = arg0 }} BEGIN {{ exit() }}"
    done = run(bpftrace, "-e", script, code=None, timeout=60)
    assert done.returncode != 0
    complaints = done.stdout + done.stderr
    # The last is what version 0.27 says of all of them.
    assert re.search("Parse error|Assertion|not known|Unable to attach probe", complaints), complaints


@pytest.mark.parametrize(
    ("machine", "text", "tracer"),
    [(183, "4@w1", "libbpf"), (183, "8@[x3]", "perf"), (183, "8@[sp, #8]", "libbpf"), (40, "8@d0", "libbpf"),
     (243, "8@(s0)", "libbpf"), (22, "8@0(%r1,%r2)", "libbpf"), (21, "8@f1", "bcc")],
)  # fmt: skip
def test_other_machines(machine: int, text: str, tracer: str) -> None:
    """As their sources say; none of these machines is here to be asked."""
    found = tracers.operand_troubles(operands.parse_one(text, machine), machine)
    assert tracer in {trouble.tracer for trouble in found}
