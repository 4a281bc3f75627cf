"""The client with which a proxy calls its server for a host, and passes the questions of the server on to that host.

A translated connection has one; where a proxy is mounted in a server, each host of that server has one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final, TypeAlias

import trio

from ..base.logs import peer_logger
from ..client.calls import Calls, CallSender
from ..client.changes import Changes
from ..client.link import Link
from ..client.lists import ListedTools, Lists
from ..client.options import CallOptions, ClientOptions
from ..client.tasks.calls import TaskCalls
from ..errors import Disconnected, McpError, PeerError, RemoteProtocolError
from ..protocol.codec.unknown import UnknownParams, Unread
from ..protocol.jsonrpc import INTERNAL_ERROR
from ..protocol.revisions import TASKS_EXTENSION
from ..runtime import Actor, Lane
from ..session import AnyChannel, Call, Plan, RequestFacts, Route
from ..session.notification_dispatch import OnProgress
from ..session.service import UnknownMethods
from ..session.subscriptions import LISTS, Change, filter_of
from ..types import (
    ClientCapabilities,
    Implementation,
    InputResponseRequestParams,
    ListToolsResult,
    LoggingMessageNotificationParams,
    Model,
    RequestParams,
    Tool,
)
from .bindings import Bindings
from .questions import ForwardedQuestions, Questions, without_own_meta
from .rounds import ASKING, MAX_ROUNDS

logger = peer_logger("trio_mcp.relay")

STEP: Final = 100
"""Items of a list that are taken in before other tasks have a turn."""

SUBSCRIBED_WITHIN: Final = 5.0
"""Seconds that a call waits for the server to agree to the subscriptions before it."""

PAGED: Final = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
Send: TypeAlias = Callable[[str, RequestParams, OnProgress | None], Awaitable[Model]]
"""Sends the request of a call to the server and returns its result."""


def ignore(_call: Call) -> None:
    pass


def of_client(host: ClientCapabilities) -> ClientCapabilities:
    """Return what a proxy declares to its server for a host."""
    # It follows tasks for the host, whose revision has other ones or none.
    return ClientCapabilities(
        roots=host.roots, sampling=host.sampling, elicitation=host.elicitation, extensions={TASKS_EXTENSION: {}}
    )


class ServerClient:
    """The client of the server for one host, or for several hosts that are indistinguishable.

    Args:
        channel: opens the connection to the server.
        declared: what the host can do.
        info: who the host is.
        bindings: for hosts with a principal.
        mode: the server's era, as `Client.connect` takes it.
        name: what errors call the server.
        passes_unknown: notifications of the server that no revision has are passed on.
        last_id: of the requests that were sent over the connection before.

    Attributes:
        announce: called with each change that the server reports.
        notify_host: called with each notification that no revision has, and that comes while no call runs.
    """

    def __init__(
        self,
        channel: AbstractAsyncContextManager[AnyChannel],
        questions: Questions,
        declared: ClientCapabilities,
        info: Implementation | None,
        bindings: Bindings,
        *,
        mode: str = "auto",
        name: str = "the server",
        passes_unknown: bool = False,
        last_id: int = 0,
    ) -> None:
        self.announce: Callable[[Change], None] = lambda _change: None
        self.notify_host: Callable[[str, Model], None] = lambda _method, _params: None
        self._questions = questions
        self._bindings = bindings
        self._name = name
        self._watched: dict[str, trio.CancelScope] = {}
        self._subscribing = 0
        """Subscriptions that the server has not agreed to yet."""
        self._subscribed = trio.Event()
        options = ClientOptions(
            info=info or Implementation(name="unnamed", version="0"),
            handlers=ForwardedQuestions(declared=of_client(declared), questions=questions),
            on_log=self.on_log,
            on_change=self.on_change,
            log_level="debug",
            mode=mode,
            on_unknown=self.on_unknown if passes_unknown else None,
            unread=Unread.UNKNOWN if passes_unknown else Unread.NONE,
            last_id=last_id,
        )
        self.link = Link(channel, options)
        self._tools = ListedTools(self.link.dropped)
        self.lists = Lists(self.link, options.cache, self._tools)
        tasks = TaskCalls(self.link, self._tools, self.lists.refresh_tools)
        sender = CallSender(self.link, self._tools, self.lists.refresh_tools)
        self._calls = Calls(self.link, options, self._tools, sender, tasks)
        self._sends: dict[str, Send] = {
            **dict.fromkeys(PAGED, self._list),
            "completion/complete": self._request,
            **dict.fromkeys(ASKING, self._call),
        }

    # what the host requests

    def routes(self) -> dict[str, Route]:
        """Return the functions that serve the host's requests, by method."""
        return dict.fromkeys(self._sends, self._route)

    @property
    def unknown(self) -> UnknownMethods:
        """What passes on the messages of the host that no revision has."""
        return UnknownMethods(lambda facts, params: (self._route(facts, params), ignore), self._notify)

    def _notify(self, method: str, params: UnknownParams) -> None:
        """Pass a notification of the host on."""
        try:
            session = self.link.session
        except Disconnected:
            return
        session.pass_on(method, without_own_meta(params))

    def _route(self, facts: RequestFacts, params: Model) -> Plan:
        assert isinstance(params, RequestParams)
        target: object = getattr(params, "name", None) or getattr(params, "uri", None)
        return Plan(partial(self._run, facts.method, params), str(target or facts.method))

    def _run(self, method: str, params: RequestParams, call: Call, place: Actor | Lane) -> Awaitable[Model]:
        return self.run(call, place if isinstance(place, Lane) else Lane(place), method, params)

    async def run(self, call: Call, lane: Lane, method: str, params: RequestParams) -> Model:
        """Send a request for a call of the host, whose lane waits for it, and return the result.

        Raises:
            RemoteProtocolError: the error that the server answered with; or the connection to it has ended.
            McpError: as from the methods of `Client`.
        """
        failure: McpError
        principal = call.facts.principal
        if principal is not None:
            params = self._bindings.call(principal, params)
        # What the call changes is announced to those who have subscribed before it.
        if self._subscribing:
            await self._wait_subscribed()
        try:
            with self._questions.during(call, lane) as running:
                try:
                    send = self._sends.get(method, self._pass)
                    result = await send(method, without_own_meta(params), running.on_progress)
                except McpError as error:
                    failure = error
                else:
                    # What was reported is sent before the reply, also if that is an error.
                    await running.wait_reported()
                    return result if principal is None else self._bindings.returned(principal, result)
                await running.wait_reported()
            raise failure
        except PeerError as error:
            raise RemoteProtocolError(error.message, code=error.code, data=error.data) from None
        except Disconnected as error:
            raise RemoteProtocolError(f"{self._name} has gone: {error}", code=INTERNAL_ERROR) from None

    async def _request(self, method: str, params: RequestParams, _on_progress: OnProgress | None) -> Model:
        return await self.link.request(method, params)

    async def _pass(self, method: str, params: RequestParams, on_progress: OnProgress | None) -> Model:
        """Send a request that no revision has."""
        return await self.link.request(method, params, on_progress=on_progress)

    async def _call(self, method: str, params: RequestParams, on_progress: OnProgress | None) -> Model:
        assert isinstance(params, InputResponseRequestParams)
        options = CallOptions(meta=params.meta, on_progress=on_progress, max_rounds=MAX_ROUNDS)
        return await self._calls.forward(method, params, options)

    async def _list(self, method: str, params: RequestParams, _on_progress: OnProgress | None) -> Model:
        result = await self.link.request(method, params)
        if isinstance(result, ListToolsResult):
            result = result.model_copy(update={"tools": self.learn(result.tools)})
        return result

    def learn(self, tools: Sequence[Tool]) -> list[Tool]:
        """Remember which arguments of listed tools are repeated in headers; return the tools that can be offered."""
        # Without output schemas: the host checks results against them.
        bare = [tool.model_copy(update={"output_schema": None}) for tool in tools]
        known = {tool.name for tool in self._tools.add(bare, self.link.dialect)}
        return [tool for tool in tools if tool.name in known]

    async def learn_in_steps(self, tools: Sequence[Tool]) -> list[Tool]:
        """Learn tools as `learn` does, and let other tasks run in between."""
        found: list[Tool] = []
        for start in range(0, len(tools), STEP):
            found += self.learn(tools[start : start + STEP])
            await trio.lowlevel.checkpoint()
        return found

    # what the server reports

    def on_log(self, entry: LoggingMessageNotificationParams) -> None:
        """Pass a log message on with the call that it most likely belongs to."""
        running = self._questions.latest
        if running is not None:
            running.on_log(entry)

    def on_unknown(self, method: str, params: UnknownParams) -> None:
        """Pass on a notification that no revision has, with the call that it most likely belongs to if one runs."""
        running, own = self._questions.latest, without_own_meta(params)
        if running is not None:
            running.on_unknown(method, own)
        else:
            self.notify_host(method, own)

    def on_change(self, change: Change) -> None:
        """Announce a change to the host."""
        self.announce(change)

    def watch_lists(self) -> None:
        """Subscribe to the changes of the server's lists; a legacy server announces them anyway."""
        if not self.link.dialect.can_reopen:
            changes = self.list_changes()
            if changes.wanted.wire():
                self._watch(changes)

    def list_changes(self) -> Changes:
        """Return the changes of all lists that the server announces, to subscribe to."""
        wanted = filter_of([kind for kind in LISTS if self._announces(kind)])
        return Changes(lambda: self.link.dialect.listeners, wanted)

    def watch(self, uri: str) -> None:
        """Subscribe at the server to a resource, once."""
        if uri not in self._watched:
            scope = self._watched[uri] = trio.CancelScope()
            self._watch(Changes(lambda: self.link.dialect.listeners, filter_of([], [uri])), scope)

    def unwatch(self, uri: str) -> None:
        """End the subscription to a resource, if there is one."""
        scope = self._watched.pop(uri, None)
        if scope is not None:
            scope.cancel()

    def _announces(self, kind: str) -> bool:
        capability = getattr(self.link.facts.capabilities, kind, None)
        return bool(getattr(capability, "list_changed", None))

    def _watch(self, changes: Changes, scope: trio.CancelScope | None = None) -> None:
        self._subscribing += 1
        self.link.start(self._read_changes, changes, scope or trio.CancelScope())

    async def _read_changes(self, changes: Changes, scope: trio.CancelScope) -> None:
        """Keep a subscription until the scope is cancelled, and call `on_change` with its changes."""
        begun = False
        try:
            with scope:
                async with changes:
                    self._note_subscribed()
                    begun = True
                    async for _ in changes:
                        pass
        except McpError as error:
            logger.info("changes of the server do not reach the host: %s", error)
        finally:
            if not begun:
                self._note_subscribed()

    def _note_subscribed(self) -> None:
        self._subscribing -= 1
        self._subscribed.set()
        self._subscribed = trio.Event()

    async def _wait_subscribed(self) -> None:
        with trio.move_on_after(SUBSCRIBED_WITHIN):
            while self._subscribing:
                await self._subscribed.wait()
