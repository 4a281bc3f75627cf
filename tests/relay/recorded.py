"""The record of conversations through proxies: what each side has received of each, as JSON values.

What differs from run to run is replaced: the ids of requests at the side that gets them, progress tokens, sealed states. A digest
replaces a long text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
import trio.testing
from asgi_peer import AsgiPeer, served
from conversing import HttpTalk, PipeTalk, SocketTalk, Talk
from ends import LineEnd
from far_wire import STATE, FarWire
from proxied_conversations import Conversation
from relaying import Json, Line, Model
from wire_terms import TASKS_EXTENSION

from trio_mcp.relay import Backfill, RelayServer
from trio_mcp.types import ElicitRequestFormParams, ElicitResult
from trio_mcp_transports.http import McpApp, asgi_app

LONG: Final = 200
"""Characters from which on a text is recorded as its digest."""

EVERYTHING: Final[Json] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {"listChanged": True},
    "experimental": {"x-host": {}},
}


# playing


async def answer_form(_form: ElicitRequestFormParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "by the proxy"})


BACKFILLS: Final[dict[str, Callable[[], Backfill]]] = {
    "nothing": Backfill,
    "samples": lambda: Backfill(Model()),
    "forms": lambda: Backfill(on_form=answer_form),
}


def declared(conversation: Conversation) -> Json:
    """Return the capabilities of the host: nothing that the proxy answers."""
    missing = {"samples": "sampling", "forms": "elicitation"}.get(conversation.backfill)
    found = {name: value for name, value in EVERYTHING.items() if name != missing}
    if conversation.backfill == "forms":
        found["elicitation"] = {"url": {}}
    if conversation.host == "modern":
        found["extensions"] = {TASKS_EXTENSION: {}}
    return found


def line_pair() -> tuple[Line, LineEnd]:
    ours, theirs = trio.testing.memory_stream_pair()
    return Line(ours), LineEnd(theirs)


def in_front_of(conversation: Conversation, far: FarWire, nursery: trio.Nursery) -> RelayServer:
    """Return the first of the proxies."""

    @asynccontextmanager
    async def to_far() -> AsyncIterator[LineEnd]:
        line, channel = line_pair()
        nursery.start_soon(far.serve, line)
        async with channel:
            yield channel

    found = RelayServer(to_far, BACKFILLS[conversation.backfill]())
    for _ in range(conversation.hops - 1):
        found = RelayServer(partial(to_next, found), Backfill())
    return found


@asynccontextmanager
async def to_next(behind: RelayServer) -> AsyncIterator[LineEnd]:
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(behind.serve_channel, LineEnd(theirs))
        async with LineEnd(ours) as channel:
            yield channel
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def host_of(conversation: Conversation, relay: RelayServer) -> AsyncIterator[Talk]:
    """Connect a host to a proxy."""
    terms = (conversation.host, conversation.version, declared(conversation), conversation.answers)
    async with AsyncExitStack() as stack:
        peer = None if conversation.wire == "pipe" else await stack.enter_async_context(served(asgi_app(relay)))
        nursery = await stack.enter_async_context(trio.open_nursery())
        talk: Talk
        match conversation.wire, peer:
            case _, None:
                line, channel = line_pair()
                talk = PipeTalk(line, *terms)
                nursery.start_soon(relay.serve_channel, channel)
                nursery.start_soon(talk.read)
            case "websocket", AsgiPeer(app=McpApp() as app):
                talk = SocketTalk(app, *terms)
                nursery.start_soon(talk.run)
            case _, opened:
                talk = HttpTalk(opened, *terms)
        talk.nursery = nursery
        yield talk
        await talk.leave()
        if isinstance(talk, HttpTalk):
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def begun(conversation: Conversation) -> AsyncIterator[tuple[Talk, FarWire]]:
    """Connect the host of a conversation to its server, and open a session."""
    far = FarWire(conversation.server)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            async with host_of(conversation, in_front_of(conversation, far, nursery)) as talk:
                await talk.open()
                yield talk, far
            nursery.cancel_scope.cancel()


async def played(conversation: Conversation) -> Json:
    """Play a conversation, and return what each side has received."""
    async with begun(conversation) as (talk, far):
        await conversation.topic(talk, far)
        await trio.testing.wait_all_tasks_blocked(0.002)
        recorded = {"host": talk.heard, "server": list(far.received)}
    return normal(recorded)


# what differs from run to run


@dataclass
class Names:
    """The names of ids at the server and of progress tokens there, in the order in which they come."""

    ids: dict[object, str] = field(default_factory=dict)
    tokens: dict[object, str] = field(default_factory=dict)

    def id_of(self, value: object) -> str:
        return self.ids.setdefault(value, f"#{len(self.ids) + 1}")

    def token_of(self, value: object) -> str:
        return self.tokens.setdefault(value, f"token {len(self.tokens) + 1}")


def normal(recorded: Json) -> Json:
    names = Names()
    found = json.loads(json.dumps(recorded))
    for message in found["server"]:
        for each in message if isinstance(message, list) else [message]:
            without_ids(each, names)
    asked = Names()
    for messages in found["host"].values():
        for message in messages:
            for each in message if isinstance(message, list) else [message]:
                without_ids(each, asked)
    return {"host": {name: [shortened(each) for each in found["host"][name]] for name in found["host"]}} | {
        "server": [shortened(each) for each in found["server"]]
    }


def without_ids(message: Json, names: Names) -> None:
    """Name the ids of a message as the side that has received it knows them."""
    params = message.get("params", {})
    if "method" in message and "id" in message:
        message["id"] = names.id_of(message["id"])
        meta = params.get("_meta", {})
        if isinstance(meta, dict) and "progressToken" in meta:
            meta["progressToken"] = names.token_of(meta["progressToken"])
    if "requestId" in params:
        params["requestId"] = names.id_of(params["requestId"])


def shortened(value: Any) -> Any:
    """Return a value with the digests of its long texts."""
    if isinstance(value, dict):
        return {name: sealed(name, each) or shortened(each) for name, each in value.items()}
    if isinstance(value, list):
        # The answers of an array come in any order (JSON-RPC 2.0, 6).
        items = [shortened(each) for each in value]
        return (
            sorted(items, key=json.dumps)
            if all(isinstance(each, dict) and "jsonrpc" in each for each in items)
            else items
        )
    if isinstance(value, str) and len(value) >= LONG:
        return f"{len(value)} characters {hashlib.sha256(value.encode()).hexdigest()[:16]}"
    return value


def sealed(name: str, value: Any) -> str | None:
    """Return what stands for a value that is another one in each run; None for any other."""
    if name == "requestState" and isinstance(value, str) and value != STATE:
        return "a sealed state"
    return "of this run" if name == "instance" else None


# the record


RECORD: Final = Path(__file__).with_name("conversations.json")


def packed(recorded: Mapping[str, Json]) -> str:
    """Return recorded conversations as the text of `RECORD`: each message once, a line each."""
    numbers: dict[str, int] = {}

    def number_of(message: Any) -> int:
        return numbers.setdefault(json.dumps(message, ensure_ascii=False, sort_keys=True), len(numbers))

    titles = {
        title: {
            "host": {stream: [*map(number_of, messages)] for stream, messages in each["host"].items()},
            "server": [*map(number_of, each["server"])],
        }
        for title, each in recorded.items()
    }
    lines = [f"{json.dumps(title)}: {json.dumps(each, sort_keys=True)}" for title, each in titles.items()]
    return '{"messages": [\n' + ",\n".join(numbers) + '\n], "conversations": {\n' + ",\n".join(lines) + "\n}}\n"


def unpacked(text: str) -> dict[str, Json]:
    """Return the recorded conversations by their titles."""
    whole = json.loads(text)
    messages = whole["messages"]
    return {
        title: {
            "host": {stream: [messages[number] for number in numbers] for stream, numbers in each["host"].items()},
            "server": [messages[number] for number in each["server"]],
        }
        for title, each in whole["conversations"].items()
    }
