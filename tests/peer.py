"""The test's end of a connection: it sends exactly the messages that the test writes, and waits for those that must come.

Everything here is plain JSON, in either era and over any connection. `Reader` has the ways to wait, for a client as for a
server; it needs `receive` alone. `Peer` adds what both ends send, `ClientPeer` what a client sends; a kind of connection
defines `send`, `receive` and `close`, as `ChannelPeer` does. `talk.Talk` is a client of a `ServerSession` without a channel.
"""

from __future__ import annotations

import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import trio
from wire_terms import CLIENT_CAPABILITIES, MODERN, NEWEST_LEGACY, PROTOCOL_VERSION

from trio_mcp.protocol.json_limits import DEFAULT_LIMITS
from trio_mcp.protocol.jsonrpc import Answers, Batch, Malformed, Message, dump, parse
from trio_mcp.session import ANONYMOUS, AnyChannel, Envelope, Peer as Sender, Received, Sent, received
from trio_mcp.types import RequestId

Json = dict[str, Any]

EVERYTHING: Json = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
LIMITS = DEFAULT_LIMITS
"""Of the messages that arrive at a server."""
BOUND = 50
"""Seconds that any wait may take; virtual ones where the clock is."""


class Reader(ABC):
    """Waits for messages. What comes has to be what is waited for: no message is skipped."""

    @abstractmethod
    async def receive(self) -> Any:
        """Return the next message, a list if it is an array. Raise `trio.EndOfChannel` if the connection has ended."""

    async def reply_to(self, request_id: RequestId) -> Json:
        """Return the next message, which is the reply to this request."""
        message = await self.receive()
        assert message.get("id") == request_id, f"expected the reply to {request_id!r}, got {message}"
        assert "method" not in message, f"expected the reply to {request_id!r}, got {message}"
        return message

    async def result(self, request_id: RequestId) -> Json:
        message = await self.reply_to(request_id)
        assert "result" in message, f"expected a result, got {message}"
        return message["result"]

    async def error(self, request_id: RequestId) -> Json:
        message = await self.reply_to(request_id)
        assert "error" in message, f"expected an error, got {message}"
        return message["error"]

    async def text(self, request_id: RequestId) -> str:
        """Return the text of a tool's successful result."""
        result = await self.result(request_id)
        assert not result.get("isError"), result
        return text_of(result)

    async def failure(self, request_id: RequestId) -> str:
        """Return the text of a tool's error result."""
        result = await self.result(request_id)
        assert result.get("isError"), result
        return text_of(result)

    async def question(self, method: str = "elicitation/create") -> Json:
        """Return the next message, which is this request."""
        message = await self.receive()
        assert message.get("method") == method, message
        assert "id" in message, message
        return message

    async def notification(self, method: str) -> Json:
        """Return the params of the next message, which is this notification."""
        message = await self.receive()
        assert message.get("method") == method, message
        assert "id" not in message, message
        return message.get("params", {})

    async def answers(self) -> dict[RequestId | None, Json]:
        """Return the next message, which is an array of answers: its members by id."""
        array = await self.receive()
        assert isinstance(array, list), array
        by_id = {answer.get("id"): answer for answer in array}
        assert len(by_id) == len(array), array
        return by_id

    async def silence(self, seconds: float = 1) -> None:
        """Raise if a message comes within `seconds`."""
        with trio.move_on_after(seconds):
            raise AssertionError(f"expected silence, got {await self.receive()}")


class Peer(Reader):
    """One end of a connection. A kind of connection defines `send`, `receive` and `close`."""

    @abstractmethod
    async def send(self, message: Json) -> None:
        """Send one message; `jsonrpc` is added."""

    @abstractmethod
    async def close(self) -> None:
        """Close this end."""

    async def notify(self, method: str, params: Json | None = None) -> None:
        await self.send({"method": method, "params": params or {}})

    async def respond(self, request: Json, result: Json) -> None:
        """Answer a request of the other end."""
        await self.send({"id": request["id"], "result": result})

    async def fail(self, request: Json, code: int, message: str = "no", data: Json | None = None) -> None:
        """Answer a request of the other end with an error."""
        error = {"code": code, "message": message, **({"data": data} if data is not None else {})}
        await self.send({"id": request["id"], "error": error})


class ClientPeer(Peer):
    """A client's end. Its requests are numbered from 1."""

    def __init__(self) -> None:
        super().__init__()
        self._ids = itertools.count(1)

    async def request(self, method: str, params: Json | None = None, *, id: RequestId | None = None) -> RequestId:
        """Send a request as it is written, as a legacy client does; return its id."""
        request_id = next(self._ids) if id is None else id
        await self.send({"id": request_id, "method": method, "params": params or {}})
        return request_id

    async def ask(self, method: str, capabilities: Json = EVERYTHING, **params: Any) -> RequestId:
        """Send a request as a modern client does."""
        return await self.request(method, {**params, "_meta": modern_meta(capabilities)})

    async def call(self, name: str, arguments: Json | None = None, *, id: RequestId | None = None) -> RequestId:
        """Call a tool as a legacy client does."""
        return await self.request("tools/call", {"name": name, "arguments": arguments or {}}, id=id)

    async def leg(self, name: str, arguments: Json | None = None, **carried: Any) -> RequestId:
        """Call a tool as a modern client does, or carry a call forward."""
        return await self.ask("tools/call", name=name, arguments=arguments or {}, **carried)

    async def cancel(self, request_id: RequestId) -> None:
        await self.notify("notifications/cancelled", {"requestId": request_id, "reason": "not needed"})

    async def initialize(self, version: str = NEWEST_LEGACY, capabilities: Json = EVERYTHING) -> Json:
        """Open a legacy session; return the server's answer."""
        result = await self.result(await self.request("initialize", hello(version, capabilities)))
        await self.notify("notifications/initialized")
        return result


class ChannelPeer(Peer):
    """One end of a channel."""

    def __init__(self, channel: AnyChannel) -> None:
        super().__init__()
        self.channel = channel

    async def receive(self) -> Any:
        with trio.fail_after(BOUND):
            return json_of((await self.channel.receive()).message)

    async def end(self) -> None:
        """Wait until the other end is closed; nothing may come before that."""
        try:
            raise AssertionError(f"expected the end, got {await self.receive()}")
        except trio.EndOfChannel:
            pass

    async def send(self, message: Json) -> None:
        await self._send(message_of(message))

    async def send_batch(self, *messages: Json) -> None:
        """Send several messages in one array."""
        await self._send(answers_of(*messages))

    async def close(self) -> None:
        await self.channel.aclose()

    async def _send(self, message: Message | Answers) -> None:
        with trio.fail_after(BOUND):
            await self.channel.send(Envelope(message))


class ChannelClient(ChannelPeer, ClientPeer):
    """A client at one end of a channel."""


def arrived(data: bytes, sender: Sender = ANONYMOUS) -> Envelope[Received]:
    """Return what comes out of a channel when these bytes have arrived."""
    return received(data, LIMITS, sender)


def message_of(message: Json) -> Any:
    """Return a message as channels take and give it."""
    return parse(encoded(message))


def answers_of(*messages: Json) -> Answers:
    """Return an array of messages, as channels take it."""
    return Answers(tuple(map(message_of, messages)))


def data_of(message: Sent) -> bytes:
    """Return the bytes of a message of a channel."""
    return dump(message)


def json_of(message: Sent | Received) -> Any:
    """Return a message of a channel, or a list of messages, as plain JSON."""
    if isinstance(message, Batch):
        return list(map(json_of, message.messages()))
    assert not is_malformed(message), message
    return json.loads(data_of(message))


def is_malformed(message: Sent | Received) -> bool:
    """Whether bytes came that were no message; their `error` says why."""
    return isinstance(message, Malformed)


def encoded(*messages: Json, batch: bool = False) -> bytes:
    """Return the bytes of a message, or of an array of messages."""
    full = [{"jsonrpc": "2.0", **message} for message in messages]
    return json.dumps(full if batch else full[0]).encode()


def hello(version: str = NEWEST_LEGACY, capabilities: Json = EVERYTHING) -> Json:
    """Return the params of `initialize`."""
    return {"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "tester", "version": "1"}}


def modern_meta(capabilities: Json = EVERYTHING, more: Mapping[str, Any] | None = None) -> Json:
    return {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: capabilities, **(more or {})}


def text_of(result: Json) -> str:
    """Return the text blocks of a tool's result, one after the other."""
    return "".join(block["text"] for block in result["content"] if block["type"] == "text")
