"""`NamedTuple` for the path of every object: what typing's does, for a tenth of what it costs to import.

typing itself takes milliseconds to import, and its named tuples compile code when their classes are made; a compile
step meets dozens of them. These need neither; for type checkers they are typing's. Fields are the
class's annotations in their order, defaults its attributes. There are `_fields`, `_replace`, positional and keyword
arguments, equality and hashing as tuples have them, and a repr; there is no `_asdict`. `_make` takes the values of all
fields in one tuple, at a third of what a constructor costs; that they are as many as the fields nobody checks.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple
else:
    from _collections import _tuplegetter  # what typing's fields are made with, too

    _OFTEN = 200  # tuples of a class, from where compiling a constructor for it pays
    _made: dict[type, int] = {}  # how many there were of each; not in the class, where a change costs all caches of it

    class _Meta(type):
        """Makes the fields of a named tuple from its annotations; what inherits from one gets no more fields."""

        def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _Meta:
            if globals().get("NamedTuple") in bases:
                fields = tuple(namespace.get("__annotations__", ()))
                namespace["_fields"] = fields
                namespace["_positions"] = {field: position for position, field in enumerate(fields)}
                namespace["_defaults"] = {field: namespace[field] for field in fields if field in namespace}
                for position, field in enumerate(fields):
                    namespace[field] = _tuplegetter(position, "")
                namespace["__slots__"] = ()
            return super().__new__(cls, name, bases, namespace)

    def _constructor(cls: type) -> Any:
        """Return a `__new__` made for a class, as typing's named tuples have it: it takes half the time of ours."""
        fields = ", ".join(cls._fields)
        made = eval(f"lambda _cls, {fields}: _new(_cls, ({fields},))", {"_new": tuple.__new__})  # noqa: S307
        made.__defaults__ = tuple(cls._defaults.values())
        return made

    class NamedTuple(tuple, metaclass=_Meta):
        """The base of a class of named tuples."""

        __slots__ = ()
        _fields = ()
        _defaults = {}  # noqa: RUF012 - each class has its own
        _make = classmethod(tuple.__new__)

        def __new__(cls, *values: Any, **named: Any) -> NamedTuple:
            """Take the fields' values in order, by name, or from their defaults. Raises TypeError."""
            _made[cls] = made = _made.get(cls, 0) + 1
            if made == _OFTEN:
                cls.__new__ = staticmethod(_constructor(cls))
            fields = cls._fields
            if len(values) == len(fields) and not named:
                return tuple.__new__(cls, values)
            defaults = cls._defaults
            try:
                rest = [named.pop(field) if field in named else defaults[field] for field in fields[len(values) :]]
            except KeyError as missing:
                raise TypeError(f"{cls.__name__} needs a value for {missing.args[0]}") from None
            if named or len(values) > len(fields):
                raise TypeError(f"{cls.__name__} has the fields {', '.join(fields)}, and no others")
            return tuple.__new__(cls, (*values, *rest))

        def _replace(self, **named: Any) -> NamedTuple:
            """Return a copy in which some fields have other values. Raises TypeError for what is no field."""
            values, positions = [*self], self._positions
            for field, value in named.items():
                if field not in positions:
                    raise TypeError(f"{type(self).__name__} has no field {field}")
                values[positions[field]] = value
            return tuple.__new__(type(self), values)

        def __repr__(self) -> str:
            pairs = ", ".join(f"{field}={value!r}" for field, value in zip(self._fields, self))
            return f"{type(self).__name__}({pairs})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)


__all__ = ["NamedTuple"]
