"""The parts of an OpenAPI document as typed values, the error of one that is wrong, and unique names.

Members that play no role here are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from ..protocol.schema.references import Resolver, lookup
from ..server.values.schema_checks import error_summary
from ..types import JsonObject, JsonValue

# What is wrong with an OpenAPI document, as a whole or with one of its operations.


class OpenApiError(ValueError):
    """A document cannot be used: the message says what is wrong with it, and where."""


class UnsupportedOperation(Exception):
    """An operation is left out; the message is the reason that the report gives."""


Location: TypeAlias = Literal["path", "query", "header", "cookie"]


MAX_REFERENCES: Final = 100
"""References that lead to each other, one after the other; each of them may be where a thousand others begin."""


class Part(BaseModel):
    """A part of a document."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True, defer_build=True)


P = TypeVar("P", bound=Part)


class EncodingPart(Part):
    """How one property of a form is written."""

    content_type: str | None = Field(default=None, alias="contentType")
    style: str | None = None
    explode: bool | None = None
    allow_reserved: bool = Field(default=False, alias="allowReserved")


class MediaTypePart(Part):
    """One form of a body."""

    schema_: JsonObject | bool | None = Field(default=None, alias="schema")
    encoding: dict[str, EncodingPart] = Field(default_factory=dict)


class ParameterPart(Part):
    """A parameter of an operation."""

    name: str
    location: Location = Field(alias="in")
    required: bool = False
    description: str | None = None
    style: str | None = None
    explode: bool | None = None
    allow_reserved: bool = Field(default=False, alias="allowReserved")
    schema_: JsonObject | bool | None = Field(default=None, alias="schema")
    content: dict[str, MediaTypePart] = Field(default_factory=dict)


class RequestBodyPart(Part):
    """The body of a request."""

    description: str | None = None
    required: bool = False
    content: dict[str, JsonObject]


class LinkPart(Part):
    """A call that may follow a response."""

    operation_id: str | None = Field(default=None, alias="operationId")
    operation_ref: str | None = Field(default=None, alias="operationRef")
    parameters: dict[str, JsonValue] = Field(default_factory=dict)


class ResponsePart(Part):
    """A response."""

    content: dict[str, JsonObject] = Field(default_factory=dict)
    links: dict[str, JsonObject] = Field(default_factory=dict)


class OperationPart(Part):
    """An operation. Parts that may be references are still as they are written."""

    operation_id: str | None = Field(default=None, alias="operationId")
    summary: str | None = None
    description: str | None = None
    tags: list[str] = Field(default_factory=list)
    deprecated: bool = False
    parameters: list[JsonObject] = Field(default_factory=list)
    request_body: JsonObject | None = Field(default=None, alias="requestBody")
    responses: dict[str, JsonObject] = Field(default_factory=dict)
    servers: list[JsonObject] = Field(default_factory=list)


class References:
    """Finds the targets of references in a document; nothing is fetched.

    Args:
        document: as it was loaded.
    """

    def __init__(self, document: JsonObject) -> None:
        registry: Registry[Any] = Registry().with_resource("", DRAFT202012.create_resource(document))
        self._resolver: Resolver = registry.resolver()

    def target(self, reference: str) -> JsonValue:
        """Return what a reference leads to.

        Raises:
            UnsupportedOperation: it leads out of the document, or to nothing.
        """
        if not reference.startswith("#/"):
            raise UnsupportedOperation(f"its $ref {reference!r:.200} leads out of the document, and nothing is fetched")
        found = lookup(reference, self._resolver)
        if found is None:
            raise UnsupportedOperation(f"its $ref {reference!r:.200} leads to nothing")
        return found.contents

    def resolved(self, part: JsonObject) -> JsonObject:
        """Return a part without `$ref`: the members of its target, and over them its own.

        Raises:
            UnsupportedOperation: a reference leads out of the document, to no object, or back to itself; or more than
                `MAX_REFERENCES` follow each other.
        """
        merged, followed = dict(part), set[str]()
        while isinstance(reference := merged.pop("$ref", None), str):
            target = self.target(reference)
            if not isinstance(target, dict) or reference in followed:
                raise UnsupportedOperation(f"its $ref {reference!r:.200} leads to no object, or back to itself")
            followed.add(reference)
            if len(followed) > MAX_REFERENCES:
                raise UnsupportedOperation(
                    f"more than {MAX_REFERENCES} $ref lead to each other, up to {reference!r:.200}"
                )
            merged = {**target, **merged}
        return merged

    def read(self, kind: type[P], part: JsonObject, where: str) -> P:
        """Return a part, with any reference resolved, as a typed value.

        Raises:
            UnsupportedOperation: it is wrong; `where` names it in the reason.
        """
        return read(kind, self.resolved(part), where)


def read(kind: type[P], part: Mapping[str, JsonValue], where: str) -> P:
    """Return a part as a typed value. Raises `UnsupportedOperation`, naming it by `where`, if it is wrong."""
    try:
        return kind.model_validate(part)
    except ValidationError as error:
        raise UnsupportedOperation(f"{where}: {error_summary(error)}") from None


# Names of which no two are equal: of definitions, arguments and tools.


class FreeNames:
    """The names that are taken, and the next free one for each.

    Args:
        taken: those that are taken at first.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._numbers: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def take(self, name: str) -> str:
        """Return a name, or with a number the first one that is free, and take it."""
        # It goes on after the last number: thousands of parameters may want one name.
        number = self._numbers.get(name, 1)
        free = name if number == 1 else f"{name}_{number}"
        while free in self._taken:
            number += 1
            free = f"{name}_{number}"
        self._numbers[name] = number
        self._taken.add(free)
        return free
