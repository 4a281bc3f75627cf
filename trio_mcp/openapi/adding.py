"""Servers from OpenAPI documents: `from_openapi`, `add_openapi` and `fetch_openapi`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Generic, TypedDict, TypeVar, Unpack, cast
from urllib.parse import urlsplit

import trio

from .. import server as late
from ..base.checks import check_callable, check_instance, check_int, check_names, check_seconds, mistake
from ..base.logs import peer_logger
from ..base.named_tuples import NamedTuple
from ..errors import ToolError
from ..server.server import Server
from ..server.tool_options import ToolKeywords
from ..server.values.callables import is_async
from ..session.transport import facts_of
from ..types import JsonObject
from .calls import CredentialSource, OperationCaller
from .documents import DocumentSource, load_document, parse_document
from .names import (
    LeftOutOperation,
    OpenApiReport,
    Rename,
    Selector,
    TakenOperation,
    add_resource,
    add_tool,
    resource_uri,
    selected,
    tool_names,
    tool_options,
)
from .operations import Operation, OperationPlan, OperationReader, RawOperation, raw_operations
from .parts import OpenApiError, References, UnsupportedOperation
from .reading import read_beside
from .sending import ApiClient, ApiRequest, HttpClient, HttpRequest

# The limits of documents and of what an API may send.


@dataclass(frozen=True, slots=True)
class OpenApiLimits:
    """The limits of a document, and of each response of its API.

    Attributes:
        max_document: bytes of a document as JSON.
        max_operations: operations that become tools; a document with more is refused.
        max_schema_depth: how deep the schema of an operation may be nested; an operation with a deeper one is left out.
        max_description: characters of the description of a tool; a longer one is cut.
        max_response: bytes of a response, after any decompression; a call whose response is larger fails.
        max_error_body: characters that the model sees of the body of an error.

    Raises:
        TypeError, ValueError: one of these has a wrong value.
    """

    max_document: int = 16 * 1024 * 1024
    max_operations: int = 500
    max_schema_depth: int = 48
    max_description: int = 2000
    max_response: int = 10 * 1024 * 1024
    max_error_body: int = 2000

    def __post_init__(self) -> None:
        for name in self.__slots__:
            check_int(name, getattr(self, name), least=1)


logger = peer_logger("trio_mcp.openapi")

RequestT = TypeVar("RequestT", bound=HttpRequest)

TIMEOUT = 30.0
"""Seconds for one request to an API."""
NOT_SELECTED = "include does not select it"
NO_ID = "it has no operationId, so that its usual name is made of its method and path"
NO_RESOURCE = "it is no resource: only a GET that needs nothing but the values in its path is one"


class OpenApiKeywords(TypedDict, total=False):
    """The options of `from_openapi` and `add_openapi`.

    Attributes:
        include: which operations become tools: a function of an `Operation`, or a collection of ids (`listPets`), keys
            (`GET /pets/{petId}`) and tags (`#store`). By default, all.
        rename: the names of tools: a function of an `Operation`, or a mapping from ids or keys. The usual name is the id,
            or made of the method and the path.
        resources: which of these operations become resources too: True for all that can, a function or a collection. A GET
            without required parameters becomes a resource, one with a path that has parameters a resource template.
        credentials: a function, async or not, from the `Caller` of a call, or None without authentication, to the headers
            that authenticate the call at the API, or to `Credentials`. It may raise `ToolError`.
        tool_options: a function from an `Operation` to more options of its tool, such as `scopes`, `visible` or
            `max_result`.
        base_url: what the paths are appended to; by default the `base_url` of the client. The servers of the document
            are ignored.
        timeout: seconds for one request to the API (default 30). The timeouts of the client are ignored.
        slashes: values in a path may have slashes, which are sent as `%2F`. Many servers read that as a slash, so such
            a value could call another operation; by default it is refused.
        output_schemas: False for tools without output schemas, for an API that does not return what its document declares.
        asyncio: run the client, and `credentials` if it is async, on asyncio; by default as the server does.
        strict: raise `OpenApiError` if an operation that is selected cannot become a tool, instead of leaving it out.
        limits: the limits of the document and of responses.
    """

    include: Selector
    rename: Rename
    resources: Selector | bool
    credentials: CredentialSource
    tool_options: Callable[[Operation], ToolKeywords]
    base_url: str
    timeout: float
    slashes: bool
    output_schemas: bool
    asyncio: bool
    strict: bool
    limits: OpenApiLimits


class OpenApiServer(Server):
    """A server whose tools are the operations of an OpenAPI document; `from_openapi` makes one."""

    report: OpenApiReport
    """What became of each operation."""


def from_openapi(
    document: DocumentSource, client: HttpClient[RequestT], **options: Unpack[OpenApiKeywords]
) -> OpenApiServer:
    """Return a server with a tool for each operation of an OpenAPI 3.0 or 3.1 document.

        client = httpx2.AsyncClient(base_url="https://api.example.com/v1")
        server = from_openapi(Path("openapi.json"), client, include=["listPets", "getPet"])
        print(server.report)

    Its name, version and description are those of the document. Use `add_openapi` for a server with options of your own. The
    server does not close the client.

    Args:
        document: a dict, text in JSON or YAML, the path of a file, or an application with a method `openapi()`, such as a
            `fastapi.FastAPI`.
        client: sends the requests; an `httpx2.AsyncClient` with a `base_url`, or what has the same three members.
        options: see `OpenApiKeywords`.

    Raises:
        OpenApiError: the document cannot be used, or with `strict` one of its operations cannot.
        LookupError: an option names an operation that the document does not have.
        TypeError, ValueError: an option is unknown or wrong, or two tools would have one name.
        ModuleNotFoundError: the document is YAML, and PyYAML is not installed.
    """
    limits = options.get("limits", OpenApiLimits())
    loaded = load_document(document, check_instance("limits", limits, OpenApiLimits, "OpenApiLimits(...)").max_document)
    info = loaded.get("info")
    texts = {name: text for name, text in info.items() if isinstance(text, str)} if isinstance(info, dict) else {}
    server = OpenApiServer(
        texts.get("title") or "openapi",
        version=texts.get("version") or "0",
        description=texts.get("description", "")[: limits.max_description] or None,
    )
    server.report = add_document(server, loaded, client, options)
    return server


def add_openapi(
    server: Server, document: DocumentSource, client: HttpClient[RequestT], **options: Unpack[OpenApiKeywords]
) -> OpenApiReport:
    """Add a tool for each operation of a document to a server, also while it is served. Return what became of each.

    The arguments and the errors are those of `from_openapi`. If an error is raised, no tool was added.
    """
    limits = check_instance("limits", options.get("limits", OpenApiLimits()), OpenApiLimits, "OpenApiLimits(...)")
    check_instance("server", server, Server, "a Server")
    return add_document(server, load_document(document, limits.max_document), client, options)


async def fetch_openapi(
    url: str,
    client: HttpClient[RequestT],
    *,
    timeout: float = TIMEOUT,
    limits: OpenApiLimits = OpenApiLimits(),
) -> JsonObject:
    """Return the document at a URL, for `from_openapi`.

    Args:
        url: a whole URL, or a path below the `base_url` of the client. The headers of the client are sent to it.
        timeout: seconds, including those to read the document.

    Raises:
        OpenApiError: the server does not answer with an OpenAPI document within the limits.

    A cancel closes the connection.
    """
    check_seconds("timeout", timeout, positive=True)
    address = url if urlsplit(url).scheme else f"{base_of(client, None)}/{url.lstrip('/')}"
    api = ApiClient(client, timeout, limits.max_document)
    accept = "application/json, application/yaml;q=0.9, */*;q=0.5"
    request = ApiRequest("GET", address, {"accept": accept}, "; ".join(api.own_cookies) or None)
    with trio.move_on_after(timeout):
        try:
            response = await api.send(request)
        except ToolError as error:
            raise OpenApiError(f"{url:.200}: {error}") from None
        if response.status != 200:
            raise OpenApiError(f"{url:.200} answered {response.status}, and no document")
        return await read_beside(partial(parse_document, response.body, limits.max_document), len(response.body))
    raise OpenApiError(f"{url:.200}: the document could not be read within {timeout:g} seconds")


class Offer(NamedTuple, Generic[RequestT]):
    """An operation as a server offers it."""

    caller: OperationCaller[RequestT]
    tool: ToolKeywords
    taken: TakenOperation


def add_document(
    server: Server, document: JsonObject, client: HttpClient[RequestT], options: OpenApiKeywords
) -> OpenApiReport:
    """Add the operations of a document that was loaded; see `add_openapi`."""
    check_options(options)
    base_url = base_of(client, options.get("base_url"))
    references = References(document)
    raw = list(raw_operations(document, references))
    plans, left_out = read_operations(document, references, raw, options)
    report = OpenApiReport((), tuple(left_out))
    if options.get("strict", False) and report.impossible:
        raise OpenApiError(left_out_text(report.impossible))
    if options.get("asyncio", facts_of(server).on_asyncio):
        client, options = on_asyncio(client, options)
    offers = offers_of(plans, [each.operation for each in raw], client, base_url, options)
    register(server, offers)
    if report.impossible:
        logger.warning("left out of the OpenAPI document: %s", left_out_text(report.impossible))
    return replace(report, taken=tuple(offer.taken for offer in offers))


def on_asyncio(client: HttpClient[RequestT], options: OpenApiKeywords) -> tuple[HttpClient[RequestT], OpenApiKeywords]:
    """Return the client and the options with the author's code in them running on asyncio; the rest of a call runs on Trio."""
    # By its name: a program of Trio alone does not load it.
    openapi = import_module("trio_mcp.openapi.asyncio_client")
    credentials = options.get("credentials")
    if credentials is not None and is_async(credentials):
        options = {**options, "credentials": cast("CredentialSource", late.asyncio_bodies.on_asyncio(credentials))}
    moved: HttpClient[RequestT] = openapi.AsyncioClient(client)
    return moved, options


def offers_of(
    plans: Sequence[OperationPlan],
    operations: Sequence[Operation],
    client: HttpClient[RequestT],
    base_url: str,
    options: OpenApiKeywords,
) -> list[Offer[RequestT]]:
    """Return the operations as tools and resources, with their names.

    Args:
        operations: all of the document, which `rename` and `resources` may name.
    """
    limits = options.get("limits", OpenApiLimits())
    names = tool_names([plan.operation for plan in plans], options.get("rename"), operations)
    api = ApiClient(client, options.get("timeout", TIMEOUT), limits.max_response)
    as_resource = resources_of(options, operations)
    offers: list[Offer[RequestT]] = []
    for read, name in zip(plans, names, strict=True):
        tool = whole_options(read, name, options)
        plan = read if "output_schema" in tool else without_output(read)
        caller = OperationCaller(
            plan, api, base_url, options.get("credentials"), options.get("slashes", False), limits.max_error_body
        )
        uri = resource_uri(plan) if as_resource(plan.operation) else None
        notes = list(plan.notes)
        if plan.operation.id is None:
            notes.append(NO_ID)
        if uri is None and named_resources(options) and as_resource(plan.operation):
            notes.append(NO_RESOURCE)
        offers.append(Offer(caller, tool, TakenOperation(plan.operation, name, uri, tuple(notes))))
    return offers


def check_options(options: OpenApiKeywords) -> None:
    """Raise `TypeError` or `ValueError` if an option is unknown or has a wrong value."""
    check_names(options, OpenApiKeywords.__optional_keys__, "from_openapi()")
    check_seconds("timeout", options.get("timeout", TIMEOUT), positive=True)
    for name in ("credentials", "tool_options"):
        if name in options:
            check_callable(name, cast("dict[str, object]", options)[name])
    for name in ("slashes", "output_schemas", "strict", "asyncio"):
        check_instance(name, cast("dict[str, object]", options).get(name, False), bool, "True or False")


def base_of(client: HttpClient[RequestT], base_url: str | None) -> str:
    """Return what paths are appended to. Raises `ValueError` if it is not an HTTP URL."""
    text = str(client.base_url if base_url is None else base_url).rstrip("/")
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        expected = 'an HTTP URL without a query, such as httpx2.AsyncClient(base_url="https://api.example.com/v1")'
        where = "the base_url of the client" if base_url is None else "base_url"
        raise ValueError(mistake(where, expected, text))
    return text


def read_operations(
    document: JsonObject, references: References, raw: Sequence[RawOperation], options: OpenApiKeywords
) -> tuple[list[OperationPlan], list[LeftOutOperation]]:
    """Return how the selected operations are called, and those that are left out.

    Raises:
        OpenApiError: more are selected than may be.
    """
    limits = options.get("limits", OpenApiLimits())
    is_selected = selected(options.get("include"), [each.operation for each in raw], "include")
    reader = OperationReader(document, references, limits.max_schema_depth)
    plans: list[OperationPlan] = []
    left_out: list[LeftOutOperation] = []
    chosen = [is_selected(each.operation) for each in raw]
    if sum(chosen) > limits.max_operations:
        raise OpenApiError(
            f"{sum(chosen)} operations would become tools; the limit is {limits.max_operations} (max_operations): "
            "select some with include"
        )
    for each, wanted in zip(raw, chosen, strict=True):
        if not wanted:
            left_out.append(LeftOutOperation(each.operation, NOT_SELECTED, chosen=True))
            continue
        try:
            plan = reader.plan(each)
        except UnsupportedOperation as error:
            left_out.append(LeftOutOperation(each.operation, str(error)))
        else:
            plans.append(plan)
    return plans, left_out


def named_resources(options: OpenApiKeywords) -> bool:
    """Return whether the author has said which operations are to be resources."""
    return not isinstance(options.get("resources", False), bool)


def resources_of(options: OpenApiKeywords, operations: Sequence[Operation]) -> Callable[[Operation], bool]:
    """Return whether an operation is to become a resource, as a function."""
    wanted = options.get("resources", False)
    return (lambda _operation: wanted) if isinstance(wanted, bool) else selected(wanted, operations, "resources")


def whole_options(plan: OperationPlan, name: str, options: OpenApiKeywords) -> ToolKeywords:
    """Return the options of a tool, with those that the author has given.

    Raises:
        TypeError: the author's function returns something else.
    """
    limits = options.get("limits", OpenApiLimits())
    made = tool_options(plan, name, limits.max_description)
    if "tool_options" in options:
        given = check_instance("what tool_options returns", options["tool_options"](plan.operation), dict, "a dict")
        if "name" in given:
            raise TypeError("tool_options: a tool gets its name from rename")
        made = cast("ToolKeywords", {**made, **given})
    # A preview has no structure.
    if not options.get("output_schemas", True) or "max_result" in made:
        made.pop("output_schema", None)
    return made


def without_output(plan: OperationPlan) -> OperationPlan:
    """Return how to call an operation without checking what it returns."""
    return replace(plan, output=plan.output._replace(schema=None, wrapped=False))


def register(server: Server, offers: Sequence[Offer[RequestT]]) -> None:
    """Register all tools and resources, or none of them."""
    tools, resources = list[str](), list[str]()
    try:
        for caller, tool, taken in offers:
            add_tool(server, caller, tool)
            tools.append(taken.tool)
            if taken.resource is not None:
                add_resource(server, caller, taken.resource, tool)
                resources.append(taken.resource)
    except (TypeError, ValueError):
        for name in tools:
            server.remove_tool(name)
        for uri in resources:
            server.remove_resource(uri)
        raise


def left_out_text(left_out: Sequence[LeftOutOperation]) -> str:
    """Return the first of some operations that are left out, with its reason, and how many there are besides."""
    first, others = left_out[0], len(left_out) - 1
    rest = f" (and {others} more; see the report)" if others else ""
    return f"{first.operation}: {first.reason}{rest}"
