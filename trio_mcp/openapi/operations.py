"""The operations of a document, and what each becomes: names, arguments, a body, responses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast
from urllib.parse import quote

from ..base.named_tuples import NamedTuple
from ..server.values.results import wrapped_schema
from ..types import JsonObject, JsonValue
from .bodies import Body, chosen_media_type, make_body
from .pages import PageLink, page_links
from .parameters import FORBIDDEN_HEADERS, IGNORED_HEADERS, Parameter, is_json, make_parameter
from .parts import (
    FreeNames,
    MediaTypePart,
    OpenApiError,
    OperationPart,
    ParameterPart,
    References,
    RequestBodyPart,
    ResponsePart,
    UnsupportedOperation,
    read,
)
from .schemas import SchemaReader

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
LEFT_OUT_METHODS: Final = frozenset({"trace", "options"})
"""They say something about the server and the way to it, and nothing about what it has."""

VARIABLE: Final = re.compile(r"\{([^{}]*)\}")
ARGUMENT: Final = re.compile(r"[^A-Za-z0-9_.-]+")
MAX_ARGUMENT: Final = 64
"""Characters of the name of an argument: the APIs of models reject longer ones, and other characters."""
BODY: Final = "body"
ARGUMENTS: Final = "the schema of its arguments"
OUTPUT: Final = "its output schema"
LITERAL: Final = "/%:@!$&'()*+,;=~"
"""What stays as it is in the fixed text of a path."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of an OpenAPI document.

    Attributes:
        id: its `operationId`, if it has one.
        method: in capitals, such as "GET".
        path: as in the document, such as "/pets/{petId}".
    """

    id: str | None
    method: str
    path: str
    tags: tuple[str, ...] = ()
    summary: str | None = None
    description: str | None = None
    deprecated: bool = False

    @property
    def key(self) -> str:
        """The method and the path, such as "GET /pets/{petId}"."""
        return f"{self.method} {self.path}"

    def __str__(self) -> str:
        return self.key if self.id is None else f"{self.key} ({self.id})"


class Output(NamedTuple):
    """What an operation returns.

    Attributes:
        schema: JSON Schema of the structured result; None if the document declares none, or not for every success.
        wrapped: the value is the member `result` of the structure, because it may be something else than an object.
        accept: the media types, as a header.
    """

    schema: JsonObject | None
    wrapped: bool
    accept: str


@dataclass(frozen=True, slots=True)
class OperationPlan:
    """How an operation is called.

    Attributes:
        segments: the path, as fixed text and parameters by turns.
        input_schema: JSON Schema of the arguments.
        body_argument: the name of the argument that is the body.
        notes: what differs from the document.
    """

    operation: Operation
    segments: tuple[str | Parameter, ...]
    parameters: tuple[Parameter, ...]
    body: Body | None
    body_argument: str
    input_schema: JsonObject
    output: Output
    page_links: tuple[PageLink, ...]
    notes: tuple[str, ...]

    @property
    def required(self) -> tuple[Parameter, ...]:
        """The parameters that a call needs, but for those of the path."""
        return tuple(each for each in self.parameters if each.required and each.location != "path")


class RawOperation(NamedTuple):
    """An operation as the document has it, with the parameters of its path; or why it cannot be read."""

    operation: Operation
    part: OperationPart | None
    shared: Sequence[JsonValue] = ()
    problem: str | None = None


def raw_operations(document: JsonObject, references: References) -> Iterator[RawOperation]:
    """Yield the operations of a document.

    Raises:
        OpenApiError: it has no paths.
    """
    paths = document.get("paths", {})
    if not isinstance(paths, dict):
        raise OpenApiError("paths: it is not an object")
    for path, item in paths.items():
        if path.startswith("x-"):
            continue
        found: JsonObject = {}
        problem = None
        try:
            found = references.resolved(item) if isinstance(item, dict) else found
        except UnsupportedOperation as error:
            # Its methods are unknown; the report has one operation for it.
            found["get"] = {}
            problem = str(error)
        for method in METHODS:
            if method in found:
                yield raw_operation(path, method, found, problem)


def raw_operation(path: str, method: str, item: JsonObject, problem: str | None) -> RawOperation:
    """Return one operation of a path."""
    value = item[method]
    try:
        part = read(OperationPart, value if isinstance(value, dict) else {}, method)
    except UnsupportedOperation as error:
        name = value.get("operationId") if isinstance(value, dict) else None
        bare = Operation(name if isinstance(name, str) else None, method.upper(), path)
        return RawOperation(bare, None, problem=problem or str(error))
    operation = Operation(
        part.operation_id, method.upper(), path, tuple(part.tags), part.summary, part.description, part.deprecated
    )
    if problem is None and (part.servers or item.get("servers")):
        problem = "it names other servers, and calls go only to the one of the client"
    if problem is None and method in LEFT_OUT_METHODS:
        problem = f"the method {method.upper()} is not supported"
    shared = item.get("parameters", [])
    return RawOperation(operation, part, shared if isinstance(shared, list) else [], problem)


class OperationReader:
    """Reads the operations of one document."""

    def __init__(self, document: JsonObject, references: References, max_depth: int) -> None:
        old = str(document["openapi"]).startswith("3.0")
        self._references = references
        self._schemas = SchemaReader(references, old=old, max_depth=max_depth)

    def plan(self, raw: RawOperation) -> OperationPlan:
        """Return how an operation is called.

        Raises:
            UnsupportedOperation: it cannot be; the message is the reason.
        """
        if raw.part is None or raw.problem is not None:
            raise UnsupportedOperation(raw.problem or "it cannot be read")
        self._schemas.notes.clear()
        parts = self._parameters(raw)
        names = argument_names(parts)
        parameters = tuple(make_parameter(part, name) for part, name in zip(parts, names, strict=True))
        properties: dict[str, JsonValue] = {
            name: self._parameter_schema(part) for part, name in zip(parts, names, strict=True)
        }
        required = [each.argument for each in parameters if each.required]
        body_argument = FreeNames(names).take(BODY)
        body = self._body(raw.part)
        if body is not None:
            properties[body_argument] = body[1]
            required += [body_argument] * body[0].required
        schema: JsonObject = {"type": "object", "properties": properties, "additionalProperties": False}
        if required:
            schema["required"] = [*required]
        whole = self._schemas.complete(schema, "request", ARGUMENTS)
        output, links = self._responses(raw.part)
        return OperationPlan(
            raw.operation,
            tuple(segments_of(raw.operation.path, parameters)),
            parameters,
            None if body is None else body[0],
            body_argument,
            whole,
            output,
            tuple(page_links(links, raw.operation)),
            tuple(self._schemas.notes),
        )

    def _parameters(self, raw: RawOperation) -> list[ParameterPart]:
        """Return the parameters of an operation, in the order path, query, headers, cookies."""
        assert raw.part is not None
        found: dict[tuple[str, str], ParameterPart] = {}
        for index, each in enumerate([*raw.shared, *raw.part.parameters]):
            if not isinstance(each, dict):
                raise UnsupportedOperation(f"parameters[{index}]: it is not an object")
            part = self._references.read(ParameterPart, each, f"parameters[{index}]")
            # Those of the operation come last, and replace those of its path.
            found[part.location, part.name] = part
        kept = [part for part in found.values() if not self._is_ignored(part)]
        return sorted(kept, key=lambda part: ("path", "query", "header", "cookie").index(part.location))

    def _is_ignored(self, part: ParameterPart) -> bool:
        """Return whether a parameter is left out. Raises `UnsupportedOperation` if no call is possible without it."""
        if part.location != "header":
            return False
        name = part.name.lower()
        if name in IGNORED_HEADERS:
            return True
        forbidden = name in FORBIDDEN_HEADERS or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9a-z-]+", name)
        if forbidden and part.required:
            raise UnsupportedOperation(f"it needs the header {part.name!r:.80}, which no caller may write")
        if forbidden:
            self._schemas.notes[f"the header {part.name!r:.80} is left out, since no caller may write it"] = None
        return forbidden

    def _parameter_schema(self, part: ParameterPart) -> JsonObject:
        schema = part.schema_
        for media in part.content.values():
            schema = media.schema_
        made = self._schemas.part(schema, "request")
        return made if part.description is None else {**made, "description": part.description}

    def _body(self, part: OperationPart) -> tuple[Body, JsonObject] | None:
        if part.request_body is None:
            return None
        body = self._references.read(RequestBodyPart, part.request_body, "requestBody")
        media_type, kind = chosen_media_type(body.content)
        if len(body.content) > 1:
            others = ", ".join(each for each in body.content if each != media_type)
            self._schemas.notes[f"its body is sent as {media_type}, and never as {others:.200}"] = None
        media = read(MediaTypePart, body.content[media_type], f"requestBody.content[{media_type}]")
        made, schema = make_body(media_type, kind, media, self._schemas, required=body.required)
        return made, schema if body.description is None else {**schema, "description": body.description}

    def _responses(self, part: OperationPart) -> tuple[Output, Mapping[str, JsonObject]]:
        """Return what an operation returns, and the links of its successes."""
        successes = [
            self._references.read(ResponsePart, each, f"responses[{status}]")
            for status, each in part.responses.items()
            if is_success(status)
        ]
        links = {name: self._references.resolved(link) for success in successes for name, link in success.links.items()}
        media_types = list(dict.fromkeys(each for success in successes for each in success.content))
        accept = ", ".join([*media_types, "*/*;q=0.1"]) if media_types else "application/json, */*;q=0.5"
        # The tail of the header, so that an API that sends something else than it declares is not rejected with 406.
        schemas = [self._response_schema(success) for success in successes]
        if not schemas or any(schema is None for schema in schemas):
            return Output(None, wrapped=False, accept=accept), links
        try:
            return self._output([schema for schema in schemas if schema is not None], accept), links
        except UnsupportedOperation as error:
            self._schemas.notes[f"it has no output schema: {error}"] = None
            return Output(None, wrapped=False, accept=accept), links

    def _response_schema(self, response: ResponsePart) -> JsonObject | None:
        """Return the schema of a response; None if it may be something else than JSON, or anything."""
        if not response.content or not all(map(is_json, response.content)):
            return None
        media = [read(MediaTypePart, each, "responses") for each in response.content.values()]
        try:
            schemas = [self._schemas.part(each.schema_, "response") for each in media]
        except UnsupportedOperation as error:
            self._schemas.notes[f"it has no output schema: {error}"] = None
            return None
        distinct = distinct_schemas(schemas)
        if not all(distinct):
            return None
        return distinct[0] if len(distinct) == 1 else {"anyOf": [*distinct]}

    def _output(self, schemas: Sequence[JsonObject], accept: str) -> Output:
        distinct = distinct_schemas(schemas)
        schema = distinct[0] if len(distinct) == 1 else cast("JsonObject", {"anyOf": [*distinct]})
        whole = self._schemas.complete(schema, "response", OUTPUT)
        # Revisions before 2026-07-28 know only objects as structured results.
        wrapped = whole.get("type") != "object"
        shown = self._schemas.valid(wrapped_schema(whole), OUTPUT) if wrapped else whole
        return Output(shown, wrapped, accept)


def distinct_schemas(schemas: Sequence[JsonObject]) -> list[JsonObject]:
    """Return schemas without those that are equal to an earlier one."""
    # By their texts, since a response may have thousands of media types.
    found: dict[str, JsonObject] = {}
    for schema in schemas:
        found.setdefault(json.dumps(schema, sort_keys=True), schema)
    return list(found.values())


def is_success(status: str) -> bool:
    """Return whether a key of `responses` stands for a success."""
    return bool(re.fullmatch(r"2(\d\d|XX|xx)", status))


def argument_names(parts: Sequence[ParameterPart]) -> list[str]:
    """Return the names of arguments for parameters; of two with one name the later has its place in it too."""
    free = FreeNames()
    names: list[str] = []
    for part in parts:
        plain = ARGUMENT.sub("_", part.name).strip("_")[:MAX_ARGUMENT] or part.location
        names.append(free.take(plain if plain not in free else f"{plain}_{part.location}"[:MAX_ARGUMENT]))
    return names


def segments_of(path: str, parameters: Sequence[Parameter]) -> Iterator[str | Parameter]:
    """Yield the fixed texts of a path and its parameters by turns.

    Raises:
        UnsupportedOperation: the path is wrong, or its variables are not its parameters.
    """
    if not path.startswith("/") or "?" in path or "#" in path:
        raise UnsupportedOperation("its path does not begin with a slash, or has a query")
    by_name = {each.name: each for each in parameters if each.location == "path"}
    variables = VARIABLE.findall(path)
    if wrong := sorted(by_name.keys() ^ set(variables)):
        raise UnsupportedOperation(f"its path and its path parameters do not agree about {', '.join(wrong):.200}")
    if len(set(variables)) != len(variables):
        raise UnsupportedOperation("its path has a variable twice")
    for index, text in enumerate(VARIABLE.split(path)):
        yield by_name[text] if index % 2 else quote(text, safe=LITERAL)
