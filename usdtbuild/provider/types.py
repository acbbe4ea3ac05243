"""The C types that a probe's arguments can have: names, sizes, signedness, and what the header declares for them.

Sizes are those of LP64 and ILP32 Unix systems. Knows C types only: the parser reads declarations and hands a base
type and its derivations to `Resolver`; nothing here reads text.

A type travels through the parser as a `Shape`: a base and a string of derivations, outermost first, `*` pointer,
`[` array, `(` function. `char *argv[4]` is base `char`, derivations `[*`. Only the first two matter to a probe, so
resolving a chain of typedefs needs no recursion, however long the chain.
"""

from __future__ import annotations

from ..model import FLOAT, INTEGER, POINTER, CType
from ..record import NamedTuple

# The C types that the header defines for itself, because C89 has no name, or no portable name, for them.
INT64, UINT64 = "usdtbuild_int64", "usdtbuild_uint64"
LLONG, ULLONG = "usdtbuild_llong", "usdtbuild_ullong"
SIZE, SSIZE = "usdtbuild_size", "usdtbuild_ssize"
FUNCTION = "usdtbuild_function"
# What only the drop-in takes: a type that nothing declares, and a struct that is passed by value.
UNDECLARED, BY_VALUE = "usdtbuild_undeclared", "usdtbuild_by_value"
ANY = "const void *"
_ANY_VOLATILE = "const volatile void *"
_STRINGS = ("const char *", "const volatile char *")

# What a DOF consumer takes for a type's name, without its NUL (128 bytes with it).
MAX_SPELLING = 127


class Basic(NamedTuple):
    """A type that C or a common header defines.

    `parameter` is the header's C type for a value, `target` the one for what a pointer points to ('' where that
    differs between platforms or C versions, so that the header takes `const void *`).
    """

    kind: str
    signed: bool
    size64: int
    size32: int
    parameter: str
    target: str


class Base(NamedTuple):
    """What a declaration's specifiers name: `what` is one of "basic", "name", "struct", "union", "enum", "bad".

    `name` is the canonical name of a basic type, a name to look up, a tag, or (bad) the sentence to report. A name
    with a scope (``D`uint32_t``) has `scoped`.
    """

    what: str
    name: str
    volatile: bool = False
    scoped: bool = False


class Shape(NamedTuple):
    """A whole type: base and derivations, outermost first."""

    base: Base
    derived: str


def _integer(signed: bool, size64: int, size32: int, parameter: str, target: str = "") -> Basic:
    return Basic(INTEGER, signed, size64, size32, parameter, target)


_CHAR = _integer(True, 1, 1, "char", "char")
_SCHAR = _integer(True, 1, 1, "signed char", "signed char")
_UCHAR = _integer(False, 1, 1, "unsigned char", "unsigned char")
_SHORT = _integer(True, 2, 2, "short", "short")
_USHORT = _integer(False, 2, 2, "unsigned short", "unsigned short")
_INT = _integer(True, 4, 4, "int", "int")
_UINT = _integer(False, 4, 4, "unsigned int", "unsigned int")
_LONG = _integer(True, 8, 4, "long", "long")
_ULONG = _integer(False, 8, 4, "unsigned long", "unsigned long")
_LLONG = _integer(True, 8, 8, INT64, LLONG)
_ULLONG = _integer(False, 8, 8, UINT64, ULLONG)
_INT64 = _integer(True, 8, 8, INT64, INT64)
_UINT64 = _integer(False, 8, 8, UINT64, UINT64)
_BOOL = _integer(False, 1, 1, "bool")
_FLOAT = Basic(FLOAT, True, 4, 4, "float", "float")
_DOUBLE = Basic(FLOAT, True, 8, 8, "double", "double")
# Integers whose C type differs between platforms although their size doesn't: no pointer to them is typed.
_S32, _U32 = _INT._replace(target=""), _UINT._replace(target="")
_S64, _U64 = _INT64._replace(target=""), _UINT64._replace(target="")
_WORD, _UWORD = _integer(True, 8, 4, SSIZE), _integer(False, 8, 4, SIZE)

# Types that C spells with keywords, by their shortest spelling. `void` is no value, but can be pointed to.
KEYWORD_TYPES = {
    "char": _CHAR,
    "signed char": _SCHAR,
    "unsigned char": _UCHAR,
    "short": _SHORT,
    "unsigned short": _USHORT,
    "int": _INT,
    "unsigned int": _UINT,
    "long": _LONG,
    "unsigned long": _ULONG,
    "long long": _LLONG,
    "unsigned long long": _ULLONG,
    "float": _FLOAT,
    "double": _DOUBLE,
}

# Names that mean the same on every system: a typedef in the file (or in a header of the build machine that -C
# brought in) doesn't change them.
STANDARD_TYPES = {
    "_Bool": _BOOL,
    "bool": _BOOL,
    "int8_t": _SCHAR,
    "int16_t": _SHORT,
    "int32_t": _INT,
    "int64_t": _INT64,
    "uint8_t": _UCHAR,
    "uint16_t": _USHORT,
    "uint32_t": _UINT,
    "uint64_t": _UINT64,
    "intptr_t": _WORD,
    "uintptr_t": _UWORD,
    "ptrdiff_t": _WORD,
    "ssize_t": _WORD,
    "size_t": _UWORD._replace(target=SIZE),
    "intmax_t": _S64,
    "uintmax_t": _U64,
}

# Names of POSIX, of glibc and of D, which a typedef in the file may define differently.
USUAL_TYPES = {
    "int_least8_t": _SCHAR, "int_least16_t": _SHORT, "int_least32_t": _S32, "int_least64_t": _S64,
    "uint_least8_t": _UCHAR, "uint_least16_t": _USHORT, "uint_least32_t": _U32, "uint_least64_t": _U64,
    "wchar_t": _S32, "wint_t": _U32, "char8_t": _UCHAR, "char16_t": _integer(False, 2, 2, "unsigned short"),
    "char32_t": _U32,
    # POSIX
    "pid_t": _S32, "uid_t": _U32, "gid_t": _U32, "id_t": _U32, "mode_t": _U32, "key_t": _S32, "clockid_t": _S32,
    "socklen_t": _U32, "useconds_t": _U32, "sa_family_t": _integer(False, 2, 2, "unsigned short"),
    "in_port_t": _USHORT, "in_addr_t": _U32,
    "off_t": _WORD, "time_t": _WORD, "clock_t": _WORD, "suseconds_t": _WORD, "blksize_t": _WORD, "blkcnt_t": _WORD,
    "ino_t": _UWORD, "nlink_t": _UWORD, "fsblkcnt_t": _UWORD, "fsfilcnt_t": _UWORD,
    "dev_t": _U64, "off64_t": _S64, "loff_t": _S64, "ino64_t": _U64,
    # BSD and Linux
    "u_char": _UCHAR, "u_short": _USHORT, "u_int": _UINT, "u_long": _ULONG,
    "ushort": _USHORT, "uint": _UINT, "ulong": _ULONG, "quad_t": _S64, "u_quad_t": _U64,
    "u_int8_t": _UCHAR, "u_int16_t": _USHORT, "u_int32_t": _UINT, "u_int64_t": _U64,
    "__u8": _UCHAR, "__u16": _USHORT, "__u32": _UINT, "__u64": _U64,
    "__s8": _SCHAR, "__s16": _SHORT, "__s32": _INT, "__s64": _S64,
    # D
    "uchar_t": _UCHAR, "ushort_t": _USHORT, "uint_t": _UINT, "ulong_t": _ULONG, "longlong_t": _LLONG,
    "u_longlong_t": _ULLONG, "hrtime_t": _S64, "boolean_t": _S32,
}  # fmt: skip

# Names for what a probe can't take by value, and can point to.
OPAQUE_TYPES = ("void", "FILE")
_NO_REGISTER = "is no argument that a tracer could read: it doesn't travel in an integer register"
UNSUPPORTED_TYPES = {
    **dict.fromkeys(("long double", "_Float128", "__float128", "__float80", "_Float64x"),
                    f"{_NO_REGISTER}; pass a double"),
    **dict.fromkeys(("_Float16", "__fp16", "__bf16", "_Decimal32", "_Decimal64", "_Decimal128", "_Float32", "_Float64",
                     "_Float32x"), f"{_NO_REGISTER}; pass a float or a double"),
    **dict.fromkeys(("__int128", "unsigned __int128", "__int128_t", "__uint128_t"),
                    "is wider than a register; pass two uint64_t"),
    **dict.fromkeys(("_Complex", "complex"), f"{_NO_REGISTER}; pass the real and the imaginary part as doubles"),
    **dict.fromkeys(("va_list", "__builtin_va_list", "__gnuc_va_list"),
                    "is no value that a tracer could read; pass the arguments themselves"),
    "typeof": "gives a type that only the compiler knows; name the type",
    "__attribute__": "(mode, vector_size) makes a type that only the compiler knows; use one of C's own",
}  # fmt: skip

# Structs whose tag is a keyword of C++ can't be declared in a header that C++ reads too.
_CPP_KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm atomic_cancel atomic_commit atomic_noexcept bitand bitor bool catch char8_t
    char16_t char32_t class co_await co_return co_yield compl concept const_cast consteval constexpr constinit
    decltype delete dynamic_cast explicit export false friend mutable namespace new noexcept not not_eq nullptr
    operator or or_eq private protected public reflexpr reinterpret_cast requires static_assert static_cast
    synchronized template this thread_local throw true try typeid typename using virtual wchar_t xor xor_eq
    """.split()  # noqa: SIM905 - sixty quoted words would be harder to read
)


class TypeProblem(Exception):  # noqa: N818 - becomes a diagnostic of the parser, never an error of its own
    """Why a type can't be a probe's argument; the text is the sentence for the user.

    `instead` is what SystemTap's `dtrace`, which looks at no type, would make of it, and `so` says that in words.
    """

    def __init__(self, message: str, instead: CType | None = None, so: str = "") -> None:
        super().__init__(message)
        self.instead, self.so = instead, so


def is_known(name: str) -> bool:
    """Return whether `name` is a type without any declaration in the file."""
    return name == "string" or name in STANDARD_TYPES or name in USUAL_TYPES or name in OPAQUE_TYPES


class Resolver:
    """Follows typedefs and decides what a type is to a probe."""

    def __init__(self) -> None:
        self.typedefs: dict[str, Shape] = {}

    def define(self, name: str, shape: Shape) -> bool:
        """Record `typedef shape name`; return False where the name already stands for something else.

        A chain of typedefs in the usual order is shortened at once.
        """
        meaning = self._follow(shape, 1)
        return self.typedefs.setdefault(name, meaning) == meaning

    def resolve(self, shape: Shape, spelling: str) -> CType:
        """Return what an argument of this type is. Raises TypeProblem where no probe can take it."""
        base, derived = self._follow(shape, len(self.typedefs) + 1)
        if len(spelling) > MAX_SPELLING:
            raise TypeProblem(f"the type is {len(spelling)} characters long, and DTrace takes {MAX_SPELLING}")
        if base.what == "name" and not (base.scoped and derived):
            integer = CType(spelling, INTEGER, True, 8, 8, False, UNDECLARED)
            raise TypeProblem(_unknown(base, bool(derived)), integer, "taken for an integer of 8 bytes")
        if not derived:
            return _value(base, spelling)
        parameter = _pointer(base, derived)
        return CType(spelling, POINTER, False, 8, 4, parameter in _STRINGS, parameter)

    def _follow(self, shape: Shape, steps: int) -> Shape:
        """Replace a typedef's name by what it stands for, at most `steps` times (typedefs may form a circle)."""
        base, derived = shape
        while steps and base.what == "name":
            steps -= 1
            name = base.name
            if name == "string":
                base, derived = Base("basic", "char", base.volatile), derived + "*"
            elif name in STANDARD_TYPES:
                base = Base("basic", name, base.volatile)
            elif name in self.typedefs:
                meaning = self.typedefs[name]
                derived = (derived + meaning.derived)[:3]
                base = meaning.base._replace(volatile=base.volatile or meaning.base.volatile)
            elif name in USUAL_TYPES or name in OPAQUE_TYPES:
                base = Base("basic", name, base.volatile)
            elif name in UNSUPPORTED_TYPES:
                base = Base("bad", name, base.volatile)
            else:
                break
        return Shape(base, derived[:3])


def basic_type(name: str) -> Basic | None:
    """Return the basic type of this name, or None (also for `void`, which has no value)."""
    return KEYWORD_TYPES.get(name) or STANDARD_TYPES.get(name) or USUAL_TYPES.get(name)


def _unknown(base: Base, pointed_to: bool) -> str:
    if base.scoped:
        return f"nothing says what {base.name} is; a type of another module can only be pointed to"
    from . import cures

    known = (*KEYWORD_TYPES, *STANDARD_TYPES, *USUAL_TYPES)
    return f"unknown type '{base.name}'; {cures.unknown_type(base.name, known, pointed_to)}"


def _value(base: Base, spelling: str) -> CType:
    if base.what == "enum":
        return CType(spelling, INTEGER, True, 4, 4, False, "int")
    if base.what == "bad":
        raise TypeProblem(f"{base.name} {UNSUPPORTED_TYPES[base.name]}")
    if base.what in ("struct", "union"):
        tag = f"{base.what} {base.name}".rstrip()
        message = f"{tag} is passed by value, which no tracer can read; pass a pointer: {spelling} *"
        address = CType(spelling, POINTER, False, 8, 4, False, BY_VALUE)
        raise TypeProblem(message, address, "the probe shows its address")
    basic = basic_type(base.name)
    if basic is None:
        raise TypeProblem(f"an argument can't be {base.name}; pass a pointer: {spelling} *")
    kind, signed, size64, size32, parameter, _ = basic
    return CType(spelling, kind, signed, size64, size32, False, parameter)


def _pointer(base: Base, derived: str) -> str:
    """Return the header's parameter for a pointer: to const where the type is plain, else to anything."""
    # A parameter that is an array or a function is a pointer to its element or to it (C11 6.7.6.3 p7, p8).
    if derived[0] == "(" or derived[:2] in ("*(", "[("):
        return FUNCTION
    if len(derived) > 1:
        return ANY
    qualifiers = "const volatile " if base.volatile else "const "
    if base.what in ("struct", "union"):
        if base.name and base.name not in _CPP_KEYWORDS:
            return f"{qualifiers}{base.what} {base.name} *"
    elif base.what == "basic":
        basic = basic_type(base.name)
        if basic is not None and basic.target:
            return f"{qualifiers}{basic.target} *"
    return _ANY_VOLATILE if base.volatile else ANY
