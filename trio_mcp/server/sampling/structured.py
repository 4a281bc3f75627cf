"""Structured answers: the schema of a type, and reading a value of the type from what a model answers.

A model that can be offered tools gets one, `__schema__`, whose arguments are the answer. Any other gets the schema as text, and
its answer is JSON in a text, alone or in a fence of three backquotes. A type whose JSON is not an object becomes the member
`result` of one, since arguments are an object.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from functools import lru_cache
from inspect import isroutine
from typing import Final, Generic, TypeVar, cast

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError

from ...base.checks import mistake
from ...errors import RemoteProtocolError
from ...protocol.schema.json_schema import Schema
from ...protocol.strict_json import dumps, loads
from ...sampling import SCHEMA_TOOL
from ...session.token_usage import text_of
from ...types import CreateMessageResult, JsonObject, JsonValue, Tool
from ...types.base import fail_fast_validator
from ..values.results import wrapped_schema
from ..values.schema_checks import checked, error_summary
from ..values.schemas import PlainSchema, inlined
from .answers import Structured, tool_uses_of

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

DESCRIPTION: Final = "Give your answer by calling this tool: its arguments are the answer."
INSTRUCTIONS: Final = "Answer with JSON that matches this JSON Schema, and with nothing else:\n{}"
FENCE: Final = "```"
WRAPPED: Final = "result"


class AnswerForm(ABC, Generic[T_co]):
    """What a model has to answer, and how the answer is read.

    Attributes:
        schema: JSON Schema of an object.
        wrapped: the value is the member `result` of the object.
    """

    schema: JsonObject
    wrapped: bool

    @property
    def tool(self) -> Tool:
        """The tool whose arguments are the answer."""
        return Tool(name=SCHEMA_TOOL, description=DESCRIPTION, input_schema=self.schema)

    @property
    def instructions(self) -> str:
        """The instruction for a model that is offered no tools."""
        return INSTRUCTIONS.format(dumps(self.schema).decode())

    @abstractmethod
    def read(self, data: JsonObject) -> T_co:
        """Return the value.

        Raises:
            ValueError: the data does not match; the message says what is wrong.
            DeferredCheck: that takes long to find out.
        """


class TypedForm(AnswerForm[T]):
    """The form of a Python type.

    Raises:
        PydanticUserError: pydantic cannot validate it, or JSON Schema cannot describe it.
    """

    def __init__(self, kind: type[T]) -> None:
        schema = inlined(TypeAdapter(kind).json_schema(by_alias=True, schema_generator=PlainSchema)).schema
        self.wrapped = schema.get("type") != "object"
        self.schema = wrapped_schema(schema) if self.wrapped else schema
        self._validator = fail_fast_validator(kind)

    def read(self, data: JsonObject) -> T:
        try:
            # As JSON: a strict model takes a date as text only there.
            return cast("T", self._validator.validate_json(dumps(unwrapped(data) if self.wrapped else data)))
        except ValidationError as error:
            raise ValueError(error_summary(error, *([WRAPPED] if self.wrapped else []))) from None


class SchemaForm(AnswerForm[JsonValue]):
    """The form of an author's JSON Schema.

    Raises:
        ValueError: it is not a valid schema.
    """

    def __init__(self, schema: JsonObject) -> None:
        self.wrapped = schema.get("type") != "object"
        self.schema = wrapped_schema(schema) if self.wrapped else schema
        self._compiled = Schema.compile(schema, "returns")

    def read(self, data: JsonObject) -> JsonValue:
        value = unwrapped(data) if self.wrapped else data

        def matching(problem: str | None) -> JsonValue:
            if problem is not None:
                raise ValueError(problem)
            return value

        return checked(self._compiled, value, matching)


def unwrapped(data: JsonObject) -> JsonValue:
    if data.keys() != {WRAPPED}:
        raise ValueError(f"expected an object with the one member {WRAPPED!r}")
    return data[WRAPPED]


def answer_form(returns: object) -> AnswerForm[object]:
    """Return the form of a type or of a JSON Schema.

    Raises:
        TypeError: it is neither, or JSON Schema cannot describe the type.
        ValueError: the JSON Schema is not valid.
    """
    if isinstance(returns, dict):
        return SchemaForm(cast("JsonObject", returns))
    # Pydantic would call a function with what the model answers.
    if isinstance(returns, str | list | tuple | BaseModel) or returns is BaseModel or isroutine(returns):
        raise TypeError(mistake("returns", "a type, such as a pydantic model, or a JSON Schema", returns))
    try:
        hash(returns)
    except TypeError:  # such as `Annotated` with a list in it
        return typed_form(returns)
    return known_form(returns)


def typed_form(returns: object) -> AnswerForm[object]:
    try:
        return TypedForm(cast("type[object]", returns))
    except PydanticUserError as error:
        # Only the first line: the others are pydantic's advice about its own configuration.
        raise TypeError(f"returns: {error.message.partition(chr(10))[0]}") from None


@lru_cache(maxsize=1024)
def known_form(returns: Hashable) -> AnswerForm[object]:
    # Cached, because building a validator costs far more than asking; types are few and live as long as the program.
    return typed_form(returns)


def structured_answer(answer: CreateMessageResult) -> Structured:
    """Return the data that a model gave as the arguments of `__schema__`, or else as JSON in its text.

    Raises:
        ValueError: there is none.
    """
    uses = tool_uses_of(answer)
    for use in uses:
        if use.name != SCHEMA_TOOL:
            raise ValueError(f"it called the tool {use.name[:64]!r}, which it was not offered")
    if len(uses) > 1:
        raise ValueError(f"it gave {len(uses)} answers in place of one")
    if uses:
        return Structured(uses[0].input, uses[0])
    return Structured(json_in(text_of(answer)), None)


def json_in(text: str) -> JsonObject:
    """Return the JSON object in a text: the whole of it, what is in the first fence, or from its first brace to its last.

    Raises:
        ValueError: there is none; the message says what is wrong with the text, the fence, or what is between the braces.
    """
    problem = "the answer has no text"
    for candidate in candidates(text):
        try:
            value = loads(candidate.encode())
        except (RemoteProtocolError, UnicodeEncodeError) as error:
            problem = str(error)
            continue
        if isinstance(value, dict):
            return value
        problem = "the answer is not a JSON object"
    raise ValueError(problem)


def candidates(text: str) -> Iterator[str]:
    """Yield the parts of a text that may be its JSON. Three at most, and none twice, since each is read in full."""
    whole = text.strip()
    if not whole:
        return
    yield whole
    content = whole
    _, fence, after = whole.partition(FENCE)
    if fence:
        # The first line of a fence names the language.
        fenced = after.partition(FENCE)[0]
        content = fenced[fenced.find("\n") + 1 :].strip() if "\n" in fenced else fenced.strip()
        yield content
    first, last = whole.find("{"), whole.rfind("}")
    if 0 <= first < last and (braced := whole[first : last + 1]) not in (whole, content):
        yield braced
