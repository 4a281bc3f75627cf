"""Forms: from a Python type to the flat schema that `elicitation/create` allows, and from an answer back to a value.

A form is one object whose members are strings, numbers, booleans, single choices or multiple choices of strings
(L-ELI-3s). A pydantic model is taken as it is; any other type becomes the only field, `value`, of a form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar, cast

from pydantic import BaseModel, GetJsonSchemaHandler, PydanticUserError, TypeAdapter, ValidationError, create_model
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, to_json

from ..protocol.schema.references import dereference
from ..types import JsonObject, JsonValue, RequestedSchema

T = TypeVar("T")


KEYWORDS = {
    "string": {"minLength", "maxLength", "format", "enum", "enumNames", "oneOf"},
    "integer": {"minimum", "maximum"},
    "number": {"minimum", "maximum"},
    "boolean": set[str](),
    "array": {"minItems", "maxItems", "items"},
}
COMMON = {"type", "title", "description", "default"}
FORMATS = {"email", "uri", "date", "date-time"}


T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Elicit(Generic[T_co]):
    """A question that a tool declares before it asks it: a key that tells it from its others, and the form of its answer.

    SEAT = Elicit("seat", Seat)

    @server.tool(elicits=[SEAT])
    async def book(ctx: Context) -> str:
        choice = await ctx.elicit("Which seat?", SEAT)

    A modern client sees the key: it is what the question is called in a round, the first time it is asked outside of branches.

    Raises:
        ValueError: the key is no identifier.
        TypeError: the key is no string.
    """

    key: str
    schema: type[T_co]

    def __post_init__(self) -> None:
        if not isinstance(self.key, str):
            raise TypeError(
                f"Elicit: first the key, a string such as 'seat', and then the form, not {self.key!r} first"
            )
        if not self.key.isidentifier():
            raise ValueError(f"{self.key!r} is no key: it has to be an identifier, such as user_name")

    @property
    def requested_schema(self) -> RequestedSchema:
        """What the client is sent."""
        return form(cast("type[BaseModel]", self.schema)).requested_schema


ELICITS = "trio-mcp/elicits"
"""The member of `_meta` in which a tool, prompt or resource says what it may ask."""


def with_questions(meta: JsonObject | None, elicits: Sequence[Elicit[object]]) -> JsonObject | None:
    """An author's `_meta` and the questions that were declared beside it, by key.

    Raises:
        ValueError: two of them have the same key.
    """
    if len({asked.key for asked in elicits}) < len(elicits):
        raise ValueError(f"elicits: a key comes twice among {', '.join(asked.key for asked in elicits)}")
    asks: JsonObject = {ELICITS: {asked.key: asked.requested_schema.wire() for asked in elicits}} if elicits else {}
    return {**(meta or {}), **asks} or None


def declared(schema: object, keys: AbstractSet[str]) -> object:
    """The form to ask for; a question by key must be one of those that were published with what asks.

    Raises:
        FormError: it is no type.
        LookupError: the question was not declared.
    """
    if not isinstance(schema, Elicit):
        if isinstance(schema, Mapping | str | BaseModel):
            raise FormError(f"elicit() takes a type, such as str or a pydantic model, not {schema!r}")
        return schema
    if schema.key not in keys:
        raise LookupError(
            f"the question {schema.key!r} was not declared: add it to the elicits of the tool, prompt or resource"
        )
    return schema.schema


class Titled:
    """Says what to show for each choice of a `Literal`, in its order (SEP-1330).

    size: Annotated[Literal["s", "m"], Titled("Small", "Medium")]
    """

    __slots__ = ("_titles",)

    def __init__(self, *titles: str) -> None:
        self._titles = titles

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        choices = [schema.pop("const")] if "const" in schema else schema.pop("enum", [])
        if len(choices) != len(self._titles) or not all(isinstance(choice, str) for choice in choices):
            raise FormError(
                f"{self!r} goes with a Literal of {len(self._titles)} strings, not with {choices or schema}"
            )
        options = [{"const": choice, "title": title} for choice, title in zip(choices, self._titles, strict=True)]
        return {**schema, "oneOf": options}

    def __repr__(self) -> str:
        return f"Titled({', '.join(map(repr, self._titles))})"


class FormError(TypeError):
    """The type cannot be asked for in a form; the message names the offending member."""


class Form(Generic[T]):
    """What to send for a type, and how to read the answer. Made by `form`, which keeps one for each type."""

    __slots__ = ("_adapter", "_single", "requested_schema")

    def __init__(self, schema: type[T]) -> None:
        single = not is_model(schema)
        model = create_model("Form", value=(schema, ...)) if single else cast("type[BaseModel]", schema)
        self._single = single
        self._adapter: TypeAdapter[BaseModel] = TypeAdapter(model)
        self.requested_schema = RequestedSchema.model_validate(
            flat(self._adapter.json_schema(), getattr(schema, "__name__", str(schema)))
        )

    def read(self, content: JsonObject) -> T:
        """The value that an answer holds.

        Raises:
            ValueError: the answer breaks the schema; the message says where and how.
        """
        try:
            answer = self._adapter.validate_json(to_json(content), strict=True)
        except ValidationError as error:
            raise ValueError(explained(error)) from None
        return cast("T", cast("object", answer.value if self._single else answer))  # type: ignore[attr-defined]


def is_model(schema: object) -> bool:
    return isinstance(schema, type) and issubclass(schema, BaseModel)


@lru_cache(maxsize=1024)
def form(schema: type[T]) -> Form[T]:
    """The form of a type.

    Raises:
        FormError: it has a member that no form may have, or is no type.
    """
    try:
        return Form(schema)
    except PydanticUserError as error:
        raise FormError(f"a form cannot ask for {schema!r}: {error.message.partition(chr(10))[0]}") from None


def explained(error: ValidationError) -> str:
    """A validation error in one line: `flight: Input should be a valid string; ...`."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{located(problem['loc'])}: {problem['msg'][:200]}" for problem in problems[:5])


def located(steps: tuple[int | str, ...]) -> str:
    """Where a problem is; the names are the caller's, so they are cut."""
    return ".".join(str(step)[:64] for step in steps)[:256] or "value"


def flat(schema: JsonObject, name: str) -> JsonObject:
    """The schema pydantic gives for a model, narrowed to what a form may say."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        raise FormError(f"{name}: a form needs at least one field")
    fields = {member: field(f"{name}.{member}", value, schema) for member, value in properties.items()}
    required = schema.get("required")
    return {"type": "object", "properties": cast("JsonValue", fields), **({"required": required} if required else {})}


def field(path: str, schema: JsonValue, root: JsonObject) -> JsonObject:
    """One member of a form."""
    merged = resolved(path, schema, root)
    kind = merged.get("type")
    if not isinstance(kind, str) or kind not in KEYWORDS:
        raise FormError(f"{path}: a form field is a string, number, boolean or choice, not {kind or 'a union'}")
    if kind == "array":
        merged["items"] = items(path, merged.get("items"), root)
    kept = {key: value for key, value in merged.items() if key in COMMON or key in KEYWORDS[kind]}
    if kept.get("format") not in FORMATS:
        kept.pop("format", None)
    if kept.get("default", ...) is None:
        del kept["default"]
    return kept


def resolved(path: str, schema: JsonValue, root: JsonObject) -> JsonObject:
    """Follow `$ref`, take the one real type of an optional, and write a constant as a choice of one."""
    merged = dereference(schema, root) if isinstance(schema, dict) else None
    if merged is None:
        raise FormError(f"{path}: not a schema")
    options = merged.pop("anyOf", None)
    if isinstance(options, list):
        real = [option for option in options if not (isinstance(option, dict) and option.get("type") == "null")]
        if len(real) != 1:
            raise FormError(f"{path}: a form field has one type, not a union of {len(real)}")
        merged = {**resolved(path, real[0], root), **merged}
    if "const" in merged:
        merged["enum"] = [merged.pop("const")]
    choices = merged.get("enum")
    if isinstance(choices, list) and not all(isinstance(choice, str) for choice in choices):
        raise FormError(f"{path}: the choices of a form field are strings")
    return merged


def items(path: str, schema: JsonValue, root: JsonObject) -> JsonObject:
    """What a multiple choice chooses from."""
    chosen = resolved(f"{path}[]", schema, root)
    if chosen.get("type") == "string" and "oneOf" in chosen:
        return {"anyOf": chosen["oneOf"]}
    if chosen.get("type") != "string" or "enum" not in chosen:
        raise FormError(
            f"{path}: a list in a form is a multiple choice: list[Literal[...]] or a list of an Enum of strings"
        )
    return {"type": "string", "enum": chosen["enum"]}
