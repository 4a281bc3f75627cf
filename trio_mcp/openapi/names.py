"""Which operations become tools, under which names, and the report of what became of each."""

from __future__ import annotations

import inspect
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from keyword import iskeyword
from typing import Final, TypeAlias, TypeVar

from ..base.checks import mistake, nearest
from ..errors import ResourceNotFound, ToolError
from ..server.context import Context, keep_until_end
from ..server.server import Server
from ..server.tool_options import ToolKeywords, check_tool_name
from ..server.values.media import is_text
from ..server.values.results import ToolResult
from ..types import BlobResourceContents, JsonObject, TextResourceContents, ToolAnnotations
from .calls import OperationCaller
from .operations import Operation, OperationPlan
from .parameters import Parameter, encoded, is_json
from .parts import FreeNames
from .reading import decoded, read_beside
from .responses import charset_of, error_of
from .sending import HttpRequest

MAX_NAME: Final = 64
"""Characters of a name that is made here. More are allowed, but not by the APIs of all models."""
NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")

Selector: TypeAlias = Callable[[Operation], bool] | Collection[str]
"""Selects operations: a function, or a collection of ids (`listPets`), keys (`GET /pets`) and tags (`#pets`)."""
Rename: TypeAlias = Callable[[Operation], str | None] | Mapping[str, str]
"""Names tools: a function, None for the usual name, or a mapping from ids (`listPets`) or keys (`GET /pets`) to names."""


def selected(selector: Selector | None, operations: Sequence[Operation], option: str) -> Callable[[Operation], bool]:
    """Return whether an operation is selected, as a function.

    Args:
        option: the name of the option, for errors.

    Raises:
        LookupError: no operation has an id, a key or a tag of the collection.
        TypeError: it is neither a function nor a collection of strings.
    """
    if selector is None:
        return lambda _operation: True
    if callable(selector):
        return lambda operation: bool(selector(operation))
    if isinstance(selector, str) or not isinstance(selector, Collection):
        expected = 'a function of an operation, or a list such as ["listPets", "GET /pets/{petId}", "#store"]'
        raise TypeError(mistake(option, expected, selector))
    wanted = frozenset(selector)
    known = {name for operation in operations for name in labels_of(operation)}
    check_known(wanted, known, option)
    return lambda operation: not wanted.isdisjoint(labels_of(operation))


def labels_of(operation: Operation) -> list[str]:
    """Return by what a collection can name an operation."""
    return [*filter(None, [operation.id]), operation.key, *(f"#{tag}" for tag in operation.tags)]


def check_known(wanted: Collection[str], known: Collection[str], option: str) -> None:
    """Raise `LookupError` if the document has no operation of a name."""
    for name in wanted:
        if name not in known:
            raise LookupError(
                f"{option}: the document has no operation {name!r:.200}; {nearest(name, known)}".rstrip("; ")
            )


def tool_names(
    operations: Sequence[Operation], rename: Rename | None, all_operations: Sequence[Operation]
) -> list[str]:
    """Return the names of the tools of operations: each is valid, and no two are equal.

    Raises:
        LookupError: `rename` names an operation that the document does not have.
        ValueError: `rename` gives a name that no tool can have, or one to two operations.
    """
    if isinstance(rename, Mapping):
        known = {label for each in all_operations for label in labels_of(each) if not label.startswith("#")}
        check_known(rename.keys(), known, "rename")
    given = [given_name(operation, rename) for operation in operations]
    taken = set[str]()
    for name in given:
        if name in taken:
            raise ValueError(f"rename gives the name {name!r} to two operations")
        taken.update([name] if name is not None else [])
    short = short_ids(operations)
    free = FreeNames(taken)
    names: list[str] = []
    for operation, own in zip(operations, given, strict=True):
        usual = short[operation.id] if operation.id in short else usual_name(operation)
        names.append(taken_name(usual, free) if own is None else own)
    return names


def given_name(operation: Operation, rename: Rename | None) -> str | None:
    """Return the name that the author gave to an operation, or None."""
    name: str | None = None
    if isinstance(rename, Mapping):
        name = rename.get(operation.key) or rename.get(operation.id or "")
    elif rename is not None:
        name = rename(operation)
    if name is not None:
        check_tool_name(name)
    return name


def usual_name(operation: Operation) -> str:
    """Return the name of an operation without any other: its id, or its method and path."""
    if operation.id is not None and (name := NO_NAME.sub("_", operation.id).strip("_-")):
        return name
    path = re.sub(r"\{([^{}]*)\}", r"by \1", operation.path)
    return NO_NAME.sub("_", f"{operation.method.lower()} {path}").strip("_-")


def taken_name(name: str, free: FreeNames) -> str:
    """Take a name, short enough and free, and return it."""
    short = name[:MAX_NAME]
    # Otherwise with room for the number.
    return free.take(short if short not in free else name[: MAX_NAME - 5])


def short_ids(operations: Sequence[Operation]) -> dict[str | None, str]:
    """Return the names of functions that FastAPI made ids of: `read_item_items__item_id__get` is `read_item`.

    Such an id is left as it is where two have the same function.
    """
    found: dict[str | None, str] = {}
    for operation in operations:
        suffix = re.sub(r"\W", "_", f"{operation.path}_{operation.method.lower()}")
        # FastAPI joins the name and the path without anything between, and the path begins with a slash.
        if operation.id is not None and operation.id.endswith(suffix) and (name := operation.id.removesuffix(suffix)):
            found[operation.id] = NO_NAME.sub("_", name).strip("_-")
    names = list(found.values())
    others = {usual_name(operation) for operation in operations if operation.id not in found}
    return {key: name for key, name in found.items() if name and names.count(name) == 1 and name not in others}


# What became of each operation of a document.


@dataclass(frozen=True, slots=True)
class TakenOperation:
    """An operation that became a tool.

    Attributes:
        tool: the name of the tool.
        resource: the URI or the template of the resource that it became too, if it was asked for and is possible.
        notes: what differs from the document, or is not as it could be.
    """

    operation: Operation
    tool: str
    resource: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOutOperation:
    """An operation that did not become a tool.

    Attributes:
        chosen: True if `include` does not select it, False if it cannot be called.
    """

    operation: Operation
    reason: str
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class OpenApiReport:
    """What became of the operations of a document. Its text has a line for each, and for each note."""

    taken: tuple[TakenOperation, ...]
    left_out: tuple[LeftOutOperation, ...]

    @property
    def impossible(self) -> tuple[LeftOutOperation, ...]:
        """The operations that `include` selects, and that cannot be called."""
        return tuple(each for each in self.left_out if not each.chosen)

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools."""
        return tuple(each.tool for each in self.taken)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for taken in self.taken:
            resource = "" if taken.resource is None else f", resource {taken.resource}"
            yield f"{taken.operation.key}: tool {taken.tool}{resource}"
            yield from (f"    {note}" for note in taken.notes)
        for left_out in self.left_out:
            yield f"{left_out.operation.key}: left out: {left_out.reason}"


# Operations as tools and resources of a server.

RequestT = TypeVar("RequestT", bound=HttpRequest)

SAFE: Final = frozenset({"GET", "HEAD"})
CONTEXT: Final = "ctx"
IDEMPOTENT: Final = frozenset({"PUT", "DELETE"})


def tool_options(plan: OperationPlan, name: str, max_description: int) -> ToolKeywords:
    """Return the options of the tool of an operation."""
    operation = plan.operation
    options: ToolKeywords = {
        "name": name,
        "description": description_of(operation, max_description),
        "input_schema": plan.input_schema,
        "annotations": annotations_of(operation),
        "tags": sorted({tag for tag in operation.tags if tag}),
    }
    if operation.summary:
        options["title"] = operation.summary
    if plan.output.schema is not None:
        options["output_schema"] = plan.output.schema
    return options


def description_of(operation: Operation, most: int) -> str:
    """Return what a model reads about an operation, cut to a number of characters."""
    texts = [operation.summary, operation.description if operation.description != operation.summary else None]
    text = "\n\n".join(filter(None, ["Deprecated." if operation.deprecated else None, *texts])) or operation.key
    return text if len(text) <= most else f"{text[: most - 3]}..."


def annotations_of(operation: Operation) -> ToolAnnotations:
    """Return the hints that follow from the method of an operation."""
    safe = operation.method in SAFE
    return ToolAnnotations(
        read_only_hint=safe,
        idempotent_hint=True if safe or operation.method in IDEMPOTENT else None,
        open_world_hint=True,
    )


def add_tool(server: Server, caller: OperationCaller[RequestT], options: ToolKeywords) -> None:
    """Register an operation as a tool. Raises as `Server.add_tool` does."""

    async def call(arguments: JsonObject, ctx: Context) -> ToolResult:
        return (await caller.answer(arguments, ctx.caller, keep_until_end(ctx))).result

    call.__name__ = call.__qualname__ = str(options.get("name"))
    # Also where the functions of the author run on asyncio: this one waits on Trio.
    whole: ToolKeywords = {**options, "asyncio": False}
    server.add_tool(call, **whole)


def resource_uri(plan: OperationPlan) -> str | None:
    """Return the URI, or the template, of the resource that an operation is; None if it is none.

    Reading a resource changes nothing, and a URI has no place for anything but the values of the path.
    """
    if plan.operation.method != "GET" or plan.body is not None or plan.required:
        return None
    parts: list[str] = []
    for segment in plan.segments:
        if not isinstance(segment, Parameter):
            parts.append(segment)
        elif segment.style == "simple" and not segment.as_json and is_variable(segment.argument):
            parts.append(f"{{{segment.argument}}}")
        else:
            return None
    return f"openapi://api{''.join(parts)}"


def is_variable(name: str) -> bool:
    """Return whether an argument can be a variable of a URI template, and a parameter of the function that reads it."""
    return name.isascii() and name.isidentifier() and not iskeyword(name) and name != CONTEXT


def add_resource(server: Server, caller: OperationCaller[RequestT], uri: str, options: ToolKeywords) -> None:
    """Register an operation as a resource, or as a resource template. Raises as `Server.add_resource` does."""
    name, description = str(options.get("name")), str(options.get("description"))
    server.add_resource(uri, reader_of(caller, uri), name=name, description=description, asyncio=False)


def reader_of(caller: OperationCaller[RequestT], uri: str) -> Callable[..., Awaitable[object]]:
    """Return the function that reads the resource; the values of the path are its parameters."""

    async def read(ctx: Context, **values: str) -> TextResourceContents | BlobResourceContents | None:
        address = uri
        for name, value in values.items():
            address = address.replace(f"{{{name}}}", encoded(value))
        return await contents_of(caller, dict(values), ctx, address)

    names = [each.argument for each in caller.plan.parameters if each.location == "path"]
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, kind, annotation=str) for name in names]
    context = inspect.Parameter(CONTEXT, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Context)
    # What a call passes is decided by the path of the operation, which no signature in the source can have.
    read.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
    read.__annotations__ = {CONTEXT: Context, **dict.fromkeys(names, str)}
    return read


async def contents_of(
    caller: OperationCaller[RequestT], values: JsonObject, ctx: Context, uri: str
) -> TextResourceContents | BlobResourceContents | None:
    """Return what the API responds, as the contents of a resource.

    Raises:
        ResourceNotFound: the API does not have it (404, 410).
        ToolError: another error, or an argument that cannot be sent.
    """
    response = await caller.respond(values, ctx.caller, keep_until_end(ctx))
    if response.status in (404, 410):
        raise ResourceNotFound(uri)
    if not 200 <= response.status < 300:
        raise ToolError(error_of(response, caller.max_error_body).text)
    kind = response.content_type or "application/octet-stream"
    if is_text(kind) or is_json(kind):
        text = await read_beside(partial(decoded, response.body, charset_of(response)), len(response.body))
        return TextResourceContents(uri=uri, mime_type=kind, text=text)
    blob = b64encode(response.body).decode()
    return BlobResourceContents(uri=uri, mime_type=kind, blob=blob)
