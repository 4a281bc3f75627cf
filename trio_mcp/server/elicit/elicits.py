"""`Elicit`: a question that a tool, prompt or resource declares in advance, and what its `_meta` and a client see of it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set as AbstractSet
from functools import lru_cache
from typing import Generic, Never, TypeAlias, cast, overload

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError
from typing_extensions import TypeVar

from ...protocol.revisions import ELICIT, ELICITS
from ...types import JsonObject, JsonValue, RequestedSchema
from .forms import FormError, Titled, form_of, type_name

C = TypeVar("C")
T = TypeVar("T")
C_contra = TypeVar("C_contra", default=None, contravariant=True)
T_co = TypeVar("T_co", default=object, covariant=True)


class Elicit(Generic[C_contra, T_co]):
    """A question that a tool declares in advance: its key, unique in the tool, and the type of its answer.

        SEAT = Elicit("seat", Seat)

        @server.tool(elicits=[SEAT])
        async def book(ctx: Context) -> str:
            choice = await ctx.elicit("Which seat?", SEAT)

    Clients read the declared questions in the `_meta` of the tool, and the key in the `_meta` of the question. A modern client
    also sees the key in the `InputRequiredResult` with the question, the first time that it is asked outside of branches.

    A question may have a context, such as the board of a game, which a client can show next to the form. It travels in the
    `_meta` of the question and nowhere else:

        PICK = Elicit("pick", Move, context=Board)
        ...
        choice = await ctx.elicit("Your move?", PICK, context=board)

    Args:
        key: an identifier.
        schema: everything that `ctx.elicit` takes.
        context: the type of the context; the question is then always asked with one.

    Raises:
        ValueError: the key is not an identifier.
        TypeError: the key is not a string, or the context is not a type.
    """

    __slots__ = ("context", "key", "schema")

    @overload
    def __init__(self: Elicit[None, T], key: str, schema: type[T]) -> None: ...
    @overload
    def __init__(self: Elicit[C, T], key: str, schema: type[T], *, context: type[C]) -> None: ...
    @overload
    def __init__(self: Elicit[None, str], key: str, schema: list[str] | Titled) -> None: ...
    @overload
    def __init__(self: Elicit[C, str], key: str, schema: list[str] | Titled, *, context: type[C]) -> None: ...
    @overload
    def __init__(self: Elicit[None, None], key: str, schema: None) -> None: ...
    @overload
    def __init__(self: Elicit[C, None], key: str, schema: None, *, context: type[C]) -> None: ...
    @overload
    def __init__(self: Elicit[None, JsonValue], key: str, schema: object) -> None: ...
    @overload
    def __init__(self: Elicit[C, JsonValue], key: str, schema: object, *, context: type[C]) -> None: ...
    def __init__(self, key: str, schema: object, *, context: type[object] | None = None) -> None:
        if not isinstance(key, str):
            raise TypeError(f"Elicit: first the key, such as 'seat', and then the form, not {key!r} first")
        # The key becomes a part of the keys of a round, whose other parts are separated by characters that no identifier has.
        if not key.isidentifier():
            raise ValueError(f"Elicit: the key must be an identifier, such as user_name, not {key!r}")
        if context is not None and not isinstance(context, type):
            raise TypeError(f"Elicit: context= takes a type, such as a pydantic model, not {context!r:.80}")
        self.key = key
        self.schema = schema
        self.context = context

    @property
    def requested_schema(self) -> RequestedSchema:
        """The schema that the client receives.

        Raises:
            FormError: it has a member that is not allowed in a form; the message begins with the key.
        """
        try:
            return form_of(self.schema).requested_schema
        except FormError as error:
            raise FormError(f"the question {self.key!r}: {error}") from None

    def __repr__(self) -> str:
        return f"Elicit({self.key!r}, {self.schema!r:.80})"


AnyElicit: TypeAlias = Elicit[Never, object]
"""A declared question of any kind."""


def add_questions_to_meta(meta: JsonObject, elicits: Sequence[AnyElicit]) -> JsonObject | None:
    """Return `_meta` with the declared questions by key, or None if it is empty.

    Raises:
        ValueError: two questions have the same key.
        FormError: see `Elicit.requested_schema`.
    """
    if len({question.key for question in elicits}) < len(elicits):
        raise ValueError(f"elicits: a key comes twice among {', '.join(question.key for question in elicits)}")
    if elicits:
        meta = {**meta, ELICITS: {question.key: question.requested_schema.wire() for question in elicits}}
    return meta or None


def question_meta(schema: AnyElicit, declared: AbstractSet[str], target: str, context: object) -> JsonObject:
    """Return the `_meta` of a declared question.

    Args:
        declared: the keys that the tool, prompt or resource has published.
        target: its name.
        context: the context of a declared question that has one; else None.

    Raises:
        LookupError: the question was not declared.
        TypeError: the context is missing, or of another type, or the question has none.
    """
    # Not sent undeclared: a client may have read in the listing what it will be asked, and prepared its answers by key.
    if schema.key not in declared:
        raise LookupError(f"the question {schema.key!r} was not declared: add it to the `elicits` of what asks")
    named: JsonObject = {"tool": target, "key": schema.key}
    if schema.context is not None:
        named["context"] = context_json(schema.key, schema.context, context)
    elif context is not None:
        raise TypeError(f"the question {schema.key!r} has no context: declare it with Elicit(..., context=Board)")
    return {ELICIT: named}


@lru_cache(maxsize=1024)
def context_adapter(kind: Hashable) -> TypeAdapter[object]:
    return TypeAdapter(cast("type[object]", kind))


def context_json(key: str, kind: type[object], context: object) -> JsonValue:
    """Return the context of a question as JSON.

    Raises:
        TypeError: it is not of the type that the question was declared with.
    """
    adapter = context_adapter(cast("Hashable", kind))
    try:
        adapter.validate_python(context, strict=True)
        return cast("JsonValue", adapter.dump_python(context, mode="json", warnings="error", by_alias=True))
    except (ValidationError, PydanticSerializationError):
        raise TypeError(f"the question {key!r} takes context=<{type_name(kind)}>, not {context!r:.80}") from None
