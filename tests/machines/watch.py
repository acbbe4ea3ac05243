"""Runs inside gdb: stops at every site of a program, reads the arguments there, and writes what it saw as JSON.

gdb is started on the program with WATCH_PLAN in the environment naming a JSON file: the address of qemu's gdb server,
the semaphores to raise, and the sites. Arguments are read twice: as gdb's own `$_probe_argN`, where this gdb can read
SDT operands of the machine, and by the operands as the test took them apart.
"""

import json
import os
from pathlib import Path
from typing import Any

import gdb

plan = json.loads(Path(os.environ["WATCH_PLAN"]).read_text())
seen: list[Any] = []


def content(frame: Any, register: Any) -> Any:
    value = frame.read_register(register)
    return int(value.cast(gdb.lookup_type("unsigned long long" if value.type.sizeof == 8 else "unsigned int")))


def by_operand(frame: Any, operand: Any) -> Any:
    if "register" in operand:
        bits = content(frame, operand["register"]) & (1 << 8 * operand["size"]) - 1
    else:
        address = content(frame, operand["base"]) + operand["displacement"] & mask
        bits = int.from_bytes(bytes(memory.read_memory(address, operand["size"])), plan["order"])
    return bits


def by_gdb(index: Any, size: Any) -> Any:
    try:
        return int(gdb.parse_and_eval(f"$_probe_arg{index}")) & (1 << 8 * size) - 1
    except (gdb.error, NotImplementedError):
        return None


def string_at(address: Any) -> Any:
    return str(gdb.parse_and_eval(f"(char *) {address}").string())


class Site(gdb.Breakpoint):  # type: ignore[misc]
    def __init__(self, sites: Any) -> None:
        super().__init__(f"*{sites[0]['address']:#x}", internal=True)
        self.silent = True
        self.sites = sites

    def stop(self) -> Any:
        frame = gdb.selected_frame()
        for site in self.sites:
            values = [by_operand(frame, operand) for operand in site["operands"]]
            own = [by_gdb(i, operand["size"]) for i, operand in enumerate(site["operands"])]
            if site["text"]:
                values, own = [string_at(values[0])], own and [own[0] and string_at(own[0])]
            seen.append([site["probe"], values, own])
        return False


gdb.execute("set pagination off")
gdb.execute("set confirm off")
gdb.execute("set breakpoint always-inserted on")
gdb.execute("target remote " + plan["remote"])
memory = gdb.selected_inferior()
mask = (1 << 8 * plan["word"]) - 1
for address in plan["semaphores"]:
    memory.write_memory(address, (1).to_bytes(2, plan["order"]))
by_address: dict[int, list[Any]] = {}
for site in plan["sites"]:
    by_address.setdefault(site["address"], []).append(site)
breakpoints = [Site(sites) for sites in by_address.values()]
gdb.execute("continue")
Path(plan["seen"]).write_text(json.dumps(seen))
