"""A client that sends exactly what a rule tells it to, in plain JSON, over any channel and in either era."""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

import trio

from ...protocol.jsonrpc import Answers, Malformed, RequestId, Unanswered, dump, parse
from ...protocol.revisions import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION, REVISIONS, Era
from ...session import AnyChannel, Envelope
from ...types import JsonObject, JsonValue
from .stage import BOUND

EVERYTHING: JsonObject = {"elicitation": {"form": {}}, "sampling": {}, "roots": {"listChanged": True}}
"""Every capability that a client can declare."""

INFO: JsonObject = {"name": "contract", "version": "1"}


class Peer:
    """The client's end of one connection, which sends and receives JSON objects.

    Messages that arrive are kept in order until a rule asks for them: `receive` takes the next one; `reply` takes the reply to
    one request, and keeps what came before it.
    """

    def __init__(self, channel: AnyChannel, revision: str, capabilities: JsonObject) -> None:
        self.channel = channel
        self.revision = revision
        self.modern = REVISIONS[revision].era is Era.MODERN
        self.capabilities = capabilities
        self._ids = itertools.count(1)
        self._kept: deque[JsonObject] = deque()

    async def open(self) -> JsonObject:
        """Perform the handshake, or discover a modern server; return the result."""
        if self.modern:
            return await self.result(await self.request("server/discover"))
        params: JsonObject = {"protocolVersion": self.revision, "capabilities": self.capabilities, "clientInfo": INFO}
        result = await self.result(await self.request("initialize", params))
        await self.notify("notifications/initialized")
        return result

    # out

    async def send(self, message: JsonObject, about: RequestId | None = None) -> None:
        """Send one message, with `jsonrpc` added. `about` is the id of the client's request that it belongs to."""
        parsed = parse(json.dumps({"jsonrpc": "2.0", **message}).encode())
        assert not isinstance(parsed, Malformed), parsed
        with trio.fail_after(BOUND):
            await self.channel.send(Envelope(parsed, about))

    async def request(
        self,
        method: str,
        params: JsonObject | None = None,
        *,
        id: RequestId | None = None,
        meta: JsonObject | None = None,
        progress: RequestId | None = None,
        logs: str | None = None,
    ) -> RequestId:
        """Send a request and return its id.

        Args:
            meta: additional members of its `_meta`.
            progress: its progress token.
            logs: the lowest level of log messages to receive (modern era).
        """
        request_id = next(self._ids) if id is None else id
        sent: JsonObject = {**(self._stamp(logs) if self.modern else {}), **(meta or {})}
        if progress is not None:
            sent["progressToken"] = progress
        body: JsonObject = {**(params or {}), **({"_meta": sent} if sent else {})}
        await self.send({"id": request_id, "method": method, "params": body})
        return request_id

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        await self.send({"method": method, "params": params or {}})

    async def cancel(self, request_id: RequestId) -> None:
        """Cancel a request in the way of its transport."""
        params: JsonObject = {"requestId": request_id, "reason": "not needed"}
        await self.send({"method": "notifications/cancelled", "params": params}, request_id)

    async def answer(self, question_id: RequestId, result: JsonObject) -> None:
        """Answer a request of the server (legacy era)."""
        await self.send({"id": question_id, "result": result})

    async def refuse(self, question_id: RequestId, code: int, message: str) -> None:
        """Answer a request of the server with an error (legacy era)."""
        await self.send({"id": question_id, "error": {"code": code, "message": message}})

    async def call(
        self,
        tool: str,
        arguments: JsonObject | None = None,
        *,
        progress: RequestId | None = None,
        logs: str | None = None,
    ) -> Call:
        """Call a tool; return the call, which goes through its questions in either era. See `request` for the options."""
        call = Call(self, tool, arguments or {}, progress, logs)
        await call.send()
        return call

    # in

    async def receive(self) -> JsonObject:
        """Return the next message of any kind.

        Raises:
            trio.EndOfChannel: the connection has ended.
        """
        return self._kept.popleft() if self._kept else await self._next()

    async def first(self, wanted: Callable[[JsonObject], bool]) -> JsonObject:
        """Return the first message that matches, and keep those that come before it."""
        for message in self._kept:
            if wanted(message):
                self._kept.remove(message)
                return message
        while not wanted(message := await self._next()):
            self._kept.append(message)
        return message

    async def reply(self, request_id: RequestId) -> JsonObject:
        """Return the reply to a request, and keep the messages that come before it."""
        return await self.first(lambda message: is_reply(message, request_id))

    async def result(self, request_id: RequestId) -> JsonObject:
        reply = await self.reply(request_id)
        result = reply.get("result")
        assert isinstance(result, dict), f"expected a result, got {reply}"
        return result

    async def error(self, request_id: RequestId) -> JsonObject:
        reply = await self.reply(request_id)
        error = reply.get("error")
        assert isinstance(error, dict), f"expected an error, got {reply}"
        return error

    async def refusal(self, request_id: RequestId) -> str:
        """Return why a request was rejected: the text of the error, or of the transport if that rejected it."""
        reply = await self.reply(request_id)
        if "refused" in reply:
            return str(reply["refused"])
        error = reply.get("error")
        assert isinstance(error, dict), f"expected a refusal, got {reply}"
        return str(error["message"])

    async def message(self, method: str) -> JsonObject:
        """Return the next message of this method, and keep those that come before it."""
        return await self.first(lambda message: message.get("method") == method)

    async def asked(self) -> JsonObject:
        """Return the next request of the server, and keep the messages that come before it."""
        return await self.first(lambda message: "method" in message and "id" in message)

    async def ended(self) -> list[JsonObject]:
        """Wait until the server has closed the connection; return the messages that were not taken before."""
        try:
            while True:
                self._kept.append(await self._next())
        except trio.EndOfChannel:
            return self.unread()

    def unread(self) -> list[JsonObject]:
        """Take all the messages that have arrived, in order."""
        messages = list(self._kept)
        self._kept.clear()
        return messages

    async def ping(self) -> None:
        """Check that the server answers, and so has seen everything that was sent before.

        The modern era has no ping, so there this lists the tools.
        """
        reply = await self.reply(await self.request("tools/list" if self.modern else "ping"))
        assert "result" in reply, reply

    async def _next(self) -> JsonObject:
        with trio.fail_after(BOUND):
            message = (await self.channel.receive()).message
        if isinstance(message, Unanswered):
            # The server is busy, or shutting down: it has rejected the request.
            is_rejected = message.error is not None
            return {"id": message.id, **({"refused": str(message.error)} if is_rejected else {"unanswered": True})}
        if isinstance(message, Malformed) and message.answers is not None:
            return {"id": message.answers, "refused": str(message.error)}
        assert not isinstance(message, Malformed), f"the server sent something malformed: {message}"
        assert not isinstance(message, Answers)
        return json.loads(dump(message))  # type: ignore[no-any-return]

    def _stamp(self, logs: str | None) -> JsonObject:
        level: JsonObject = {} if logs is None else {LOG_LEVEL: logs}
        return {PROTOCOL_VERSION: self.revision, CLIENT_CAPABILITIES: self.capabilities, CLIENT_INFO: INFO, **level}


class Question:
    """One question of a call, in either era.

    Attributes:
        key: the id of its request (legacy era), or its key in the round (modern era).
    """

    def __init__(self, key: RequestId, method: str, params: JsonObject) -> None:
        self.key = key
        self.method = method
        self.params = params


class Call:
    """One call of a tool, from its first request to its result. In the modern era each round is a request."""

    def __init__(
        self, peer: Peer, tool: str, arguments: JsonObject, progress: RequestId | None = None, logs: str | None = None
    ) -> None:
        self._peer = peer
        self._tool = tool
        self._arguments = arguments
        self.progress = progress
        """The progress token of the next leg."""
        self._logs = logs
        self._asked: deque[Question] = deque()
        self._answers: JsonObject = {}
        self.state: JsonValue = None
        """The `requestState` of the last round (modern era)."""
        self.id: RequestId = 0
        """The id of its last request."""

    async def send(self, **carried: JsonValue) -> None:
        params: JsonObject = {"name": self._tool, "arguments": self._arguments, **carried}
        self.id = await self._peer.request("tools/call", params, progress=self.progress, logs=self._logs)

    async def question(self) -> Question:
        """Return the next question; in the modern era, the questions of one round come one after the other.

        In the legacy era a question does not say which call it belongs to, so only one call should ask at a time.
        """
        if not self._asked:
            if self._peer.modern:
                await self._next_round()
            else:
                self._asked.append(as_question(await self._next_request()))
        return self._asked.popleft()

    async def answer(self, question: Question, result: JsonObject) -> None:
        """Answer a question. In the modern era the next leg starts when all questions of the round are answered."""
        if not self._peer.modern:
            await self._peer.answer(question.key, result)
            return
        self._answers[str(question.key)] = result
        if not self._asked:
            answers, self._answers = self._answers, {}
            await self.send(inputResponses=answers, requestState=self.state)

    async def round(self) -> dict[str, Question]:
        """Return all the questions of the next round, by key (modern era)."""
        await self._next_round()
        asked, self._asked = self._asked, deque()
        return {str(question.key): question for question in asked}

    async def go_on(self, answers: JsonObject) -> None:
        """Send the next leg of a modern call, with these answers by key."""
        await self.send(inputResponses=answers, requestState=self.state)

    async def result(self) -> JsonObject:
        return await self._peer.result(self.id)

    async def error(self) -> JsonObject:
        return await self._peer.error(self.id)

    async def text(self) -> str:
        """Return the text of its successful result."""
        result = await self.result()
        assert not result.get("isError"), result
        return text_of(result)

    async def failure(self) -> str:
        """Return the text of its error result."""
        result = await self.result()
        assert result.get("isError"), result
        return text_of(result)

    async def lacks(self, **required: JsonValue) -> None:
        """Check that its reply names the capabilities that the client would have to declare.

        It is an error result, which a model reads; in the modern era an error with a specific code, and with the capabilities.
        """
        if not self._peer.modern:
            text = await self.failure()
            assert all(name in text for name in required), text
            return
        error = await self.error()
        assert error["code"] == -32021, error
        assert error["data"] == {"requiredCapabilities": required}, error

    async def cancel(self) -> None:
        await self._peer.cancel(self.id)

    def replies_in(self, messages: Iterable[JsonObject]) -> list[JsonObject]:
        """Return the replies to it among these messages."""
        return [message for message in messages if is_reply(message, self.id) and "unanswered" not in message]

    async def _next_round(self) -> None:
        result = await self.result()
        requests = result.get("inputRequests")
        assert isinstance(requests, dict), f"expected questions, got {result}"
        self.state = result.get("requestState")
        for key, request in requests.items():
            assert isinstance(request, dict)
            self._asked.append(as_question({"id": key, **request}))

    async def _next_request(self) -> JsonObject:
        return await self._peer.asked()


@asynccontextmanager
async def opened(channel: AnyChannel, revision: str, capabilities: JsonObject) -> AsyncIterator[Peer]:
    """Open a peer on this channel, handshake included."""
    peer = Peer(channel, revision, capabilities)
    await peer.open()
    yield peer


def as_question(request: Mapping[str, JsonValue]) -> Question:
    key, method, params = request.get("id"), request.get("method"), request.get("params", {})
    assert isinstance(key, str | int)
    assert isinstance(method, str)
    assert isinstance(params, dict)
    return Question(key, method, params)


def is_reply(message: JsonObject, request_id: RequestId) -> bool:
    return "method" not in message and message.get("id") == request_id


def accepted(**content: JsonValue) -> JsonObject:
    """Return the answer of a user who filled in a form."""
    return {"action": "accept", "content": content}


def text_of(result: JsonObject) -> str:
    """Return the text blocks of a tool's result, joined."""
    content = result.get("content")
    assert isinstance(content, list), result
    return "".join(str(block["text"]) for block in content if isinstance(block, dict) and block.get("type") == "text")
