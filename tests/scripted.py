"""A server for tests that says exactly what the test tells it to: the other end of a `Client`, in plain JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import fields
from typing import Any

import outcome
import pytest
import trio
from ends import memory_ends
from peer import BOUND, ChannelPeer, Json
from trio.testing import wait_all_tasks_blocked
from wire_terms import METHOD_NOT_FOUND, MODERN, NEWEST_LEGACY, SERVER_INFO, TASKS_EXTENSION

from trio_mcp.client import Client, ClientOptions, Handlers, decline
from trio_mcp.session import AnyChannel
from trio_mcp.types import Implementation

OFFERS: Json = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
}
FORM: Json = {"mode": "form", "message": "Which?", "requestedSchema": {"type": "object", "properties": {}}}
SAMPLE: Json = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}
FORM_QUESTION: Json = {"method": "elicitation/create", "params": FORM}
SAMPLE_QUESTION: Json = {"method": "sampling/createMessage", "params": SAMPLE}
ROOTS_QUESTION: Json = {"method": "roots/list", "params": {}}
FOLLOWS_TASKS: Json = {"extensions": {TASKS_EXTENSION: {}}}
TASKS_OF: Json = {"elicitation": {"elicitation": {"create": {}}}, "sampling": {"sampling": {"createMessage": {}}}}


def runs_tasks(declared: Json) -> Json:
    """What a legacy client declares that runs the questions of these capabilities as tasks."""
    requests = {name: each for kind, found in TASKS_OF.items() if kind in declared for name, each in found.items()}
    return {"tasks": {"list": {}, "cancel": {}, "requests": requests}} if requests else {}


"""What every modern request of a client declares."""
HINTS: Json = {"ttlMs": 0, "cacheScope": "private"}
"""What a modern result says of how long it may be kept."""


class Wire(ChannelPeer):
    """The server's end."""

    async def request(self, method: str) -> Json:
        """Return the next message, which is this request of the client."""
        return await self.question(method)

    async def answer(self, request_id: int | str) -> Json:
        """Return the next message, which answers our request."""
        return await self.reply_to(request_id)

    async def reply(self, method: str, result: Json) -> Json:
        """Respond to the next message, which is this request; return the request."""
        request = await self.request(method)
        await self.respond(request, result)
        return request

    async def refuse(self, method: str, code: int, message: str = "no", data: Json | None = None) -> Json:
        """Do the same with an error."""
        request = await self.request(method)
        await self.fail(request, code, message, data)
        return request

    async def ask(self, request_id: int | str, method: str, params: Json) -> None:
        """Send a request to the client."""
        await self.send({"id": request_id, "method": method, "params": params})

    async def answer_to(self, question: Json) -> Json:
        """Ask, and return the message that answers."""
        await self.send({"id": "q", **question})
        return await self.answer("q")

    async def report(self, request: Json, progress: float) -> None:
        """Send progress of this request."""
        token = request["params"]["_meta"]["progressToken"]
        await self.notify("notifications/progress", {"progressToken": token, "progress": progress})


class Pending:
    """A call of the client that runs in a separate task."""

    def __init__(self) -> None:
        self._over = trio.Event()
        self._outcome: outcome.Outcome[Any] | None = None

    async def run(self, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...], options: Json) -> None:
        async def call() -> Any:
            return await fn(*args, **options)

        self._outcome = await outcome.acapture(call)
        self._over.set()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    async def result(self) -> Any:
        """What the call returned, or what it raised."""
        with trio.fail_after(BOUND):
            await self._over.wait()
        assert self._outcome is not None
        return self._outcome.unwrap()

    async def fails(self, kind: Any, match: str | None = None) -> Any:
        """Wait until it has raised an error of this kind, and return that."""
        with pytest.raises(kind, match=match) as raised:
            await self.result()
        return raised.value


Start = Callable[..., Pending]


def living() -> int:
    """How many tasks there are."""
    return trio.lowlevel.current_statistics().tasks_living


@asynccontextmanager
async def client_over(
    channel: AbstractAsyncContextManager[AnyChannel], **given: Any
) -> AsyncIterator[tuple[Client, Start]]:
    """A client that is not open yet, with these handlers and options, and a way to run its methods in tasks.

    It is closed at the end and leaves no task.
    """
    before = living()
    handlers = {each.name: given.pop(each.name) for each in fields(Handlers) if each.name in given}
    given = {"log_level": "info", "probe_timeout": 5, "wait_if_busy": 0, **given}
    options = ClientOptions(handlers=Handlers(**handlers), info=Implementation(name="tester", version="1"), **given)
    client = Client(channel, options)
    async with trio.open_nursery() as nursery:

        def start(fn: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Pending:
            pending = Pending()
            nursery.start_soon(pending.run, fn, args, options)
            return pending

        yield client, start
        with trio.CancelScope(shield=True):
            await client.aclose()
        nursery.cancel_scope.cancel()
    await wait_all_tasks_blocked()
    assert living() == before


@asynccontextmanager
async def unopened(**options: Any) -> AsyncIterator[tuple[Client, Wire, Start]]:
    """The same over a channel in memory, with the server that the client will meet."""
    ours, theirs = memory_ends()

    @asynccontextmanager
    async def channel() -> AsyncIterator[AnyChannel]:
        async with ours:
            yield ours

    async with client_over(channel(), **options) as (client, start):
        yield client, Wire(theirs), start


@asynccontextmanager
async def opening_client(**options: Any) -> AsyncIterator[tuple[Client, Wire, Pending]]:
    """A client that opens in a separate task, the server, and what becomes of the opening."""
    async with unopened(**options) as (client, wire, start):
        yield client, wire, start(client.open)


@asynccontextmanager
async def conversation(
    opening: Callable[[Wire], Awaitable[None]], **options: Any
) -> AsyncIterator[tuple[Client, Wire, Start]]:
    """The same with a client that is open."""
    async with unopened(**options) as (client, wire, start):
        opened = start(client.open)
        await opening(wire)
        await opened.result()
        yield client, wire, start


@asynccontextmanager
async def calling(
    opening: Callable[[Wire], Awaitable[None]], handlers: Json | None = None, **options: Any
) -> AsyncIterator[tuple[Wire, Pending, Json]]:
    """The server's end of a conversation in which a tool is being called, the call, and the request that makes it."""
    async with conversation(opening, **(handlers or {})) as (client, wire, start):
        call = start(client.call_tool, "book", {"to": "Lisbon"}, **options)
        yield wire, call, await wire.request("tools/call")


async def as_modern(wire: Wire) -> None:
    await wire.reply("server/discover", discovered())


async def as_legacy(wire: Wire, version: str = NEWEST_LEGACY, capabilities: Json = OFFERS) -> None:
    await wire.refuse("server/discover", METHOD_NOT_FOUND)
    await handshake(wire, version, capabilities)


async def handshake(wire: Wire, version: str = NEWEST_LEGACY, capabilities: Json = OFFERS) -> Json:
    """Answer `initialize`; returns its params."""
    request = await wire.reply("initialize", initialized(version, capabilities))
    await wire.notification("notifications/initialized")
    params: Json = request["params"]
    return params


def discovered(*versions: str) -> Json:
    return {
        "resultType": "complete",
        "supportedVersions": list(versions or (MODERN,)),
        "capabilities": OFFERS,
        "instructions": "Be kind.",
        **HINTS,
        "_meta": {SERVER_INFO: {"name": "scripted", "version": "2"}},
    }


def initialized(version: str = NEWEST_LEGACY, capabilities: Json = OFFERS) -> Json:
    return {
        "protocolVersion": version,
        "capabilities": capabilities,
        "serverInfo": {"name": "scripted", "version": "2"},
        "instructions": "Be kind.",
    }


async def answered(wire: Any, call: Pending, method: str, result: Json) -> tuple[Any, Any]:
    """Reply to the request of a call; the request, and what the call returns."""
    request = await wire.reply(method, result)
    return request, await call.result()


async def works(client: Client, wire: Any, start: Start) -> None:
    """The connection is as good as ever: a call over it gets its answer."""
    _, result = await answered(wire, start(client.call_tool, "fine"), "tools/call", said("fine"))
    assert result.text == "fine"


async def list_tools(client: Client, wire: Any, start: Start, *pages: Json) -> list[str]:
    """The names of the tools that the client lists; the server is asked for exactly these pages."""
    listing = start(client.list_tools)
    for page in pages:
        await wire.reply("tools/list", {"resultType": "complete", **page})
    return [tool.name for tool in await listing.result()]


def said(text: str) -> Json:
    """The result of a tool that said something."""
    return {"content": [{"type": "text", "text": text}]}


def asking(*keys: str, state: str | None = None) -> Json:
    """An interim result with a form under each key."""
    return interim(dict.fromkeys(keys, FORM_QUESTION), state)


def interim(questions: Json, state: str | None = None) -> Json:
    """An interim result with these questions."""
    asked = {"inputRequests": questions} if questions else {}
    return {"resultType": "input_required", **asked, **({} if state is None else {"requestState": state})}


class Gathering:
    """A handler that declines when a given number of questions wait for their answers."""

    def __init__(self, size: int) -> None:
        self._missing = size
        self._complete = trio.Event()

    async def __call__(self, _params: object) -> Any:
        self._missing -= 1
        if self._missing == 0:
            self._complete.set()
        await self._complete.wait()
        return decline()


class Thinker:
    """A handler that never returns, and says what became of it."""

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.cancelled = False

    async def __call__(self, _params: object) -> Any:
        self.asked.set()
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled = True
