"""Named tuples whose constructor is compiled when it has been called often: they behave as those of `typing`."""

from __future__ import annotations

import copy
import pickle
import typing
from typing import Any, Generic, Self, TypeVar

import pytest

from trio_mcp.base.named_tuples import FEW, NamedTuple

T = TypeVar("T")


class Ours(NamedTuple):
    """A place."""

    x: int
    y: int = 2

    @property
    def total(self) -> int:
        return self.x + self.y


class Typed(typing.NamedTuple):
    """A place."""

    x: int
    y: int = 2


class Boxed(NamedTuple, Generic[T]):
    content: T


class Named(Ours):
    def __new__(cls, text: str) -> Self:
        return super().__new__(cls, *map(int, text.split()))


def test_it_is_made_by_place_by_name_and_with_defaults() -> None:
    for _ in range(FEW):
        assert [Ours(1, 3), Ours(1, y=3), Ours(y=3, x=1), Ours(1)] == [(1, 3), (1, 3), (1, 3), (1, 2)]
    assert Ours(1).total == 3
    assert Boxed[str]("text").content == "text"


@pytest.mark.parametrize(("values", "named"), [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"z": 1})])
def test_a_wrong_call_is_a_type_error_also_the_first_one(values: tuple[int, ...], named: dict[str, int]) -> None:
    class Fresh(NamedTuple):
        x: int
        y: int = 2

    wrong: Any = Fresh
    for _ in range(2):
        with pytest.raises(TypeError, match="__new__"):
            wrong(*values, **named)


def test_it_has_what_a_named_tuple_of_typing_has() -> None:
    ours, typed = Ours(1), Typed(1)
    assert repr(ours) == repr(typed).replace("Typed", "Ours")
    assert ours._asdict() == typed._asdict()
    assert ours._replace(y=5) == typed._replace(y=5)
    assert Ours._make([1, 2]) == Typed._make([1, 2])
    for name in ("_fields", "_field_defaults", "__match_args__", "__slots__", "__doc__"):
        assert getattr(Ours, name) == getattr(Typed, name)
    assert typing.get_type_hints(Ours) == typing.get_type_hints(Typed)


def test_an_unknown_field_is_not_replaced() -> None:
    wrong: Any = Ours(1)
    with pytest.raises(ValueError, match="z"):
        wrong._replace(z=1)


def test_it_is_matched_copied_and_pickled_and_takes_no_attributes() -> None:
    place: Any = Ours(1)
    match place:
        case Ours(x, y=y):
            assert (x, y) == (1, 2)
        case _:
            pytest.fail("it does not match its class")
    assert copy.deepcopy(place) == pickle.loads(pickle.dumps(place)) == place
    with pytest.raises(AttributeError):
        place.z = 1
    with pytest.raises(AttributeError):
        place.x = 1


def test_a_class_below_it_may_have_another_constructor() -> None:
    assert Named("3 4") == (3, 4)
    assert type(Named("3 4")) is Named
    assert Named("5 6").y == 6
