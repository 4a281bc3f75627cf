"""Named tuples that are cheap to define: those of `typing` generate and compile their constructor when the class is created.

That takes a million instructions for each class, and a server defines seventy on its start, most of which it makes few tuples of.
Here the constructor is compiled when it has been called a few times, and from then on it is the one of `collections.namedtuple`.
"""

from __future__ import annotations

from collections import Counter, namedtuple
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Self, cast

if TYPE_CHECKING:
    from typing import NamedTuple

__all__ = ["NamedTuple"]

FEW: Final = 10
"""Calls of a constructor, the last of which compiles it; a wrong call does too, and raises what `namedtuple` raises."""

_make_class: Any = namedtuple  # noqa: PYI024  the fields are known at run time only
_calls = Counter[type]()
# What it reads a field with, which is not public.
_Field: Any = type(vars(_make_class("Named", "field"))["field"])


class _Named(tuple[Any, ...]):
    """What named tuples have besides their fields, as `typing.NamedTuple` has it."""

    __slots__ = ()
    # Not annotated: who reads the annotations of a class takes those of its bases for fields.
    _fields = cast("tuple[str, ...]", ())
    _field_defaults = cast("dict[str, object]", {})

    def __new__(cls, *values: object, **named: object) -> Self:
        """Make a tuple; compile the constructor of the class that defines the fields if it was called often."""
        owner: Any = next(each for each in cls.__mro__ if "_fields" in vars(each))
        _calls[owner] += 1
        left, given = owner._fields[len(values) :], {**owner._field_defaults, **named}
        is_right = len(values) + len(left) == len(owner._fields) and named.keys() <= {*left} <= given.keys()
        if is_right and _calls[owner] < FEW:
            return tuple.__new__(cls, (*values, *map(given.__getitem__, left)))
        made = _make_class(owner.__name__, owner._fields, defaults=owner._field_defaults.values())
        owner.__new__ = made.__new__
        new: Self = made.__new__(cls, *values, **named)
        return new

    @classmethod
    def _make(cls, values: Iterable[object]) -> Self:
        return cls(*values)

    def _replace(self, /, **changes: object) -> Self:
        made = tuple.__new__(type(self), map(changes.pop, self._fields, self))
        if changes:
            raise ValueError(f"{type(self).__name__} has no fields {', '.join(changes)}")
        return made

    def _asdict(self) -> dict[str, object]:
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

    def __getnewargs__(self) -> tuple[object, ...]:
        return tuple(self)


class _Definition(type):
    """Makes a class that names `NamedTuple` as its first base one of tuples, with the fields that are annotated in it."""

    def __new__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> type:
        if not bases:
            return super().__new__(cls, name, bases, members)
        # They are there also from Python 3.14 on, in a module with `from __future__ import annotations`.
        fields = tuple(members.get("__annotations__", ()))
        defaults = {field: members[field] for field in fields if field in members}
        members.update({field: _Field(place, "") for place, field in enumerate(fields)})
        members |= {"__slots__": (), "_fields": fields, "__match_args__": fields, "_field_defaults": defaults}
        return type.__new__(type, name, (_Named, *bases[1:]), members)


if not TYPE_CHECKING:

    class NamedTuple(metaclass=_Definition):
        """To type checkers, this is `typing.NamedTuple`."""
