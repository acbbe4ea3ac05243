"""What is known about a file's calls into libraries, as plain records. Addresses are those of the file."""

from __future__ import annotations

from ...record import NamedTuple

# What fills a slot, and when: the first call; the start of the program; at the start, what a resolver chooses.
LAZY, BOUND, IFUNC = "lazy", "bound", "ifunc"


class CallSite(NamedTuple):
    """One call or jump, of the program's own code: where, `call` or `jump`, and whether it goes through the slot itself
    instead of a stub (-fno-plt).

    `place` is where the slot's word is by then, as operands of records are spelled, if it was loaded some code before
    (''). It may be another slot's, too, or something else: what is there tells. `size` is how many bytes the
    instruction has, where that isn't what all such calls have.
    """

    address: int
    kind: str
    through_slot: bool
    place: str = ""
    size: int = 0


class Call(NamedTuple):
    """One function that a file calls through a slot.

    `name` is '' where nobody knows it (an IFUNC of a stripped file). `library` is the name of the library that the
    symbol's version asks for, or whose symbols have it; '' where that isn't known. `kind` is LAZY, BOUND or IFUNC.
    `canonical` is the address that the function has for the whole process where it is one of the file's stubs, else
    0: calls through pointers and from other files come by there, too. `resolver` is the address of an IFUNC's
    resolver, where this file has it. `weak`: the function may be missing. `stubs` are the addresses at which stubs can
    be entered, `entry` that of the PLT entry which a lazily bound slot leads to at first, where it has one for itself.
    """

    name: str
    version: str
    library: str
    kind: str
    slot: int
    stubs: tuple[int, ...]
    canonical: int = 0
    resolver: int = 0
    weak: bool = False
    sites: tuple[CallSite, ...] = ()
    entry: int = 0

    @property
    def title(self) -> str:
        """`puts@GLIBC_2.2.5`; an IFUNC without a name is called by its resolver."""
        name = self.name or f"*{self.resolver:#x}"
        return f"{name}@{self.version}" if self.version else name


class CallReport(NamedTuple):
    """All calls of one file. `needed` are the names of DT_NEEDED; `lazy`: slots may be filled at the first call.

    `problem` says why nothing can be known, or is ''. `first_call_only`: stubs see no call but the first. `resolver` is
    the address of the word that holds the dynamic linker's own address once PLT entries may be run, and `loads` what
    registers hold when a slot's function is entered (`machines.stubs.Lazy`). `missing` says which calls are not known.
    """

    path: str
    kind: str
    machine: str
    address_size: int
    little: bool
    build_id: str
    needed: tuple[str, ...]
    calls: tuple[Call, ...]
    lazy: bool = False
    problem: str = ""
    first_call_only: bool = False
    resolver: int = 0
    loads: tuple[tuple[int, str], ...] = ()
    missing: str = ""

    @property
    def by_slot(self) -> frozenset[int]:
        """The slots of functions that may be called by code which loads the slot: who looks at stubs misses that.

        It may where a function has no stub, or such a call was found. Compilers write such calls for whole objects and
        not all may be found, so in a file that has several it may with any. (One is what glibc's stub for TLS is
        taken for.)
        """
        lazy = [call for call in self.calls if call.entry]
        inline = {call.slot for call in lazy if any(site.through_slot for site in call.sites)}
        return frozenset(call.slot for call in lazy if len(inline) > 1 or call.slot in inline or not call.stubs)
