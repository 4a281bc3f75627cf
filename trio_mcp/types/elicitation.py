"""Elicitation: asking the user, with a form or by a URL."""

# The schema has eight kinds of form field, and no member that tells them apart: four have the type "string".
# `_kind` looks for the members that only one of them has. Without it pydantic would have to guess: a choice is a valid text field
# too, since unknown members are allowed.

from typing import Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from .base import MAX_RECEIVED, Integer, JsonValue, MetaModel, Model, Number, at_most
from .messages import NotificationParams, RequestParams, TaskMetadata


class _PropertySchema(Model):
    title: str | None = None
    description: str | None = None


class StringSchema(_PropertySchema):
    """A text field."""

    type: Literal["string"] = "string"
    min_length: Integer | None = None
    max_length: Integer | None = None
    format: Literal["email", "uri", "date", "date-time"] | None = None
    default: str | None = None


class NumberSchema(_PropertySchema):
    """A number field."""

    type: Literal["number", "integer"] = "number"
    minimum: Number | None = None
    maximum: Number | None = None
    default: Number | None = None


class BooleanSchema(_PropertySchema):
    """A check box."""

    type: Literal["boolean"] = "boolean"
    default: bool | None = None


class EnumOption(Model):
    """A choice and its label."""

    const: str
    title: str


class _SingleSelectSchema(_PropertySchema):
    type: Literal["string"] = "string"
    default: str | None = None


class UntitledSingleSelectEnumSchema(_SingleSelectSchema):
    """One choice of several."""

    enum: list[str]


class TitledSingleSelectEnumSchema(_SingleSelectSchema):
    """One choice of several with labels."""

    one_of: list[EnumOption]


class LegacyTitledEnumSchema(_SingleSelectSchema):
    """One choice of several with labels, in the form of 2025-06-18."""

    enum: list[str]
    enum_names: list[str] | None = None


class UntitledItems(Model):
    """The choices of a multiple choice."""

    type: Literal["string"] = "string"
    enum: list[str]


class TitledItems(Model):
    """The labelled choices of a multiple choice."""

    any_of: list[EnumOption]


class _MultiSelectSchema(_PropertySchema):
    type: Literal["array"] = "array"
    min_items: Integer | None = None
    max_items: Integer | None = None
    default: list[str] | None = None


class UntitledMultiSelectEnumSchema(_MultiSelectSchema):
    """Any number of choices."""

    items: UntitledItems


class TitledMultiSelectEnumSchema(_MultiSelectSchema):
    """Any number of choices with labels."""

    items: TitledItems


def _kind(value: Model | JsonValue) -> str:
    """Return the name of the class for a field."""
    match value:
        case {"type": "boolean"}:
            return "BooleanSchema"
        case {"type": "number" | "integer"}:
            return "NumberSchema"
        case {"type": "array", "items": {"anyOf": _}}:
            return "TitledMultiSelectEnumSchema"
        case {"type": "array"}:
            return "UntitledMultiSelectEnumSchema"
        case {"type": "string", "oneOf": _}:
            return "TitledSingleSelectEnumSchema"
        case {"type": "string", "enumNames": _}:
            return "LegacyTitledEnumSchema"
        case {"type": "string", "enum": _}:
            return "UntitledSingleSelectEnumSchema"
        case {"type": "string"}:
            return "StringSchema"
        case dict():
            return (
                f"type {value.get('type')}"  # no class has this tag, so pydantic rejects the field and names the type
            )
        case _:
            return type(value).__name__


PrimitiveSchemaDefinition: TypeAlias = Annotated[
    Annotated[StringSchema, Tag("StringSchema")]
    | Annotated[NumberSchema, Tag("NumberSchema")]
    | Annotated[BooleanSchema, Tag("BooleanSchema")]
    | Annotated[UntitledSingleSelectEnumSchema, Tag("UntitledSingleSelectEnumSchema")]
    | Annotated[TitledSingleSelectEnumSchema, Tag("TitledSingleSelectEnumSchema")]
    | Annotated[UntitledMultiSelectEnumSchema, Tag("UntitledMultiSelectEnumSchema")]
    | Annotated[TitledMultiSelectEnumSchema, Tag("TitledMultiSelectEnumSchema")]
    | Annotated[LegacyTitledEnumSchema, Tag("LegacyTitledEnumSchema")],
    Discriminator(_kind),
]


class RequestedSchema(Model):
    """The fields of a form: flat, each one primitive."""

    schema_dialect: str | None = Field(default=None, validation_alias="$schema", serialization_alias="$schema")
    type: Literal["object"] = "object"
    properties: dict[str, PrimitiveSchemaDefinition]
    required: list[str] | None = None


class ElicitRequestFormParams(RequestParams):
    """The params of a form to fill in. Never ask for secrets with a form (L-ELI-7s). `task` exists in 2025-11-25 only."""

    mode: Literal["form"] | None = None
    message: str
    requested_schema: RequestedSchema
    task: TaskMetadata | None = None


class ElicitRequestURLParams(RequestParams):
    """The params of a page to open. 2025-11-25 alone has `elicitation_id`, which it requires, and `task`."""

    mode: Literal["url"] = "url"
    message: str
    url: str
    elicitation_id: str | None = None
    task: TaskMetadata | None = None


ElicitRequestParams: TypeAlias = ElicitRequestFormParams | ElicitRequestURLParams

ElicitValue: TypeAlias = str | int | float | bool | list[str] | None
"""The value of one field. It may be a fraction, as in `schema.ts`, and null, which some clients send for an empty field."""


class ElicitResult(MetaModel):
    """The answer of the user. Only an accepted form has `content`."""

    action: Literal["accept", "decline", "cancel"]
    content: Annotated[dict[str, ElicitValue] | None, at_most(MAX_RECEIVED)] = None


class ElicitationCompleteNotificationParams(NotificationParams):
    """The user has finished at the page of a URL elicitation (2025-11-25)."""

    elicitation_id: str


class ElicitRequest(Model):
    """A question to the user, as one of the input requests of a round (2026-07-28)."""

    method: Literal["elicitation/create"] = "elicitation/create"
    params: ElicitRequestParams
