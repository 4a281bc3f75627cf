"""The peer of most tests: a client of one `ServerSession`, in plain JSON and in either era, without a channel.

Sending is a plain function here, as `ServerSession.receive` is one.

`talk_to` opens a server's service and gives a `Talk`; further ones on the same service are other connections to it. A
`Legacy` or `Modern` player drives one call through its questions, so that one test can speak for both eras.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio
from peer import BOUND, EVERYTHING, Json, Reader, arrived, encoded, hello, json_of, modern_meta
from trio.testing import wait_all_tasks_blocked
from wire_oracle import WireOracle
from wire_terms import LOG_LEVEL, NEWEST_LEGACY

from trio_mcp.server import Server
from trio_mcp.session import Envelope, Peer, ReplyTarget, Service, ServiceOptions, make_session
from trio_mcp.types import RequestId


class Talk(Reader):
    """One connection: what is sent is a dict, what comes back is a dict."""

    def __init__(
        self,
        service: Service,
        *,
        principal: str | None = None,
        shared_channel: bool = True,
        account: Any = None,
    ) -> None:
        self.service = service
        self.account = account
        self.session = make_session(service, shared_channel=shared_channel, account=account)
        self.outbox = service.open_outbox(Peer(principal))
        self.listeners: dict[RequestId, ReplyTarget] = {}
        self.peer = Peer(principal)
        self._ids: Iterator[int] = itertools.count(1)
        self._received: deque[Json] = deque()
        self._params: dict[RequestId, Json] = {}
        """Of the requests that were sent, for the retries of those that end with a round."""
        self._oracle = WireOracle()
        if shared_channel:  # as on a pipe, where everything goes one way
            self.session.attach(self.outbox)

    # out

    def send_bytes(self, data: bytes) -> Any:
        """Send bytes as they are; returns what the session says to them."""
        return self.session.receive(arrived(data, self.peer), self.outbox)

    def send(self, message: Json) -> None:
        self._oracle.sent(message)
        listener = self.send_bytes(encoded(message))
        if isinstance(listener, ReplyTarget):
            self.listeners[listener.request_id] = listener

    def send_batch(self, *messages: Json) -> Any:
        """Send several messages in one array; returns what the session says to it."""
        for message in messages:
            self._oracle.sent(message)
        return self.send_bytes(encoded(*messages, batch=True))

    def request(self, method: str, params: Json | None = None, *, id: RequestId | None = None) -> RequestId:
        request_id = next(self._ids) if id is None else id
        self._params[request_id] = params or {}
        self.send({"id": request_id, "method": method, "params": params or {}})
        return request_id

    def ask(self, method: str, capabilities: Json = EVERYTHING, meta: Json | None = None, **params: Any) -> RequestId:
        """A request of a modern client."""
        return self.request(method, {**params, "_meta": modern_meta(capabilities, meta)})

    def notify(self, method: str, params: Json | None = None) -> None:
        self.send({"method": method, "params": params or {}})

    def answer(self, question: Json, result: Json) -> None:
        """Answer a request of the server."""
        self.send({"id": question["id"], "result": result})

    def cancel(self, request_id: RequestId, reason: str = "not needed") -> None:
        self.notify("notifications/cancelled", {"requestId": request_id, "reason": reason})

    def call(
        self, name: str, arguments: Json | None = None, *, id: RequestId | None = None, meta: Json | None = None
    ) -> RequestId:
        """Call a tool as a legacy client does."""
        params = {"name": name, "arguments": arguments or {}, **({"_meta": meta} if meta else {})}
        return self.request("tools/call", params, id=id)

    def leg(
        self,
        name: str,
        arguments: Json | None = None,
        *,
        state: str | None = None,
        answers: Json | None = None,
        id: RequestId | None = None,
        meta: Json | None = None,
        capabilities: Json = EVERYTHING,
    ) -> RequestId:
        """Call a tool, or carry a call forward, as a modern client does."""
        params: Json = {"name": name, "arguments": arguments or {}, "_meta": modern_meta(capabilities, meta)}
        if state is not None:
            params["requestState"] = state
        if answers is not None:
            params["inputResponses"] = answers
        return self.request("tools/call", params, id=id)

    async def initialize(self, version: str = NEWEST_LEGACY, capabilities: Json = EVERYTHING) -> Json:
        """Open a legacy session; returns the server's answer."""
        result = await self.result(self.request("initialize", hello(version, capabilities)))
        self.notify("notifications/initialized")
        return result

    # in

    async def receive(self) -> Json:
        """The next message, whatever it is."""
        while not self._received:
            with trio.fail_after(BOUND):
                self._take(await self.outbox.take())
        return self._received.popleft()

    def waiting(self) -> list[Json]:
        """Every message that has come and was not received yet."""
        self._take(self.outbox.take_nowait())
        messages = list(self._received)
        self._received.clear()
        return messages

    async def round(self, request_id: RequestId) -> Round:
        """The questions that end a leg."""
        result = await self.result(request_id)
        assert result.get("resultType") == "input_required", result
        return Round(self, self._params[request_id], result)

    async def silence(self) -> None:
        """Nothing comes, and nothing more will happen by itself."""
        await wait_all_tasks_blocked()
        assert self.waiting() == []

    def _take(self, envelopes: list[Envelope]) -> None:
        assert envelopes or not self.outbox.closed, "the outbox was closed"
        for envelope in envelopes:
            message = json_of(envelope.message)
            self._oracle.heard(message)
            self._received.append(message)


class Round:
    """An interim result: the questions by key, the state to send back, and the leg that carries the call on."""

    def __init__(self, talk: Talk, params: Json, result: Json) -> None:
        self.questions: Mapping[str, Json] = result["inputRequests"]
        self.state: str = result["requestState"]
        self._talk = talk
        self._params = params

    def retry(self, *values: Any, **more: Any) -> RequestId:
        """Send the next leg of the tool: an accepted value for each question, in order; returns its id. See `leg`."""
        answers = {key: accept(value=value) for key, value in zip(self.questions, values, strict=True)}
        return self.leg(answers, **more)

    def leg(self, answers: Json | None, *, talk: Talk | None = None, **more: Any) -> RequestId:
        """Send the next leg of the tool with these answers, over another connection if there is one; returns its id."""
        name, arguments = self._params["name"], self._params["arguments"]
        return (talk or self._talk).leg(name, arguments, state=self.state, answers=answers, **more)

    @property
    def keys(self) -> list[str]:
        return list(self.questions)

    @property
    def key(self) -> str:
        """The key of its only question."""
        (key,) = self.questions
        return key

    @property
    def message(self) -> str:
        """The text of its only question."""
        return self.questions[self.key]["params"]["message"]


class Legacy:
    """One call of a legacy client, question by question."""

    era = "legacy"

    def __init__(self, talk: Talk, capabilities: Json) -> None:
        self.talk = talk
        self._capabilities = capabilities
        self._opened = False
        self._id: RequestId = 0
        self._question: Json = {}

    async def call(self, name: str, arguments: Json | None = None, meta: Json | None = None) -> RequestId:
        if not self._opened:
            await self.talk.initialize(capabilities=self._capabilities)
            self._opened = True
        self._id = self.talk.call(name, arguments, meta=meta)
        return self._id

    async def question(self) -> Json:
        """The params of the next question."""
        message = await self.talk.receive()
        assert "method" in message, message
        self._question = message
        return message["params"]

    async def answer(self, result: Json) -> None:
        self.talk.answer(self._question, result)

    async def result(self) -> Json:
        return await self.talk.result(self._id)

    async def text(self) -> str:
        return await self.talk.text(self._id)

    async def text_of(self, name: str, arguments: Json | None = None, meta: Json | None = None) -> str:
        """Make a call; return the text of its successful result."""
        await self.call(name, arguments, meta)
        return await self.text()

    async def error_of(self, name: str, arguments: Json | None = None, meta: Json | None = None) -> Json:
        """Make a call; return its error."""
        await self.call(name, arguments, meta)
        return await self.error()

    async def failure(self) -> str:
        return await self.talk.failure(self._id)

    async def error(self) -> Json:
        return await self.talk.error(self._id)


class Modern(Legacy):
    """The same for a modern client."""

    era = "modern"

    async def call(self, name: str, arguments: Json | None = None, meta: Json | None = None) -> RequestId:
        self._more: Json = {"meta": meta, "capabilities": self._capabilities}
        self._id = self.talk.leg(name, arguments, **self._more)
        return self._id

    async def question(self) -> Json:
        self._round = await self.talk.round(self._id)
        return self._round.questions[self._round.key].get("params", {})

    async def answer(self, result: Json) -> None:
        self._id = self._round.leg({self._round.key: result}, **self._more)


ERAS = (Legacy, Modern)


def offering(*tools: Callable[..., Any], **options: Any) -> Server:
    """Return a server with these functions as tools, and with these `ServiceOptions`."""
    server = Server("tester", version="1", options=ServiceOptions(**options))
    for tool in tools:
        server.tool(tool)
    return server


@asynccontextmanager
async def talk_to(server: Server, *, principal: str | None = None) -> AsyncIterator[Talk]:
    async with server.open_service() as service:
        talk = Talk(service, principal=principal)
        with talk.outbox:
            yield talk


@asynccontextmanager
async def session_with(
    server: Server, version: str = NEWEST_LEGACY, capabilities: Json = EVERYTHING
) -> AsyncIterator[Talk]:
    """A legacy session that is open."""
    async with talk_to(server) as talk:
        await talk.initialize(version, capabilities)
        yield talk


@asynccontextmanager
async def play(server: Server, era: type[Legacy], capabilities: Json = EVERYTHING) -> AsyncIterator[Legacy]:
    """A call that is to be made in this era."""
    async with talk_to(server) as talk:
        yield era(talk, capabilities)


def log_level(level: str) -> Json:
    """A part of a modern request's `_meta`."""
    return {LOG_LEVEL: level}


def accept(**content: Any) -> Json:
    return {"action": "accept", "content": content}


DECLINE: Json = {"action": "decline"}
DISMISS: Json = {"action": "cancel"}
