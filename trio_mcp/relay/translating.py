"""Speaking to a host and a server of different eras: a session for the host, whose routes call the server as a client.

What passes is what the messages mean: lists, calls, prompts, resources, completion, progress, log messages, changes, and the
questions of the server. Unknown members of results survive; methods that the revisions do not define do not pass.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import trio

from ..client.calls import CallOptions, Calls
from ..client.changes import Changes
from ..client.link import Link
from ..client.listed_tools import ListedTools
from ..client.lists import Lists
from ..client.options import ClientOptions
from ..client.task_calls import TaskCalls
from ..errors import Disconnected, McpError, PeerError, RemoteProtocolError
from ..logs import peer_logger
from ..protocol.codec.validation import validated
from ..protocol.jsonrpc import INTERNAL_ERROR, ErrorResponse, RequestId, Response
from ..protocol.meta import PROGRESS_TOKEN, RESERVED, TASKS_EXTENSION
from ..runtime import Actor, Lane
from ..session import (
    Call,
    Envelope,
    MessageChannel,
    MessageFacts,
    Plan,
    Received,
    RequestFacts,
    Route,
    Sent,
    ServerSession,
    Service,
    make_session,
    open_service,
)
from ..session.changes import LISTS, Change, filter_of
from ..session.idle_timeout import OnProgress
from ..session.pump import CLEAN_UP
from ..types import (
    CallToolRequestParams,
    ClientCapabilities,
    GetPromptRequestParams,
    Implementation,
    JsonValue,
    ListToolsResult,
    LoggingMessageNotificationParams,
    Model,
    ReadResourceRequestParams,
    RequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
)
from .answers import Answers
from .offers import host_of
from .questions import ForwardedQuestions, Questions
from .rounds import MAX_ROUNDS

logger = peer_logger("trio_mcp.relay")

MAX_WATCHED: Final = 1000
"""Resources whose changes the proxy subscribes to at the server, over one connection."""

PAGED: Final = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
Send: TypeAlias = Callable[[str, RequestParams, OnProgress], Awaitable[Model]]
"""Sends the request of a call to the server and returns its result."""


@dataclass(eq=False)
class Translation:
    """A host's session, and the client of the server behind it.

    Attributes:
        session: the host's.
    """

    session: ServerSession
    _channel: WatchedChannel

    async def wait_lost(self) -> None:
        """Wait until the server has gone, and the requests that ran there have their errors."""
        await self._channel.lost.wait()
        with trio.move_on_after(CLEAN_UP):
            await self.session.requests.wait_none_left()


@asynccontextmanager
async def open_translation(
    channel: MessageChannel,
    is_late: Callable[[RequestId | None], bool],
    mode: str,
    answers: Answers,
    capabilities: JsonValue,
    info: JsonValue,
    *,
    shared_channel: bool,
) -> AsyncIterator[Translation]:
    """Open a session for a host over a connection to a server of the other era; the channel stays open at the end.

    Args:
        is_late: whether an id is that of a request which found out the server's era; its answer may still come.
        mode: the server's era, as `Client.connect` takes it.
        capabilities, info: what the host declared, and who it is.

    Raises:
        McpError: the server did not open a session, or the host's declarations are malformed.
    """
    questions = Questions(answers, host_of(capabilities), several_hosts=not shared_channel)
    added = answers.backfill.offers.added_to(capabilities)
    declared = validated(ClientCapabilities, capabilities if added is None else added, "capabilities")
    watched = WatchedChannel(channel, is_late)
    client = ServerClient(questions)
    client.options = ClientOptions(
        info=validated(Implementation, info, "clientInfo") if info else Implementation(name="unnamed", version="0"),
        handlers=ForwardedQuestions(
            declared=ClientCapabilities(
                roots=declared.roots,
                sampling=declared.sampling,
                elicitation=declared.elicitation,
                # The calls here follow them for the host, whose revision has other ones or none.
                extensions={TASKS_EXTENSION: {}},
            ),
            questions=questions,
        ),
        on_log=client.on_log,
        on_change=client.on_change,
        log_level="debug",
        mode=mode,
    )
    link = client.link = Link(nullcontext(watched), client.options)
    await link.open()
    try:
        facts = link.facts
        opened = open_service(
            client.routes(),
            facts.info or Implementation(name="unnamed", version="0"),
            facts.capabilities,
            facts.instructions,
            message_middleware=[client.on_message],
        )
        async with opened as client.service:
            client.watch_lists()
            yield Translation(make_session(client.service, shared_channel=shared_channel), watched)
    finally:
        await link.aclose()  # noqa: ASYNC102  it is shielded and bounded itself


class ServerClient:
    """The client of the server in a translated connection."""

    link: Link
    options: ClientOptions
    service: Service

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._tools = ListedTools()
        self._watched: dict[str, None] = {}

    # what the host requests

    def routes(self) -> dict[str, Route]:
        """Return the functions that serve the host's requests, by method."""
        lists = Lists(self.link, self.options.cache, self._tools)
        tasks = TaskCalls(self.link, self._tools, lists.refresh_tools)
        calls = Calls(self.link, self.options, self._tools, lists.refresh_tools, tasks)
        sends: dict[str, Send] = {
            **dict.fromkeys(PAGED, self._list),
            "completion/complete": self._request,
            "tools/call": partial(call_tool, calls),
            "prompts/get": partial(get_prompt, calls),
            "resources/read": partial(read_resource, calls),
        }
        return {method: partial(self._route, send) for method, send in sends.items()}

    def _route(self, send: Send, facts: RequestFacts, params: Model) -> Plan:
        assert isinstance(params, RequestParams)
        target: object = getattr(params, "name", None) or getattr(params, "uri", None)
        return Plan(partial(self._run, send, params), str(target or facts.method))

    async def _run(self, send: Send, params: RequestParams, call: Call, place: Actor | Lane) -> Model:
        """Call the server for one call of the host."""
        lane = place if isinstance(place, Lane) else Lane(place)
        failure: McpError
        # The result is returned below the block, whose end sends what was reported.
        try:
            async with self._questions.during(call, lane) as running:
                try:
                    result = await send(call.method, without_own_meta(params), running.on_progress)
                except McpError as error:
                    failure = error
                else:
                    return result
            raise failure
        except PeerError as error:
            raise RemoteProtocolError(error.message, code=error.code, data=error.data) from None
        except Disconnected as error:
            raise RemoteProtocolError(f"the server has gone: {error}", code=INTERNAL_ERROR) from None

    async def _request(self, method: str, params: RequestParams, _on_progress: OnProgress) -> Model:
        return await self.link.request(method, params)

    async def _list(self, method: str, params: RequestParams, _on_progress: OnProgress) -> Model:
        result = await self.link.request(method, params)
        if isinstance(result, ListToolsResult):
            # Only for the arguments that headers repeat: whether a result matches its schema is for the host to say.
            bare = [tool.model_copy(update={"output_schema": None}) for tool in result.tools]
            known = {tool.name for tool in self._tools.add(bare, self.link.dialect)}
            result = result.model_copy(update={"tools": [tool for tool in result.tools if tool.name in known]})
        return result

    # what the server reports

    def on_log(self, entry: LoggingMessageNotificationParams) -> None:
        """Pass a log message on, on the call that it is most likely about."""
        running = self._questions.latest
        if running is not None:
            running.on_log(entry)

    def on_change(self, change: Change) -> None:
        """Announce a change to the host."""
        self.service.subscriptions.announce(change)

    def watch_lists(self) -> None:
        """Subscribe to the changes of the server's lists; a legacy server announces them anyway."""
        if not self.link.dialect.can_reopen:
            wanted = filter_of([kind for kind in LISTS if self._announces(kind)])
            if wanted.wire():
                self._watch(Changes(lambda: self.link.dialect.listeners, wanted))

    def on_message(self, message: MessageFacts) -> None:
        """Subscribe at the server to the resources that the host subscribes to."""
        uris: Iterable[str] = ()
        match message.params:
            case SubscribeRequestParams(uri=uri):
                uris = (uri,)
            case SubscriptionsListenRequestParams(notifications=wanted):
                uris = wanted.resource_subscriptions or ()
        for uri in uris:
            if uri not in self._watched and len(self._watched) < MAX_WATCHED:
                self._watched[uri] = None
                self._watch(Changes(lambda: self.link.dialect.listeners, filter_of([], [uri])))

    def _announces(self, kind: str) -> bool:
        capability = getattr(self.link.facts.capabilities, kind, None)
        return bool(getattr(capability, "list_changed", None))

    def _watch(self, changes: Changes) -> None:
        self.service.supervisor.spawn(self._read_changes, changes)

    async def _read_changes(self, changes: Changes) -> None:
        """Keep a subscription; `on_change` gets what it brings."""
        try:
            async with changes:
                async for _ in changes:
                    pass
        except McpError as error:
            logger.info("changes of the server do not reach the host: %s", error)


class WatchedChannel(MessageChannel):
    """A channel that notes its end, and stays open when it is closed.

    Attributes:
        lost: set when nothing more comes.
    """

    def __init__(self, channel: MessageChannel, is_late: Callable[[RequestId | None], bool]) -> None:
        self._channel = channel
        self._is_late = is_late
        self.lost = trio.Event()

    async def send(self, value: Envelope[Sent]) -> None:
        await self._channel.send(value)

    async def send_many(self, values: Sequence[Envelope[Sent]]) -> None:
        await self._channel.send_many(values)

    async def receive(self) -> Envelope[Received]:
        try:
            while True:
                envelope = await self._channel.receive()
                message = envelope.message
                if not (isinstance(message, Response | ErrorResponse) and self._is_late(message.id)):
                    return envelope
        except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError):
            self.lost.set()
            raise

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    @property
    def close_reason(self) -> str | None:
        return self._channel.close_reason


def without_own_meta(params: RequestParams) -> RequestParams:
    """Return params without what their `_meta` says about the host's side of the connection."""
    own = RESERVED | {PROGRESS_TOKEN}
    meta = {name: value for name, value in (params.meta or {}).items() if name not in own}
    return params.model_copy(update={"meta": meta or None})


async def call_tool(calls: Calls, _method: str, params: RequestParams, on_progress: OnProgress) -> Model:
    assert isinstance(params, CallToolRequestParams)
    return await calls.tool(params.name, params.arguments, call_options(params, on_progress))


async def get_prompt(calls: Calls, _method: str, params: RequestParams, on_progress: OnProgress) -> Model:
    assert isinstance(params, GetPromptRequestParams)
    return await calls.prompt(params.name, params.arguments, call_options(params, on_progress))


async def read_resource(calls: Calls, _method: str, params: RequestParams, on_progress: OnProgress) -> Model:
    assert isinstance(params, ReadResourceRequestParams)
    return await calls.resource(params.uri, call_options(params, on_progress))


def call_options(params: RequestParams, on_progress: OnProgress) -> CallOptions:
    return CallOptions(meta=params.meta, on_progress=on_progress, max_rounds=MAX_ROUNDS)
