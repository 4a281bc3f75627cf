"""Hosts of recorded conversations: they write JSON, answer questions by a table, and remember what they receive."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import trio
from asgi_peer import JSON_HEADERS, AsgiPeer, AsgiSocket, Reply
from relaying import Json, Line
from wire_terms import CLIENT_CAPABILITIES, CLIENT_INFO, MODERN, PROTOCOL_VERSION

from trio_mcp_transports.http import McpApp

SECONDS: Final = 5.0
"""How long a message is waited for."""


class Talk:
    """One host. A kind of connection defines `send` and `open`.

    Attributes:
        heard: the messages that it has received, by the stream on which they came.
    """

    def __init__(self, era: str, version: str, capabilities: Json, answers: Mapping[str, Json]) -> None:
        self.era, self.version, self.capabilities, self.answers = era, version, capabilities, answers
        self.heard: dict[str, list[Any]] = {}
        self.nursery: trio.Nursery
        self._number = 0
        self._replies: dict[object, Json] = {}
        self._news = trio.Condition()

    async def send(self, message: Any) -> None:
        raise NotImplementedError

    async def take(self, message: Any, stream: str = "") -> None:
        """Record a message of the server; answer a question."""
        self.heard.setdefault(stream, []).append(message)
        for each in message if isinstance(message, list) else [message]:
            if "method" in each and "id" in each:
                answer = self.answers.get(each["method"])
                error = {"code": -1, "message": "the host does not know", "data": {"x": 1}}
                members: Json = {"error": error} if answer is None else {"result": answer}
                self.nursery.start_soon(self.send, {"jsonrpc": "2.0", "id": each["id"], **members})
        async with self._news:
            for each in message if isinstance(message, list) else [message]:
                if "method" not in each:
                    self._replies[each.get("id")] = each
            self._news.notify_all()

    async def heard_of(self, text: str) -> None:
        """Wait until a message with this text has come."""
        with trio.fail_after(SECONDS):
            async with self._news:
                while text not in json.dumps(self.heard):
                    await self._news.wait()

    async def reply(self, request_id: object) -> Json:
        with trio.fail_after(SECONDS):
            async with self._news:
                while request_id not in self._replies:
                    await self._news.wait()
                return self._replies[request_id]

    def message(self, method: str, params: Json | None = None) -> Json:
        """Return a request of this host's era with the next id."""
        self._number += 1
        whole: Json = {"jsonrpc": "2.0", "id": self._number, "method": method}
        if self.era == "modern":
            own = (params or {}).get("_meta", {})
            info = {"name": "host", "version": "1"}
            said = {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: self.capabilities, CLIENT_INFO: info, **own}
            return {**whole, "params": {**(params or {}), "_meta": said}}
        return whole if params is None else {**whole, "params": params}

    async def request(self, method: str, params: Json | None = None) -> Json:
        """Send a request and return its reply; answer the questions of its rounds."""
        message = self.message(method, params)
        await self.send(message)
        reply = await self.reply(message["id"])
        result = reply.get("result", {})
        if result.get("resultType") != "input_required":
            return reply
        asked = result["inputRequests"].items()
        given = {key: self.answers[question["method"]] for key, question in asked}
        return await self.request(
            method, {**(params or {}), "inputResponses": given, "requestState": result["requestState"]}
        )

    async def call(self, name: str, arguments: Json | None = None, **more: Any) -> Json:
        return await self.request("tools/call", {"name": name, "arguments": arguments or {}, **more})

    async def notify(self, method: str, params: Json | None = None) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})

    async def open(self) -> None:
        """Open a session, or discover the server."""
        if self.era == "modern":
            await self.request("server/discover", {})
            return
        info = {"name": "host", "version": "1", "x-info": 1}
        hello = {"protocolVersion": self.version, "capabilities": self.capabilities, "clientInfo": info}
        await self.request("initialize", hello)
        await self.notify("notifications/initialized")

    async def leave(self) -> None:
        """End the connection."""


class PipeTalk(Talk):
    """A host on a pipe."""

    def __init__(self, line: Line, *args: Any) -> None:
        super().__init__(*args)
        self._line = line
        self._writing = trio.Lock()

    async def send(self, message: Any) -> None:
        async with self._writing:
            await self._line.send(message)

    async def read(self) -> None:
        while True:
            try:
                message = await self._line.next()
            except EOFError:
                return
            await self.take(message)

    async def leave(self) -> None:
        await self._line.leave()


class SocketTalk(Talk):
    """A host on a WebSocket, without a server in between."""

    def __init__(self, app: McpApp, *args: Any) -> None:
        super().__init__(*args)
        self._socket = AsgiSocket(app, take=self._sent)
        self.run = self._socket.run

    async def send(self, message: Any) -> None:
        self._socket.put(json.dumps(message))

    async def _sent(self, message: Any) -> None:
        await trio.lowlevel.checkpoint()
        if message["type"] == "websocket.send":
            await self.take(json.loads(message["text"]))

    async def leave(self) -> None:
        self._socket.leave()


class HttpTalk(Talk):
    """A host over HTTP; a legacy one reads the stream of its session."""

    def __init__(self, peer: AsgiPeer, *args: Any) -> None:
        super().__init__(*args)
        self._peer = peer
        self._session: dict[str, str] = {}
        self._open: dict[object, Reply] = {}

    async def send(self, message: Any) -> None:
        reply = self._peer.start(message, {**JSON_HEADERS, **self._headers(message)})
        first = message[0] if isinstance(message, list) else message
        if "method" in first and "id" in first:
            self._open[first["id"]] = reply
            self.nursery.start_soon(self._follow, reply, str(first["id"]))
        else:
            await reply.end()

    def _headers(self, message: Any) -> dict[str, str]:
        if self.era == "legacy":
            return self._session
        params = message.get("params", {})
        name = params.get("name") or params.get("uri") or params.get("taskId")
        named = {"mcp-name": name} if name else {}
        return {"mcp-protocol-version": MODERN, "mcp-method": message.get("method", ""), **named}

    async def take(self, message: Any, stream: str = "") -> None:
        if self.era == "legacy" and not self._session and "result" in message:
            session_id = self._open[message["id"]].headers["mcp-session-id"]
            self._session = {"mcp-session-id": session_id, "mcp-protocol-version": self.version}
            own = {**JSON_HEADERS, **self._session, "accept": "text/event-stream"}
            self.nursery.start_soon(self._follow, self._peer.start(b"", own, method="GET"), "session")
        await super().take(message, stream)

    async def _follow(self, reply: Reply, stream: str) -> None:
        count = 0
        while True:
            events = reply.messages
            for event in events[count:]:
                await self.take(event, stream)
            count = len(events)
            async with reply._said:  # noqa: SLF001  it wakes for each part
                if len(reply.messages) > count:
                    continue
                if reply.ended.is_set():
                    return
                await reply._said.wait()  # noqa: SLF001

    async def cancel(self, request_id: object) -> None:
        """Leave the response to a modern request, which cancels it."""
        self._open[request_id].gone.set()
