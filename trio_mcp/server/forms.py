"""Forms: convert a Python type to the flat schema that `elicitation/create` allows, and an answer back to a value.

A form is one object whose members are strings, numbers, booleans, single choices or multiple choices of strings
(L-ELI-3s). A pydantic model is used as it is; any other type becomes the only field, `value`, of a form.

    bool                          {"value": {"type": "boolean"}}
    Literal["a", "b"]             {"value": {"type": "string", "enum": ["a", "b"]}}
    class Seat(BaseModel): ...    one member for each field
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar, cast

from pydantic import BaseModel, GetJsonSchemaHandler, PydanticUserError, ValidationError, create_model
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, to_json

from ..protocol.meta import ELICIT, ELICITS
from ..protocol.schema.references import dereference
from ..session import Question
from ..types import ElicitRequestFormParams, ElicitResult, JsonObject, JsonValue, RequestedSchema
from ..types.fail_fast import fail_fast_validator

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

KEYWORDS = {
    "string": {"minLength", "maxLength", "format", "enum", "enumNames", "oneOf"},
    "integer": {"minimum", "maximum"},
    "number": {"minimum", "maximum"},
    "boolean": set[str](),
    "array": {"minItems", "maxItems", "items"},
}
COMMON = {"type", "title", "description", "default"}
FORMATS = {"email", "uri", "date", "date-time"}
MAX_PROBLEMS = 5
"""How many problems the line about a wrong value names."""


@dataclass(frozen=True, slots=True)
class Elicit(Generic[T_co]):
    """A question that a tool declares in advance: its key, unique in the tool, and the type of its answer.

    SEAT = Elicit("seat", Seat)

    @server.tool(elicits=[SEAT])
    async def book(ctx: Context) -> str:
        choice = await ctx.elicit("Which seat?", SEAT)

    A modern client sees the key: it names the question in a round, the first time that it is asked outside of branches. A round
    is an `InputRequiredResult` with all questions that are open.

    Raises:
        ValueError: the key is not an identifier.
        TypeError: the key is not a string.
    """

    key: str
    schema: type[T_co]

    def __post_init__(self) -> None:
        if not isinstance(self.key, str):
            raise TypeError(f"Elicit: first the key, such as 'seat', and then the form, not {self.key!r} first")
        # The key becomes a part of the keys of a round, whose other parts are separated by characters that no identifier has.
        if not self.key.isidentifier():
            raise ValueError(f"Elicit: the key must be an identifier, such as user_name, not {self.key!r}")

    @property
    def requested_schema(self) -> RequestedSchema:
        """The schema that the client receives."""
        return form_of(cast("type[BaseModel]", self.schema)).requested_schema


def add_questions_to_meta(meta: JsonObject, elicits: Sequence[Elicit[object]]) -> JsonObject | None:
    """Return `_meta` with the declared questions by key, or None if it is empty.

    Raises:
        ValueError: two questions have the same key.
    """
    if len({question.key for question in elicits}) < len(elicits):
        raise ValueError(f"elicits: a key comes twice among {', '.join(question.key for question in elicits)}")
    if elicits:
        meta = {**meta, ELICITS: {question.key: question.requested_schema.wire() for question in elicits}}
    return meta or None


class Titled:
    """Labels that a form shows for the choices of a `Literal`, in the same order (SEP-1330).

    size: Annotated[Literal["s", "m"], Titled("Small", "Medium")]
    """

    __slots__ = ("_titles",)

    def __init__(self, *titles: str) -> None:
        self._titles = titles

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        choices = [schema.pop("const")] if "const" in schema else schema.pop("enum", [])
        if len(choices) != len(self._titles) or not all(isinstance(choice, str) for choice in choices):
            raise FormError(f"{self!r} belongs to a Literal of {len(self._titles)} strings, not to {choices or schema}")
        options = [{"const": choice, "title": title} for choice, title in zip(choices, self._titles, strict=True)]
        return {**schema, "oneOf": options}

    def __repr__(self) -> str:
        return f"Titled({', '.join(map(repr, self._titles))})"


class FormError(TypeError):
    """A type cannot be shown as a form; the message names the member that is not allowed."""


class Form(Generic[T]):
    """The schema to send for a type, and how to read the answer. Made by `form_of`, which caches one for each type."""

    __slots__ = ("_single", "_validator", "requested_schema")

    def __init__(self, schema: type[T]) -> None:
        # The specification allows only an object, so that a single value becomes a member.
        single = not is_model(schema)
        model = create_model("Form", value=(schema, ...)) if single else cast("type[BaseModel]", schema)
        self._single = single
        self._validator = fail_fast_validator(model)
        flat = flatten_schema(model.model_json_schema(), getattr(schema, "__name__", str(schema)))
        self.requested_schema = RequestedSchema.model_validate(flat)

    def read(self, content: JsonObject) -> T:
        """Return the value of an answer.

        Raises:
            ValueError: the answer does not match the schema; the message says where and how.
        """
        try:
            # Strict, but as JSON: a date is a string there, which strict validation of Python values would reject.
            answer = self._validator.validate_json(to_json(content), strict=True)
        except ValidationError as error:
            raise ValueError(error_summary(error)) from None
        return cast("T", cast("object", answer.value if self._single else answer))


def is_model(schema: object) -> bool:
    return isinstance(schema, type) and issubclass(schema, BaseModel)


@lru_cache(maxsize=1024)
def form_of(schema: type[T]) -> Form[T]:
    """Return the form of a type.

    Raises:
        FormError: it has a member that is not allowed in a form, or is no type.
    """
    # Cached, because building a validator costs far more than asking; types are few and live as long as the program.
    try:
        return Form(schema)
    except PydanticUserError as error:
        # Only the first line: the others are pydantic's advice about its own configuration.
        raise FormError(f"a form cannot ask for {schema!r}: {error.message.partition(chr(10))[0]}") from None


def form_question(
    message: str, schema: object, declared: AbstractSet[str], asker: str
) -> tuple[Form[object], Question[ElicitResult]]:
    """Return the form of a type or of a declared question, and the question that shows it.

    Args:
        declared: the keys that the tool, prompt or resource has published.
        asker: its name.

    Raises:
        FormError: the schema is no type.
        LookupError: the question was not declared.
    """
    name: str | None = None
    if isinstance(schema, Elicit):
        name, schema = schema.key, schema.schema
        # Not sent undeclared: a client may have read in the listing what it will be asked, and prepared its answers by key.
        if name not in declared:
            raise LookupError(f"the question {name!r} was not declared: add it to the `elicits` of what asks")
    elif isinstance(schema, Mapping | str | BaseModel):
        raise FormError(f"elicit() takes a type, such as str or a pydantic model, not {schema!r}")
    form: Form[object] = form_of(schema)
    meta: JsonObject | None = None if name is None else {ELICIT: {"tool": asker, "key": name}}
    params = ElicitRequestFormParams(mode="form", message=message, requested_schema=form.requested_schema, meta=meta)
    return form, Question("elicit", "elicitation/create", params, ElicitResult, ("elicitation.form",), name)


def error_summary(error: ValidationError) -> str:
    """Return a validation error in one line: `flight: Input should be a valid string; ...`."""
    # Bounded, because names and texts come from the peer, and the line goes into a log and into a model's context.
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{error_path(problem['loc'])}: {problem['msg'][:200]}" for problem in problems[:MAX_PROBLEMS])


def error_path(steps: tuple[int | str, ...]) -> str:
    """Return where a problem is, with dots between the steps; the names are the peer's, so they are cut."""
    return ".".join(str(step)[:64] for step in steps)[:256] or "value"


def flatten_schema(schema: JsonObject, name: str) -> JsonObject:
    """Return the schema that pydantic generates for a model, reduced to the keywords of a form."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        raise FormError(f"{name}: a form needs at least one field")
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
