"""Tool search: two tools, one that finds tools and one that calls them, in place of a long list.

`search_tools` is a tool like any other. A call of `call_tool` becomes a call of the tool that it names before anything else of
the server sees it: questions, progress, cancellation, middleware, limits, scopes and tasks are those of that tool.

    tools/list                                                  search_tools, call_tool, and the pinned tools
    tools/call search_tools {"query": "rename a pet"}           update_pet with its schemas
    tools/call call_tool {"name": "update_pet", "arguments": {"id": 1}}
        -> tools/call update_pet {"id": 1}
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, Protocol, cast

import trio
from pydantic import Field, ValidationError, create_model

from ...base.checks import check_instance, check_int, check_sequence, nearest
from ...base.logs import peer_logger
from ...protocol.jsonrpc import Encoded, Request
from ...protocol.strict_json import dumps
from ...runtime import ThreadLimiter
from ...session import Plan, RequestFacts, Route
from ...session.calls.facts import TaskSupport
from ...types import CallToolRequestParams, JsonObject, Model, Tool as ToolModel
from ..access import Restricted
from ..catalog import Catalog, NumberedItem
from ..context import Context
from ..tool_options import check_tool_name
from ..values.parameters_model import parameters_model
from ..values.results import ToolResult
from ..values.schema_checks import error_summary
from ..values.schemas import PlainSchema
from ..values.signature import ArgumentsModel
from ..values.text_results import error_result
from .search_index import SearchIndex
from .task_calls import listed_execution
from .tool import Tool, check_retry, make_tool, uncallable_tools

logger = peer_logger("trio_mcp.tool")

CALL: Final = "tools/call"
INDEXED_INLINE: Final = 100
"""New tools that are indexed in the event loop, in a few milliseconds; more of them in a thread."""

SEARCH_DESCRIPTION: Final = (
    "Find tools of this server by words of what they do. Returns the best matches, each with its name, description and input "
    "schema. Run a tool that was found with {call}."
)
CALL_DESCRIPTION: Final = (
    "Run a tool of this server that {search} has found: its name, and arguments that match its input schema."
)


@dataclass(frozen=True, slots=True)
class ToolSearch:
    """Replace the list of tools by a search: `Server(tool_search=ToolSearch(pinned=["book_flight"]))`.

    Attributes:
        pinned: the names of tools that stay in the list.
        results: how many tools a search returns by default.
        max_results: how many it returns at most.
        max_query: characters of a query.
        max_result_bytes: bytes of the tools that a search returns. Tools beyond that are named without their schemas.
        search_name, call_name: the names of the two tools.

    Raises:
        TypeError, ValueError: one of these has a wrong value.
    """

    pinned: Sequence[str] = ()
    results: int = 5
    max_results: int = 20
    max_query: int = 500
    max_result_bytes: int = 64 * 1024
    search_name: str = "search_tools"
    call_name: str = "call_tool"

    def __post_init__(self) -> None:
        check_sequence("pinned", self.pinned, str, 'a list of names, such as ["book_flight"]', "the name of a tool")
        check_int("max_results", self.max_results, least=1)
        check_int("results", self.results, least=1, most=self.max_results)
        check_int("max_query", self.max_query, least=1)
        check_int("max_result_bytes", self.max_result_bytes, least=1024)
        for name in (self.search_name, self.call_name):
            check_tool_name(name)
        if self.search_name == self.call_name:
            raise ValueError(f"search_name and call_name are both {self.call_name!r}")


def check_tool_search(tool_search: object) -> ToolSearch:
    """Return `tool_search` if it is a `ToolSearch`."""
    return check_instance("tool_search", tool_search, ToolSearch, "ToolSearch(), or ToolSearch(pinned=[...])")


class Query(Protocol):
    """The arguments of a search."""

    query: str
    limit: int


class NamedCall(Protocol):
    """The arguments of `call_tool`."""

    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """What stands in the list of tools."""

    model: ToolModel


class SearchedTools:
    """The tools of a service whose list is a search.

    Args:
        tools: all of them; they may change.
        threads: those of the server.

    Raises:
        ValueError: a tool has one of the two names.
    """

    def __init__(self, tools: Catalog[Tool], options: ToolSearch, threads: ThreadLimiter) -> None:
        self._tools = tools
        self._options = options
        self._restricted = Restricted(tools)
        warn_of_unknown(options.pinned, tools.by_key)
        for name in (options.search_name, options.call_name):
            if name in tools.by_key:
                raise ValueError(f"a tool is named {name!r}, as one of the tools of ToolSearch: rename one of them")
        self._search_tool = make_tool(
            self._search,
            {
                "name": options.search_name,
                "description": SEARCH_DESCRIPTION.format(call=options.call_name),
                "annotations": {"readOnlyHint": True, "openWorldHint": False},
            },
            threads,
            parameters=parameters_model(query_model(options)),
        )
        self._indexed: object = None
        self._index = SearchIndex((), {})
        self._numbered: tuple[NumberedItem[Tool], ...] = ()
        self._source: object = None
        self._snapshot: tuple[NumberedItem[Listed], ...] = ()

    # the list, as `Pages` reads it

    def snapshot(self) -> tuple[NumberedItem[Listed], ...]:
        """Return what is listed: the two tools and the pinned ones; the same object until the next change."""
        if self._source is not (source := self._tools.snapshot()):
            pinned = set(self._options.pinned)
            kept = [(number + 2, tool.model) for number, tool in source if tool.name in pinned]
            shown = [(1, self._search_tool.model), (2, self._call_model()), *kept]
            self._snapshot = tuple(NumberedItem(number, Listed(model)) for number, model in shown)
            self._source = source
        return self._snapshot

    def after(self, number: int) -> Sequence[NumberedItem[Listed]]:
        """Return what is listed with greater numbers than this."""
        return [listed for listed in self.snapshot() if listed.number > number]

    def hidden(self, facts: RequestFacts) -> frozenset[Listed]:
        """Return what is hidden from a caller."""
        names = {tool.name for tool in uncallable_tools(self._tools, self._restricted, facts)}
        if not names:
            return frozenset()
        return frozenset(listed for _, listed in self.snapshot() if listed.model.name in names)

    def hideable(self) -> Sequence[Listed]:
        """Return what some callers do not see."""
        names = {tool.name for tool in self._restricted.hideable()}
        return [listed for _, listed in self.snapshot() if listed.model.name in names]

    def _call_model(self) -> ToolModel:
        # In 2025-11-25 a caller asks for a task only where the list says that it may.
        runs_tasks = any(tool.task is not TaskSupport.FORBIDDEN for tool in self._tools)
        return ToolModel(
            name=self._options.call_name,
            description=CALL_DESCRIPTION.format(search=self._options.search_name),
            input_schema=call_schema(),
            execution=listed_execution(TaskSupport.OPTIONAL if runs_tasks else TaskSupport.FORBIDDEN),
        )

    # calls

    def searching(self, route: Route) -> Route:
        """Return the route of `tools/call` with the search as one more tool."""

        def searched(facts: RequestFacts, params: Model) -> Model | Encoded | Plan:
            if isinstance(params, CallToolRequestParams) and params.name == self._options.search_name:
                return self._search_tool.plan(facts, params.arguments or {})
            return route(facts, params)

        return searched

    def unwrapping(self, routes: Mapping[str, Route]) -> Mapping[str, Route]:
        """Return the routes; a call of `call_tool` is served as a call of the tool that it names."""
        return {**routes, CALL: partial(self._unwrapped, routes[CALL])}

    def _unwrapped(self, route: Route, facts: RequestFacts, params: Model) -> Model | Encoded | Plan:
        assert isinstance(params, CallToolRequestParams)
        if params.name != self._options.call_name:
            return route(facts, params)
        try:
            named = named_call(params)
        except ValidationError as error:
            # A result, so that the model reads it and corrects its call.
            return error_result(f"Invalid arguments for {params.name}: {error_summary(error)}")
        tool = self._tools.by_key.get(named.name)
        if tool is None or (tool.access is not None and tool.access.hides_from(facts.caller)):
            return error_result(
                f"There is no tool {named.name!r}: find one with {self._options.search_name}, and give its name."
            )
        # The headers of the request mirror the arguments of `call_tool`, which has none to mirror.
        return route(facts._replace(own_headers=False), named)

    def check_retry(self, facts: RequestFacts, params: Model) -> None:
        """Check a request that continues a call; see `tool.check_retry`."""
        assert isinstance(params, CallToolRequestParams)
        if params.name == self._options.call_name:
            try:
                params, facts = named_call(params), facts._replace(own_headers=False)
            except ValidationError:
                # No call began with these arguments, so that no state is good for them.
                return
        check_retry(self._tools, facts, params)

    def resolved(self, request: Request) -> Request:
        """Return a call of `call_tool` as one of the tool that it names, for `missing_scopes`; others as they are."""
        params = request.params
        if not isinstance(params, dict) or params.get("name") != self._options.call_name:
            return request
        arguments = params.get("arguments")
        name = arguments.get("name") if isinstance(arguments, dict) else None
        return request._replace(params={"name": name})

    # the search

    async def _search(self, found: Query, ctx: Context) -> ToolResult:
        """Return the tools that match a query."""
        await self._refresh()
        hidden = uncallable_tools(self._tools, self._restricted, ctx.request)
        # What was removed while the index was made is left out, as what is hidden is.
        tools = [self._numbered[number].item for number in self._index.ranked(found.query)]
        visible = [tool for tool in tools if tool not in hidden and self._tools.by_key.get(tool.name) is tool]
        shown = within([described(tool.model) for tool in visible[: found.limit]], self._options.max_result_bytes)
        return ToolResult(structured_content={"tools": [*shown], "total": len(visible)})

    async def _refresh(self) -> None:
        """Index the tools again if they have changed."""
        snapshot = self._tools.snapshot()
        if self._indexed is snapshot:
            await trio.lowlevel.checkpoint()
            return
        models, earlier = [tool.model for _, tool in snapshot], self._index.words
        if sum(id(model) not in earlier for model in models) > INDEXED_INLINE:
            index = await trio.to_thread.run_sync(SearchIndex, models, earlier)
        else:
            index = SearchIndex(models, earlier)
            await trio.lowlevel.checkpoint()
        # Of two searches that index at the same time the last one counts; the next search sees whether it is fresh.
        self._index, self._numbered, self._indexed = index, snapshot, snapshot


def warn_of_unknown(pinned: Sequence[str], names: Collection[str]) -> None:
    """Log the pinned names that no tool has. It may be added later, so that this is not an error."""
    for name in pinned:
        if name not in names:
            logger.warning("ToolSearch: no tool has the pinned name %r; %s", name, nearest(name, names))


# Models are made when a server first searches: each takes a millisecond, and most servers have no search.


def query_model(options: ToolSearch) -> type[ArgumentsModel]:
    """Return the type of the arguments of a search, with its limits."""
    query = Field(description="Words of what the tool does, or its name.", min_length=1, max_length=options.max_query)
    limit = Field(description="How many tools to return.", ge=1, le=options.max_results, default=options.results)
    return create_model("Query", __base__=ArgumentsModel, query=(str, query), limit=(int, limit))


@cache
def call_model() -> type[ArgumentsModel]:
    """Return the type of the arguments of `call_tool`."""
    name = Field(description="The name of the tool.", max_length=128)
    arguments = Field(description="Its arguments.", default_factory=dict[str, Any])
    return create_model("NamedCall", __base__=ArgumentsModel, name=(str, name), arguments=(JsonObject, arguments))


def call_schema() -> JsonObject:
    """Return the input schema of `call_tool`."""
    schema: JsonObject = call_model().model_json_schema(schema_generator=PlainSchema)
    return {key: value for key, value in schema.items() if key not in ("title", "description")}


def named_call(params: CallToolRequestParams) -> CallToolRequestParams:
    """Return the call that a call of `call_tool` stands for.

    Raises:
        ValidationError: its arguments name none.
    """
    named = cast("NamedCall", call_model().model_validate(params.arguments or {}))
    return params.model_copy(update={"name": named.name, "arguments": named.arguments})


def described(tool: ToolModel) -> JsonObject:
    """Return what a search shows of a tool."""
    wire = tool.wire()
    shown = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
    return {name: wire[name] for name in shown if wire.get(name) is not None}


def within(tools: Sequence[JsonObject], size: int) -> list[JsonObject]:
    """Return descriptions of tools that have this many bytes together; those that do not fit have no schemas.

    The first one always has its schemas, since a tool could otherwise never be called.
    """
    shown: list[JsonObject] = []
    for tool in tools:
        short: JsonObject = {
            "name": tool["name"],
            "note": "Its schemas are left out here, because the result is long: search for its name.",
        }
        whole = len(dumps(tool))
        if not shown or whole <= size:
            shown.append(tool)
            size -= whole
        else:
            shown.append(short)
    return shown
