"""The base of every MCP model, and the JSON aliases."""

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self, TypeAlias, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    model_serializer,
)
from pydantic_core import CoreSchema, PydanticCustomError, SchemaValidator

from .. import types

# Validation that stops at the first wrong item of a container.
#
# Pydantic goes through a whole list or dict and makes an error for each wrong item. A peer could send a million of them, and
# would
# be charged for one. Models keep an error for each of their members: those are as few as the author wrote.

CONTAINERS: Final = frozenset(
    {"list", "tuple", "set", "frozenset", "deque", "dict", "ordered-dict", "counter", "frozendict"}
)
# What is below them is not a schema, or not one that validates.
OPAQUE: Final = frozenset({"default", "expected", "metadata", "serialization", "config"})
# These map names that others chose, those of fields and tags, to schemas.
BY_NAME: Final = frozenset({"fields", "choices"})


def fail_fast(schema: CoreSchema) -> CoreSchema:
    """Return a copy of a core schema in which every container fails at its first wrong item."""
    return cast("CoreSchema", _fail_fast(schema))


def fail_fast_validator(annotation: object) -> SchemaValidator:
    """Return a validator of a type that fails at the first wrong item of every container in it.

    Raises:
        PydanticUserError: pydantic cannot validate the type.
    """
    return validator_of(fail_fast_schema(annotation))


def fail_fast_schema(annotation: object) -> CoreSchema:
    """Return the core schema of such a validator; raises what `fail_fast_validator` raises."""
    adapter = TypeAdapter(cast("type[object]", annotation))
    # A model with `defer_build` has none before it is needed.
    if not isinstance(adapter.core_schema, dict):
        adapter.rebuild(force=True)
    return fail_fast(adapter.core_schema)


def validator_of(schema: CoreSchema) -> SchemaValidator:
    """Return the validator of a core schema, to its last part."""
    # Without `_use_prebuilt=False` the validators of nested models are those that pydantic has built for their classes.
    return SchemaValidator(schema, _use_prebuilt=False)


def _fail_fast(node: object) -> object:
    if isinstance(node, list | tuple):
        return type(node)(map(_fail_fast, node))  # a choice of a union may be a pair of schema and label
    if not isinstance(node, dict):
        return node
    copy = {key: _member(key, value) for key, value in node.items()}
    if copy.get("type") in CONTAINERS:
        copy["fail_fast"] = True
    return copy


def _member(key: str, value: object) -> object:
    if key in OPAQUE:
        return value
    if key in BY_NAME and isinstance(value, dict):
        return {name: _fail_fast(schema) for name, schema in value.items()}
    return _fail_fast(value)


class LateType:
    """Stands for a type of `trio_mcp.types` in an annotation; it is loaded with the first validator that needs it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get_pydantic_core_schema__(self, _source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(getattr(types, self._name))


if TYPE_CHECKING:
    from ..base.values import JsonValue as JsonValue  # noqa: PLC0414  re-exported
else:
    # pydantic must not validate JSON again: the parser has checked what was received, and the encoder checks what is sent.
    # Validating a recursive type costs a Python call for each value.
    JsonValue = Any

JsonObject: TypeAlias = dict[str, JsonValue]


# As numbers, because to look for a byte as a text of length one takes ten times as long in a short text.
_CAPITAL_N: Final = ord("N")
_CAPITAL_I: Final = ord("I")


def wire_name(field: str) -> str:
    """Return the name of a field in camel case, as `pydantic.alias_generators.to_camel` does, in a tenth of the time."""
    first, *rest = field.split("_")
    return first + "".join(map(str.capitalize, rest))


def field_name(member: str) -> str:
    """Return the name of the field for a member in camel case; `to_snake` of pydantic compiles four patterns for it."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in member)


class Model(BaseModel):
    """A frozen value of the MCP schema: snake_case in Python, camelCase on the wire, unknown members kept.

    Types are strict: a JSON string never becomes a number or a boolean.
    """

    model_config = ConfigDict(
        alias_generator=wire_name,
        populate_by_name=True,
        serialize_by_alias=True,
        # Kept, because the schema allows them: extensions and later revisions add members that a proxy must pass on.
        extra="allow",
        # Several tasks and caches share a model.
        frozen=True,
        strict=True,
        # Validators are built on first use: a process uses few of them, and should start quickly.
        defer_build=True,
        # The default writes null for NaN; so `encode` could not notice it.
        ser_json_inf_nan="constants",
    )
    sent_if_set: ClassVar[set[str] | None] = None
    """Fields with a default other than None that are sent only if they were set; None if there are none."""
    # This is how pydantic documents the type of unknown members; its own annotation is wider.
    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            # Reached by the unknown members and by mistakes only.
            try:
                return super().__getattr__(name)
            except AttributeError as error:
                if (field := field_of(type(self), name)) is None:
                    raise
                # Not a note: the caller of a tool gets the text of an error, without its notes.
                text = f"{error}: write .{field}"
            raise AttributeError(text, name=name, obj=self)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return fail_fast(handler(source))

    def wire(self) -> JsonObject:
        """Return the JSON object that is sent, with wire names; members that are None are left out.

        Nulls inside free-form JSON (`arguments`, `structuredContent`, `_meta`, ...) are kept.
        """
        wire = self.__pydantic_serializer__.to_python(
            self,
            mode="json",
            by_alias=True,
            exclude_none=True,
            exclude=self.left_out(),
        )
        return cast("JsonObject", wire)

    def left_out(self) -> set[str] | None:
        """Return the fields of `sent_if_set` that were not set."""
        return self.sent_if_set and self.sent_if_set - self.model_fields_set

    def encode(self) -> bytes:
        """Return the same object as compact JSON in UTF-8.

        Raises:
            ValueError: it holds NaN, an infinite number or a lone surrogate. `strict_json.dumps(self.wire())` says where.
        """
        raw = self.__pydantic_serializer__.to_json(
            self,
            by_alias=True,
            exclude_none=True,
            exclude=self.left_out(),
        )
        # RFC 8259 section 6 has no such numbers. The search, for one byte first, is cheap, but the words may stand in a string:
        # only then is the value encoded once more, by an encoder that raises for the numbers alone.
        if (_CAPITAL_N in raw and b"NaN" in raw) or (_CAPITAL_I in raw and b"Infinity" in raw):
            json.dumps(self.wire(), allow_nan=False)
        return raw

    def deep_copy(self) -> Self:
        """Return a copy that shares nothing that can be changed, in a tenth of the time of `model_copy(deep=True)`."""
        # Which keeps a table of all values for those that occur twice; JSON has no such values.
        copy = self.model_copy()
        for members in cast("tuple[dict[str, object], ...]", (copy.__dict__, copy.__pydantic_extra__ or {})):
            for name, value in members.items():
                if type(value) not in UNCHANGEABLE:
                    members[name] = copied(value)
        return copy


def field_of(model: type[Model], name: str) -> str | None:
    """Return the field that has this name on the wire; None if there is none."""
    return next(
        (field for field, info in model.model_fields.items() if name in (info.alias, info.serialization_alias)), None
    )


UNCHANGEABLE: Final = frozenset((str, int, float, bool, type(None)))


def copied(value: object) -> object:
    """Return a copy of JSON, models in it included, that shares nothing that can be changed."""
    if isinstance(value, dict):
        return {name: each if type(each) in UNCHANGEABLE else copied(each) for name, each in value.items()}
    if isinstance(value, list):
        return [each if type(each) in UNCHANGEABLE else copied(each) for each in value]
    return value.deep_copy() if isinstance(value, Model) else deepcopy(value)


class MetaModel(Model):
    """A model with the free-form member `_meta`."""

    meta: JsonObject | None = Field(default=None, validation_alias="_meta", serialization_alias="_meta")


class NullableModel(MetaModel):
    """A model in which some members that were set to None are sent as null; elsewhere None means that the member is absent.

    `nullable` lists these members: (field, wire name).
    """

    nullable: ClassVar[tuple[tuple[str, str], ...]] = ()

    @model_serializer(mode="wrap")
    def _keep_nulls(self, handler: SerializerFunctionWrapHandler) -> JsonObject:
        wire: JsonObject = handler(self)
        for field, name in self.nullable:
            if name not in wire and field in self.model_fields_set:
                wire[name] = None
        return wire


def _to_int(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


Integer: TypeAlias = Annotated[int, BeforeValidator(_to_int)]
"""An integer of JSON Schema: 10.0 is one (2020-12 section 6.1.1)."""


def at_most(limit: int) -> BeforeValidator:
    """Return a validator that rejects a list or an object of more members before any of them is validated.

    A model takes some ten times longer to validate than the text of it to parse, so that a list of them has a limit where a
    server receives it.
    """

    def check(value: object) -> object:
        if isinstance(value, list | dict):
            check_count(len(value), limit)
        return value

    return BeforeValidator(check)


def check_count(count: int, limit: int) -> None:
    """Raise, as the error of a validator, if there are more than `limit`."""
    if count > limit:
        raise PydanticCustomError(
            "too_many", "has {count} members; the limit is {limit}", {"count": count, "limit": limit}
        )


MAX_RECEIVED: Final = 5_000
"""How many models one member of what a server receives may hold."""

Number: TypeAlias = int | float

Fraction: TypeAlias = Annotated[int | float, Field(ge=0, le=1)]
"""A number between 0 and 1."""
