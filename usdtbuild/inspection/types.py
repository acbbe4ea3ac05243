"""Types of C and C++ as debug information has them: what a value of each looks like, and how a call passes it.

Read from DWARF's entries, one at a time and only those that are asked for. Entries may lie: nothing is followed more
than `_DEEPEST` steps, and what doesn't add up is a type that nobody knows (`shape` is None).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from ..machines.calling import FLOAT, INTEGER, MOST, X87, Part, Shape
from ..record import NamedTuple
from .dwarf import number, text

# What values are. NUMBER: an integer, a truth value or an enumerator; VIEW: a text and its length; OTHER: the rest.
NUMBER, REAL, POINTER, REFERENCE, STRUCTURE, TEXT, VIEW, OTHER = (
    "number", "real", "pointer", "reference", "structure", "text", "view", "other",
)  # fmt: skip
_DEEPEST = 40
_PARTS, _MEMBERS, _ENUMERATORS, _NAME = 64, 1000, 256, 100
_THROUGH = {
    "DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_restrict_type", "DW_TAG_atomic_type",
    "DW_TAG_immutable_type", "DW_TAG_packed_type", "DW_TAG_template_alias", "DW_TAG_shared_type",
}  # fmt: skip
_STRUCTURES = {"DW_TAG_structure_type", "DW_TAG_class_type", "DW_TAG_union_type"}
_REFERENCES = {"DW_TAG_reference_type", "DW_TAG_rvalue_reference_type"}
_C = {0x1, 0x2, 0xC, 0x1D, 0x2C, 0x3E}  # DWARF 5, table 7.17, and dwarfstd.org
_CXX = {0x4, 0x19, 0x1A, 0x21, 0x2A, 0x2B, 0x3A}
# DW_ATE_...: boolean, complex_float, float, signed, signed_char, unsigned, unsigned_char, UTF
_BOOLEAN, _COMPLEX, _FLOAT, _SIGNED, _INTEGERS = 0x2, 0x3, 0x4, {0x5, 0x6}, {0x2, 0x5, 0x6, 0x7, 0x8, 0x10}
_CHARACTERS = {0x6, 0x8}
_BY_REFERENCE, _BY_VALUE = 4, 5  # DW_CC_pass_by_...
_IN_CLASS = 1  # DW_DEFAULTED_in_class
_STRING = "basic_string<char,std::char_traits<char>,std::allocator<char>>"
_STRING_SIZE = 32  # of libstdc++'s, which begins with a pointer to the text


class StrangeError(Exception):
    """A type isn't what debug information should say, or none that is known here."""


class Member(NamedTuple):
    """A member of a structure, or (name '') a base or a nameless structure in it. `bits`: a bit-field."""

    name: str
    offset: int
    type: Type
    bits: bool


def has(die: Any, *keys: str) -> bool:
    """Whether a DIE has one of these attributes."""
    return any(key in die.attributes for key in keys)


def language(die: Any) -> int:
    """Return what a DIE's unit is written in, DW_LANG_..."""
    return number(die.cu.get_top_DIE(), "DW_AT_language") or 0


def is_cxx(die: Any) -> bool:
    """Whether a DIE is C++'s."""
    return language(die) in _CXX


def is_known(die: Any) -> bool:
    """Whether a DIE is of a language whose calls are the machine's own."""
    return language(die) in _C | _CXX


class Types:
    """The types of a file's debug information."""

    def __init__(self) -> None:
        self._known: dict[int, Type] = {}
        self._depth = 0

    def of(self, die: Any, key: str = "DW_AT_type") -> Type | None:
        """Return the type that a DIE refers to, None for `void`. Raises StrangeError."""
        for _ in range(_DEEPEST):
            if key not in die.attributes:
                return None
            die = die.get_DIE_from_attribute(key)
            key = "DW_AT_type"
            if die.tag not in _THROUGH:
                break
        else:
            raise StrangeError
        if die.offset not in self._known:
            self._depth += 1
            if self._depth > _DEEPEST:
                raise StrangeError
            try:
                self._known[die.offset] = Type(self, die)
            finally:
                self._depth -= 1
        return self._known[die.offset]


class Type:
    """A type, without its qualifiers and names for it. `names` are its values' names. Raises StrangeError when made."""

    def __init__(self, types: Types, die: Any) -> None:
        self._types, self._die = types, die
        self.kind, self.size, self.signed = OTHER, number(die, "DW_AT_byte_size") or 0, False
        self.encoding = number(die, "DW_AT_encoding") or 0
        self.name = text(die, "DW_AT_name")[:_NAME]
        self.names: tuple[tuple[int, str], ...] = ()
        self.shape: Shape | None = None
        word = die.cu["address_size"]
        if die.tag == "DW_TAG_base_type":
            self._base()
        elif die.tag == "DW_TAG_enumeration_type":
            self._enumeration()
        elif die.tag == "DW_TAG_pointer_type" or die.tag in _REFERENCES:
            self.kind, self.size = REFERENCE if die.tag in _REFERENCES else POINTER, word
            self.shape = _scalar(word, INTEGER)
        elif die.tag == "DW_TAG_ptr_to_member_type":
            count = 2 if die.get_DIE_from_attribute("DW_AT_type").tag == "DW_TAG_subroutine_type" else 1
            self.size = count * word
            self.shape = Shape(self.size, word, tuple(Part(at * word, word, INTEGER) for at in range(count)))
        elif die.tag in _STRUCTURES:
            self._structure()
        elif die.tag == "DW_TAG_array_type":
            self._array()

    @property
    def spelled(self) -> str:
        """What it is called, for people."""
        sign = {POINTER: " *", REFERENCE: " &"}.get(self.kind, "")
        if not sign:
            return self.name or self.kind
        target = self.target
        return f"{target.name or target.kind if target is not None else 'void'}{sign}"

    @cached_property
    def target(self) -> Type | None:
        """What it points to; None for `void`, functions, and what isn't known."""
        try:
            return self._types.of(self._die)
        except StrangeError:
            return None

    @property
    def is_character(self) -> bool:
        """Whether it is `char`."""
        return self.kind == NUMBER and self.size == 1 and self.encoding in _CHARACTERS and self.name == "char"

    @cached_property
    def members(self) -> list[Member]:
        """A structure's members, bases first. Raises StrangeError."""
        found: list[Member] = []
        for child in self._die.iter_children():
            base = child.tag == "DW_TAG_inheritance"
            if child.tag == "DW_TAG_variant_part" or (base and has(child, "DW_AT_virtuality")):
                raise StrangeError
            if not base and (child.tag != "DW_TAG_member" or has(child, "DW_AT_external", "DW_AT_declaration")):
                continue
            type_ = self._types.of(child)
            if type_ is None or len(found) == _MEMBERS:
                raise StrangeError
            bits = has(child, "DW_AT_bit_size", "DW_AT_data_bit_offset")
            found.append(Member(text(child, "DW_AT_name")[:_NAME], _offset(child), type_, bits))
        return found

    def _base(self) -> None:
        size, encoding = self.size, self.encoding
        if encoding in _INTEGERS and size in {1, 2, 4, 8}:
            self.kind, self.signed = NUMBER, encoding in _SIGNED
            if encoding == _BOOLEAN:
                self.names = (0, "false"), (1, "true")
            self.shape = _scalar(size, INTEGER)
        elif encoding in _INTEGERS and size == 16:
            self.shape = _scalar(size, INTEGER)
        elif encoding == _FLOAT and size in {2, 4, 8, 16}:
            self.kind = REAL if size in {4, 8} else OTHER
            is_x86 = self._die.dwarfinfo.config.machine_arch in {"x64", "x86"}
            x87 = size == 16 and "128" not in self.name and is_x86  # long double, _Float64x, __float80
            self.shape = _scalar(size, X87 if x87 else FLOAT)
        elif encoding == _COMPLEX and size in {8, 16}:
            self.shape = Shape(size, size // 2, (Part(0, size // 2, FLOAT), Part(size // 2, size // 2, FLOAT)))

    def _enumeration(self) -> None:
        under = self._types.of(self._die)
        self.size = self.size or (under.size if under is not None else 4)
        if self.size not in {1, 2, 4, 8}:
            raise StrangeError
        values: list[tuple[int, str]] = []
        for child in self._die.iter_children():
            value = number(child, "DW_AT_const_value")
            if child.tag == "DW_TAG_enumerator" and value is not None and len(values) < _ENUMERATORS:
                values.append((value, text(child, "DW_AT_name")[:_NAME]))
        self.signed = under.signed if under is not None else any(value < 0 for value, _ in values)
        bits, low = 8 * self.size, -(1 << 8 * self.size - 1) if self.signed else 0
        self.names = tuple({(value - low) % (1 << bits) + low: name for value, name in reversed(values)}.items())
        self.kind, self.shape = NUMBER, _scalar(self.size, INTEGER)

    def _array(self) -> None:
        element = self._types.of(self._die)
        counts = [_count(child) for child in self._die.iter_children() if child.tag == "DW_TAG_subrange_type"]
        if has(self._die, "DW_AT_GNU_vector") or element is None or element.shape is None:
            return
        total = 1
        for one in counts:
            total *= one
        self.size = self.size or total * element.size
        parts = _repeated(element.shape.parts, element.size, total) if self.size <= MOST else ()
        self.shape = Shape(self.size, element.shape.align, parts)

    def _structure(self) -> None:
        compact = self.name.replace(" ", "")
        if compact == _STRING and self._is_gnu_string():
            self.kind, self.size, self.shape = TEXT, _STRING_SIZE, Shape(_STRING_SIZE, 8, (), by_address=True)
            return
        if has(self._die, "DW_AT_declaration"):
            return
        self.kind = VIEW if compact.startswith("basic_string_view<") else STRUCTURE
        try:
            parts, align = self._parts()
            by_address = self._is_by_address()
        except StrangeError:
            if number(self._die, "DW_AT_calling_convention") == _BY_REFERENCE or self._has_virtual_bases():
                self.shape = Shape(self.size, 8, (), by_address=True)
            return
        align = max(align, number(self._die, "DW_AT_alignment") or 1)
        self.shape = Shape(self.size, align, parts if self.size <= MOST else (), by_address)

    def _is_gnu_string(self) -> bool:
        if not has(self._die, "DW_AT_declaration"):
            return any(text(child, "DW_AT_name") == "_M_dataplus" for child in self._die.iter_children())
        parent = self._die.get_parent()
        return parent is not None and text(parent, "DW_AT_name") in {"__cxx11", "std"}

    def _parts(self) -> tuple[tuple[Part, ...], int]:
        """Return the scalars of a structure, and its alignment. Raises StrangeError."""
        found, align = dict[Part, None](), 1
        for member in self.members:
            if member.bits:
                found.update(dict.fromkeys(self._bits(member)))
                align = max(align, member.type.size)
                continue
            shape = member.type.shape
            if shape is None or not 0 <= member.offset <= max(self.size - shape.size, 0):
                raise StrangeError
            align = max(align, shape.align if not member.offset % shape.align else 1)
            found.update((part._replace(offset=part.offset + member.offset), None) for part in shape.parts)
            if len(found) > _PARTS:
                if self.size <= MOST:
                    raise StrangeError
                found.clear()
        return tuple(found), align

    def _bits(self, member: Member) -> Iterator[Part]:
        """Yield the bytes in which a bit-field may be: those of its type, which the structure has."""
        for at in range(max(member.type.size, 1)):
            if member.offset + at < self.size:
                yield Part(member.offset + at, 1, INTEGER)

    def _has_virtual_bases(self) -> bool:
        children = self._die.iter_children()
        return any(child.tag == "DW_TAG_inheritance" and has(child, "DW_AT_virtuality") for child in children)

    def _is_by_address(self) -> bool:
        """Whether C++ passes its address: compilers say so, or its functions do. Raises StrangeError."""
        said = number(self._die, "DW_AT_calling_convention")
        if said in {_BY_REFERENCE, _BY_VALUE}:
            return said == _BY_REFERENCE
        if not is_cxx(self._die):
            return False
        found = any(member.type.shape is not None and member.type.shape.by_address for member in self.members)
        for child in self._die.iter_children():
            if child.tag == "DW_TAG_subprogram":
                found = self._makes_special(child) or found
        return found

    def _makes_special(self, method: Any) -> bool:
        """Whether a member function lets no copy be made of bytes alone. Raises StrangeError where that isn't sure."""
        name = text(method, "DW_AT_name")
        if number(method, "DW_AT_virtuality"):
            return True
        is_copy = name == self.name.partition("<")[0] and self._takes_its_like(method)
        if not name.startswith("~") and not is_copy:
            return False
        if has(method, "DW_AT_deleted", "DW_AT_GNU_deleted"):
            raise StrangeError
        return not has(method, "DW_AT_artificial") and number(method, "DW_AT_defaulted") != _IN_CLASS

    def _takes_its_like(self, method: Any) -> bool:
        parameters = [child for child in method.iter_children() if child.tag == "DW_TAG_formal_parameter"]
        given = [one for one in parameters if not has(one, "DW_AT_artificial")]
        if not given:
            return False
        reference = given[0].get_DIE_from_attribute("DW_AT_type")
        for _ in range(_DEEPEST):
            if reference.tag in _REFERENCES:
                break
            if reference.tag not in _THROUGH or not has(reference, "DW_AT_type"):
                return False
            reference = reference.get_DIE_from_attribute("DW_AT_type")
        while has(reference, "DW_AT_type") and reference.offset != self._die.offset:
            reference = reference.get_DIE_from_attribute("DW_AT_type")
            if reference.tag not in _THROUGH:
                break
        return bool(reference.offset == self._die.offset)


def _scalar(size: int, kind: str) -> Shape:
    return Shape(size, size, (Part(0, size, kind),))


def _repeated(parts: tuple[Part, ...], size: int, count: int) -> tuple[Part, ...]:
    """Return the parts of an array's elements. Raises StrangeError where they are too many."""
    if len(parts) * count > _PARTS:
        raise StrangeError
    return tuple(part._replace(offset=part.offset + at * size) for at in range(count) for part in parts)


def _count(die: Any) -> int:
    count, upper = number(die, "DW_AT_count"), number(die, "DW_AT_upper_bound")
    found = count if count is not None else (upper + 1 if upper is not None else 0)
    return found if 0 <= found < 1 << 32 else 0  # [0] has the upper bound -1


def _offset(die: Any) -> int:
    """Return where a member is, in bytes: DWARF 2 has an expression, which adds it to the address."""
    place = die.attributes.get("DW_AT_data_member_location")
    if place is None:
        return (number(die, "DW_AT_data_bit_offset") or 0) // 8
    if isinstance(place.value, int):
        return place.value
    if len(place.value) > 1 and place.value[0] == 0x23:  # DW_OP_plus_uconst
        found = shift = 0
        for byte in place.value[1:11]:
            found |= (byte & 0x7F) << shift
            shift += 7
        return found
    raise StrangeError
