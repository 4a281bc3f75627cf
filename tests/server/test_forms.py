"""Forms: what may be asked of a user, and how an answer becomes a value."""

from __future__ import annotations

from contextlib import suppress
from datetime import date
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, Optional

import pytest
from hypothesis import given, strategies as st
from naming import naming
from pydantic import BaseModel, EmailStr, Field, create_model, field_validator

from trio_mcp.server import FormError, Titled
from trio_mcp.server.elicit.forms import form_of
from trio_mcp.types import JsonObject


class Cabin(Enum):
    ECONOMY = "economy"
    FIRST = "first"


Size = Annotated[Literal["s", "m"], Titled("Small", "Medium")]
TITLES = [{"const": "s", "title": "Small"}, {"const": "m", "title": "Medium"}]


class Stars(IntEnum):
    ONE = 1


class Address(BaseModel):
    street: str


class Seat(BaseModel):
    """Everything that a form can hold."""

    flight: str = Field(description="Its number", min_length=2, max_length=6)
    seat: Literal["window", "aisle"] = "aisle"
    cabin: Cabin
    bags: int = Field(default=1, ge=0, le=3)
    price: float | None = None
    insured: bool = False
    meals: list[Literal["vegan", "fish"]] = Field(default_factory=list)
    day: date | None = None


def properties(schema: object) -> JsonObject:
    return form_of(schema).requested_schema.wire()["properties"]


def only(schema: object) -> JsonObject:
    """What a scalar becomes: the only field of a form."""
    fields = properties(schema)
    assert {"value"} == set(fields)
    return {key: value for key, value in fields["value"].items() if key != "title"}


# what is asked


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["only"], {"type": "string", "enum": ["only"]}),
        (Cabin, {"type": "string", "enum": ["economy", "first"]}),
        (list[Literal["a", "b"]], {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}),
        (list[Cabin], {"type": "array", "items": {"type": "string", "enum": ["economy", "first"]}}),
        (Optional[int], {"type": "integer"}),  # noqa: UP045  both spellings
        (str | None, {"type": "string"}),
        (date, {"type": "string", "format": "date"}),
        (Annotated[int, Field(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}),
        (Annotated[str, "The city"], {"type": "string", "description": "The city"}),
        (Size, {"type": "string", "oneOf": TITLES}),
        (list[Size], {"type": "array", "items": {"anyOf": TITLES}}),
        (
            Annotated[Literal["s", "m"], Field(json_schema_extra={"enumNames": ["Small", "Medium"]})],
            {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
        ),
    ],
    ids=str,
)
def test_a_single_type_is_the_only_field_of_a_form(schema: object, expected: JsonObject) -> None:
    asked = only(schema)
    assert expected == {key: value for key, value in asked.items() if key in expected}
    assert asked.keys() - expected.keys() <= {"description"}


def test_a_model_is_asked_field_by_field() -> None:
    fields = properties(Seat)
    assert list(Seat.model_fields) == list(fields)
    assert form_of(Seat).requested_schema.required == ["flight", "cabin"]
    flight = fields["flight"]
    assert (flight["description"], flight["minLength"], flight["maxLength"]) == ("Its number", 2, 6)
    assert fields["seat"]["default"] == "aisle"
    assert (fields["bags"]["minimum"], fields["bags"]["maximum"], fields["bags"]["default"]) == (0, 3, 1)
    assert fields["price"]["type"] == "number"
    assert "default" not in fields["price"]  # None is no default that a form can say
    assert fields["insured"]["default"] is False
    assert fields["meals"]["items"]["enum"] == ["vegan", "fish"]
    assert fields["day"]["format"] == "date"


def test_an_email_is_asked_for_as_one() -> None:
    pytest.importorskip("email_validator")
    assert only(EmailStr) == {"type": "string", "format": "email"}


def test_the_form_of_a_type_is_made_once() -> None:
    assert form_of(Seat) is form_of(Seat)


# what cannot be asked


def holding(**members: Any) -> type[BaseModel]:
    """A model with these required members."""
    return create_model("Trip", **{name: (annotation, ...) for name, annotation in members.items()})


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (holding(address=Address), "Trip.address"),
        (holding(names=list[str]), "Trip.names"),
        (holding(places=list[Address]), "Trip.places"),
        (holding(either=int | str), "Trip.either"),
        (holding(what=Any), "Trip.what"),
        (holding(table=dict[str, int]), "Trip.table"),
        (holding(stars=Stars), "Trip.stars"),
        (list[int], "value"),
        (dict[str, int], "value"),
        (Literal[1, 2], "value"),
        (int | str, "value"),
        (Annotated[Literal["s", "m"], Titled("Small")], "Titled"),
        (Annotated[Literal[1], Titled("One")], "Titled"),
        (Annotated[str, Titled("Any")], "Titled"),
    ],
    ids=str,
)
def test_what_is_not_flat_is_refused_and_the_error_names_the_member(schema: object, path: str) -> None:
    with pytest.raises(FormError, match=path):
        form_of(schema)


# what is answered


@pytest.mark.parametrize(
    ("schema", "content", "expected"),
    [
        (str, "text", "text"),
        (int, 3, 3),
        (float, 1.5, 1.5),
        (float, 3, 3.0),
        (bool, True, True),
        (Literal["a", "b"], "b", "b"),
        (Cabin, "first", Cabin.FIRST),
        (list[Literal["a", "b"]], ["b", "a"], ["b", "a"]),
        (list[Cabin], ["first"], [Cabin.FIRST]),
        (list[Cabin], [], []),
        (Optional[int], None, None),  # noqa: UP045
        (Size, "m", "m"),
        (list[Size], ["m"], ["m"]),
        (date, "2026-07-28", date(2026, 7, 28)),
    ],
    ids=str,
)
def test_an_answer_becomes_the_value_that_was_asked_for(schema: object, content: object, expected: object) -> None:
    assert expected == form_of(schema).read({"value": content})


def test_an_answer_to_a_model_becomes_the_model_with_its_defaults() -> None:
    answer = form_of(Seat).read({"flight": "TP1", "cabin": "first", "meals": ["fish"], "day": "2026-07-28"})
    assert Seat(flight="TP1", cabin=Cabin.FIRST, meals=["fish"], day=date(2026, 7, 28)) == answer


@pytest.mark.parametrize(
    ("schema", "content"),
    [
        (int, {"value": "3"}),
        (int, {"value": 1.5}),
        (int, {"value": True}),
        (int, {"value": None}),
        (int, {}),
        (str, {"value": 3}),
        (bool, {"value": "yes"}),
        (bool, {"value": 1}),
        (Literal["a"], {"value": "b"}),
        (Cabin, {"value": "FIRST"}),
        (list[Cabin], {"value": ["first", "third"]}),
        (list[Cabin], {"value": "first"}),
        (date, {"value": "tomorrow"}),
    ],
    ids=str,
)
def test_an_answer_that_breaks_the_schema_is_refused_by_name(schema: object, content: JsonObject) -> None:
    with pytest.raises(ValueError, match="value"):
        form_of(schema).read(content)


@pytest.mark.parametrize("schema", [Seat, str, ["low", "high"]], ids=["model", "type", "choices"])
def test_a_field_that_the_form_lacks_is_named_where_the_answer_is_invalid(schema: object) -> None:
    with pytest.raises(ValueError, match=naming("no field 'nope'")):
        form_of(schema).read({"nope": 1})


def test_unknown_fields_in_an_error_are_few_and_short() -> None:
    with pytest.raises(ValueError, match=naming("no field")) as refused:
        form_of(str).read({f"{number}{'x' * 1_000}": 1 for number in range(1_000)})
    assert len(str(refused.value)) < 2_000


def test_every_wrong_member_is_named() -> None:
    with pytest.raises(ValueError) as refused:
        form_of(Seat).read({"flight": "T", "cabin": "third", "bags": 9})
    for member in ("flight: ", "cabin: ", "bags: "):
        assert member in str(refused.value)


def test_a_form_with_many_wrong_choices_is_answered_with_one_problem() -> None:
    class Meal(BaseModel):
        dishes: list[Literal["soup", "fish"]]

    with pytest.raises(ValueError, match="dishes") as raised:
        form_of(Meal).read({"dishes": [1] * 1_000})
    assert ";" not in str(raised.value)


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def must_be_even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("must be even")
        return number


def test_a_validator_of_the_authors_has_its_say() -> None:
    assert Even(number=2) == form_of(Even).read({"number": 2})
    with pytest.raises(ValueError, match="must be even"):
        form_of(Even).read({"number": 3})


ANSWERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(["value", "flight", "cabin", "bags", "meals", "x"]), ANSWERS))
def test_no_answer_of_a_peer_raises_anything_but_value_error(content: JsonObject) -> None:
    for schema in (int, Cabin, list[Cabin], Seat):
        with suppress(ValueError):
            form_of(schema).read(content)


@pytest.mark.parametrize(("schema", "content"), [(int, {"value": 3.0}), (int | None, {"value": -0.0})])
def test_an_integer_may_be_written_as_a_fraction(schema: object, content: JsonObject) -> None:
    found = form_of(schema).read(content)
    assert (found, isinstance(found, int)) == (content["value"], True)
