"""The base of every MCP model, and the JSON aliases."""

import json
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from ..json_value import JsonValue as JsonValue  # noqa: PLC0414  re-exported
else:
    # pydantic must not validate JSON again: the parser has checked what was received, and the encoder checks what is sent.
    # Validating a recursive type costs a Python call for each value.
    JsonValue = Any

JsonObject: TypeAlias = dict[str, JsonValue]


class Model(BaseModel):
    """A frozen value of the MCP schema: snake_case here, camelCase on the wire, unknown members kept.

    Types are strict: a JSON string never becomes a number or a boolean. Schemas are built on first use (`defer_build`),
    so that importing the types costs a process almost nothing.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        serialize_by_alias=True,
        extra="allow",
        frozen=True,
        strict=True,
        defer_build=True,
        ser_json_inf_nan="constants",  # so that encode() can see them and refuse
    )
    # pydantic's documented way to say of what type unknown members are; its own annotation is wider.
    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    def wire(self) -> JsonObject:
        """Return the JSON object that is sent, with the protocol's member names; members that are None are left out.

        Nulls inside free-form JSON (`arguments`, `structuredContent`, `_meta`, ...) are kept.
        """
        wire = self.__pydantic_serializer__.to_python(self, mode="json", by_alias=True, exclude_none=True)
        return cast("JsonObject", wire)

    def encode(self) -> bytes:
        """Return the same object as compact UTF-8 JSON.

        Raises:
            ValueError: it holds NaN, an infinity or a lone surrogate. `strict_json.dumps(self.wire())` says where.
        """
        raw = self.__pydantic_serializer__.to_json(self, by_alias=True, exclude_none=True)
        if b"NaN" in raw or b"Infinity" in raw:  # perhaps only in a string; RFC 8259 section 6 has no such numbers
            json.dumps(self.wire(), allow_nan=False)
        return raw


class MetaModel(Model):
    """A model with the free-form `_meta` member."""

    meta: JsonObject | None = Field(default=None, validation_alias="_meta", serialization_alias="_meta")


class NullableModel(MetaModel):
    """A model in which a member that was set to None means JSON null, not absence.

    `nullable` names such members: (field, wire name).
    """

    nullable: ClassVar[tuple[tuple[str, str], ...]] = ()

    @model_serializer(mode="wrap")
    def _keep_nulls(self, handler: SerializerFunctionWrapHandler) -> JsonObject:
        wire: JsonObject = handler(self)
        for field, name in self.nullable:
            if name not in wire and field in self.model_fields_set:
                wire[name] = None
        return wire


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


Integer: TypeAlias = Annotated[int, BeforeValidator(_whole)]
"""An integer as JSON Schema sees it: 10.0 is one (2020-12 section 6.1.1)."""

Number: TypeAlias = int | float

Fraction: TypeAlias = Annotated[int | float, Field(ge=0, le=1)]
"""A number between 0 and 1."""
