"""Operations as tools and resources of a server."""

from __future__ import annotations

import inspect
from base64 import b64encode
from collections.abc import Awaitable, Callable
from functools import partial
from keyword import iskeyword
from typing import Final, TypeVar

from ..errors import ResourceNotFound, ToolError
from ..server.context import Context, keep_until_end
from ..server.server import Server
from ..server.tool_options import ToolKeywords
from ..server.values.media import is_text
from ..server.values.results import ToolResult
from ..types import BlobResourceContents, JsonObject, TextResourceContents, ToolAnnotations
from .calls import OperationCaller
from .operations import Operation, OperationPlan
from .parameters import Parameter, encoded, is_json
from .reading import decoded, read_beside
from .responses import charset_of, error_of
from .sending import HttpRequest

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
    """Return what a model reads about an operation, in at most `most` characters."""
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
    server.add_tool(call, **options)


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
    server.add_resource(uri, reader_of(caller, uri), name=name, description=description)


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
