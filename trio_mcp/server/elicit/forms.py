"""Forms: convert a Python type to the flat schema that `elicitation/create` allows, and an answer back to a value.

A form is one object whose members are strings, numbers, booleans, single choices or multiple choices of strings
(L-ELI-3s). A pydantic model, a dataclass or a TypedDict is used as it is; any other type becomes the only field, `value`, of a
form. A list is a choice of strings, and None is a form without fields, which the user only confirms.

    bool                          {"value": {"type": "boolean"}}
    Literal["a", "b"]             {"value": {"type": "string", "enum": ["a", "b"]}}
    ["a", "b"]                    the same
    class Seat(BaseModel): ...    one member for each field
    None                          {}
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Generic, TypeVar, cast, overload

from pydantic import BaseModel, GetJsonSchemaHandler, PydanticUserError, TypeAdapter, ValidationError, create_model
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, SchemaError, to_json
from typing_extensions import is_typeddict

from ...protocol.schema.references import dereference
from ...types import JsonObject, JsonValue, RequestedSchema
from ...types.base import fail_fast_validator
from ..values.callables import meant_arguments
from ..values.schema_checks import MAX_PROBLEMS, error_summary
from ..values.schemas import ReferenceSafeSchema
from ..values.signature import described, unknown_pattern

# The JSON Schemas that a form may have: flat objects, reduced to the keywords that the specification allows (L-ELI-3s).

KEYWORDS = {
    "string": {"minLength", "maxLength", "format", "enum", "enumNames", "oneOf"},
    "integer": {"minimum", "maximum"},
    "number": {"minimum", "maximum"},
    "boolean": set[str](),
    "array": {"minItems", "maxItems", "items"},
}
COMMON = {"type", "title", "description", "default"}
FORMATS = {"email", "uri", "date", "date-time"}


class FormError(TypeError):
    """A type cannot be shown as a form; the message names the member that is not allowed."""


def flatten_schema(schema: JsonObject, name: str) -> JsonObject:
    """Return the schema that pydantic generates for a model, reduced to the keywords of a form."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        # A type without fields asks for a confirmation, as None does.
        properties = {}
    fields = {member: form_field(f"{name}.{member}", value, schema) for member, value in properties.items()}
    required = schema.get("required")
    return {"type": "object", "properties": cast("JsonValue", fields), **({"required": required} if required else {})}


def form_field(path: str, schema: JsonValue, root: JsonObject) -> JsonObject:
    """Return the schema of one member of a form."""
    merged = resolve_field(path, schema, root)
    kind = merged.get("type")
    if not isinstance(kind, str) or kind not in KEYWORDS:
        raise FormError(f"{path}: a form field is a string, number, boolean or choice, not {kind or 'a union'}")
    if kind == "array":
        merged["items"] = choice_schema(path, merged.get("items"), root)
    kept = {key: value for key, value in merged.items() if key in COMMON or key in KEYWORDS[kind]}
    # Other formats are pydantic's, such as "password": the specification allows four, and a client may reject the rest.
    if kept.get("format") not in FORMATS:
        kept.pop("format", None)
    # `seat: str | None = None`: the specification has no null default, and leaving the field out means the same.
    if kept.get("default", ...) is None:
        del kept["default"]
    return kept


def resolve_field(path: str, schema: JsonValue, root: JsonObject) -> JsonObject:
    """Follow `$ref`, take the one real type of an optional, and write a constant as a choice of one."""
    merged = dereference(schema, root) if isinstance(schema, dict) else None
    if merged is None:
        raise FormError(f"{path}: not a schema")
    options = merged.pop("anyOf", None)
    if isinstance(options, list):
        real = [option for option in options if not (isinstance(option, dict) and option.get("type") == "null")]
        if len(real) != 1:
            raise FormError(f"{path}: a form field has one type, not a union of {len(real)}")
        merged = {**resolve_field(path, real[0], root), **merged}
    if "const" in merged:
        merged["enum"] = [merged.pop("const")]
    choices = merged.get("enum")
    if isinstance(choices, list) and not all(isinstance(choice, str) for choice in choices):
        raise FormError(f"{path}: the choices of a form field are strings")
    return merged


def choice_schema(path: str, schema: JsonValue, root: JsonObject) -> JsonObject:
    """Return the schema of the items of a multiple choice."""
    chosen = resolve_field(f"{path}[]", schema, root)
    if chosen.get("type") == "string" and "oneOf" in chosen:
        return {"anyOf": chosen["oneOf"]}
    if chosen.get("type") != "string" or "enum" not in chosen:
        raise FormError(f"{path}: a list in a form is a multiple choice: list[Literal[...]] or list[an Enum]")
    return {"type": "string", "enum": chosen["enum"]}


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Titled:
    """Labels for the choices of a form (SEP-1330).

    They label the values of a `Literal` or an `Enum` of strings, in the same order. Given with the values, they are a schema:

        size: Annotated[Literal["s", "m"], Titled("Small", "Medium")]
        await ctx.elicit("Which size?", Titled({"s": "Small", "m": "Medium"}))
    """

    __slots__ = ("_titles", "choices")

    @overload
    def __init__(self, *titles: str) -> None: ...
    @overload
    def __init__(self, choices: Mapping[str, str], /) -> None: ...
    def __init__(self, *titles: str | Mapping[str, str]) -> None:
        self.choices: Mapping[str, str] | None = None
        """The label of each value; None if the labels belong to a type."""
        self._titles = titles
        if titles and isinstance(titles[0], Mapping):
            self.choices = dict(titles[0])
            self._titles = tuple(self.choices.values())

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        # A copy, because the definition of an enum is shared by all fields that refer to it.
        schema = dict(handler.resolve_ref_schema(handler(core_schema)))
        choices = [schema.pop("const")] if "const" in schema else schema.pop("enum", [])
        if len(choices) != len(self._titles) or not all(isinstance(choice, str) for choice in choices):
            raise FormError(f"{self!r} belongs to a Literal of {len(self._titles)} strings, not to {choices or schema}")
        options = [{"const": choice, "title": title} for choice, title in zip(choices, self._titles, strict=True)]
        return {**schema, "oneOf": options}

    def __repr__(self) -> str:
        return f"Titled({', '.join(map(repr, self._titles))})"


class Form(ABC, Generic[T_co]):
    """The schema to send for a type, and how to read the answer. Made by `form_of`."""

    __slots__ = ("requested_schema",)

    requested_schema: RequestedSchema

    @abstractmethod
    def read(self, content: JsonObject) -> T_co:
        """Return the value of an answer.

        Raises:
            ValueError: the answer does not match the schema; the message says where and how.
        """


class TypeForm(Form[T]):
    """The form of a type."""

    __slots__ = ("_single", "_validator")

    def __init__(self, schema: type[T]) -> None:
        # The specification allows only an object, so that a single value becomes a member.
        single = not has_fields(schema)
        shown: object = create_model("Form", value=(described(schema), ...)) if single else schema
        self._single = single
        self._validator = fail_fast_validator(shown)
        generated = TypeAdapter(cast("type[object]", shown)).json_schema(schema_generator=ReferenceSafeSchema)
        self.requested_schema = RequestedSchema.model_validate(flatten_schema(generated, type_name(schema)))

    def read(self, content: JsonObject) -> T:
        try:
            # Strict, but as JSON: a date is a string there, which strict validation of Python values would reject.
            answer = self._validator.validate_json(to_json(content), strict=True)
        except ValidationError as error:
            meant = meant_arguments(content, self.requested_schema.wire())
            if meant is content:
                raise ValueError(error_summary(error) + unknown_fields(content, self.requested_schema)) from None
        else:
            return cast("T", cast("object", answer.value if self._single else answer))
        return self.read(meant)


class ChoiceForm(Form[str]):
    """One of some strings. Cheap to make, since the choices may be others in each call."""

    __slots__ = ("_choices",)

    def __init__(self, choices: Sequence[str], titles: Sequence[str] | None = None) -> None:
        if not choices or not all(isinstance(choice, str) for choice in (*choices, *(titles or ()))):
            raise FormError(f"a choice is made of strings, at least one, such as ['low', 'high'], not {choices!r:.80}")
        if len(set(choices)) < len(choices):
            raise FormError(f"a choice comes twice among {choices!r:.80}")
        self._choices = choices
        field: JsonObject = {"type": "string", "enum": list(choices)}
        if titles is not None:
            pairs = zip(choices, titles, strict=True)
            field = {"type": "string", "oneOf": [{"const": choice, "title": title} for choice, title in pairs]}
        self.requested_schema = RequestedSchema.model_validate(
            {"type": "object", "properties": {"value": field}, "required": ["value"]}
        )

    def read(self, content: JsonObject) -> str:
        value = content.get("value")
        if not isinstance(value, str) or value not in self._choices:
            expected = f"value: expected one of {', '.join(self._choices)[:200]}"
            raise ValueError(expected + unknown_fields(content, self.requested_schema))
        return value


class EmptyForm(Form[None]):
    """No fields: the user confirms the message."""

    __slots__ = ()

    def __init__(self) -> None:
        self.requested_schema = RequestedSchema(properties={})

    def read(self, content: JsonObject) -> None:
        """Accept whatever comes: there is nothing to fill in."""


EMPTY = EmptyForm()


def has_fields(schema: object) -> bool:
    """Return whether a type is shown field by field."""
    if not isinstance(schema, type):
        return is_typeddict(schema)
    return issubclass(schema, BaseModel) or is_dataclass(schema) or is_typeddict(schema)


def type_name(schema: object) -> str:
    """Return the name of a type for errors."""
    return getattr(schema, "__name__", str(schema))


def form_of(schema: object) -> Form[object]:
    """Return the form of a type, of a list of choices, of titled choices, or of None.

    Raises:
        FormError: it has a member that is not allowed in a form, or is not a type.
    """
    if isinstance(schema, type):
        return form_of_type(cast("Hashable", schema))
    if schema is None:
        return EMPTY
    if isinstance(schema, list | tuple):
        return ChoiceForm(cast("Sequence[str]", schema))
    if isinstance(schema, Titled):
        if schema.choices is None:
            raise FormError(
                f"{schema!r} lacks the values: write Titled({{'s': 'Small'}}), or annotate a Literal with it"
            )
        return ChoiceForm(list(schema.choices), list(schema.choices.values()))
    if isinstance(schema, Mapping | str | BaseModel) or not isinstance(schema, Hashable):
        raise FormError(
            f"elicit() takes a type, such as str or a pydantic model, or a list of choices, not {schema!r:.80}"
        )
    return form_of_type(schema)


@lru_cache(maxsize=1024)
def form_of_type(schema: Hashable) -> Form[object]:
    """Return the form of a type; see `form_of`."""
    # Cached, because building a validator costs far more than asking; types are few and live as long as the program.
    try:
        return TypeForm(cast("type[object]", schema))
    except PydanticUserError as error:
        # Only the first line: the others are pydantic's advice about its own configuration.
        raise FormError(f"a form cannot ask for {schema!r}: {error.message.partition(chr(10))[0]}") from None
    except SchemaError as error:
        raise FormError(f"a form cannot ask for {schema!r}: it has {unknown_pattern(error)}") from None


def unknown_fields(content: JsonObject, schema: RequestedSchema) -> str:
    """Return the end of an error that names what an answer has and the form has not; empty if there is nothing.

    Such a field is not an error where the answer is valid otherwise: clients may send more than they were asked for.
    """
    unknown = [name[:64] for name in content if name not in schema.properties][:MAX_PROBLEMS]
    return f"; the form has no field {', '.join(map(repr, unknown))}" if unknown else ""
