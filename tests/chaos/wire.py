"""Requests in plain JSON over HTTP, as a client of either era sends them; whatever is not an answer is `Lost`."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, NamedTuple

import httpx2
from peer import modern_meta
from wire_terms import headers_of

from chaos.story import Story

Json = dict[str, Any]

UNTOLD: Final = {"jsonrpc", "_meta", "requestedSchema", "capabilities", "clientInfo", "serverInfo", "supportedVersions"}
MOST_TOLD: Final = 48
"""Characters of one word, such as a `requestState`."""

ACCEPT: Final = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


class Lost(Exception):
    """No answer came: the process is not there, the connection broke, or it took too long."""


class Answer(NamedTuple):
    """A response without a stream."""

    status: int
    headers: Mapping[str, str]
    message: Json


class Event(NamedTuple):
    """An event of a stream; `id` is empty if it has none, and `message` None for one that only has an id."""

    id: str
    message: Json | None


class Wire:
    """Sends the requests of one operation.

    Args:
        client: with a time limit for each wait.
    """

    def __init__(self, client: httpx2.AsyncClient, story: Story) -> None:
        self._client = client
        self._story = story
        self._ids = itertools.count(1)

    async def modern(self, port: int, method: str, params: Json, capabilities: Json, meta: Json | None = None) -> Json:
        """Send a modern request; return its response. Raises `Lost`."""
        params = {**params, "_meta": modern_meta(capabilities, meta)}
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        self._story.tell(f"-> {port} {method} {brief(params)} {brief(meta or {})}")
        sent = self._sent(port, "POST", headers_of(method, params), message)
        async with sent as response, aclosing(events_of(response)) as events:
            async for _, found in events:
                if found is not None and found.get("id") == message["id"] and "method" not in found:
                    self._story.tell(f"<- {port} {response.status_code} {brief(found)}")
                    return found
        raise self._lost(port, "the response ended without an answer")

    async def post(self, port: int, message: Json, headers: Mapping[str, str]) -> Answer:
        """Send a legacy message that is answered without a stream. Raises `Lost`."""
        self._story.tell(f"-> {port} {brief(message)}")
        async with self._sent(port, "POST", headers, message) as response:
            found = [each async for _, each in events_of(response) if each is not None]
            self._story.tell(f"<- {port} {response.status_code} {brief(found)}")
            return Answer(response.status_code, response.headers, found[-1] if found else {})

    @asynccontextmanager
    async def stream(
        self, port: int, verb: str, headers: Mapping[str, str], message: Json | None = None
    ) -> AsyncIterator[tuple[int, AsyncIterator[Event]]]:
        """Send a legacy request that may be answered with a stream; yield the status and the events. Raises `Lost`."""
        self._story.tell(f"-> {port} {verb} {brief(message)} {headers.get('Last-Event-ID', '')}")
        async with self._sent(port, verb, headers, message) as response:
            async with aclosing(self._told(port, response)) as received:
                yield response.status_code, received

    async def _told(self, port: int, response: httpx2.Response) -> AsyncGenerator[Event, None]:
        async with aclosing(events_of(response)) as events:
            async for event in events:
                self._story.tell(f"<- {port} {response.status_code} {event.id} {brief(event.message)}")
                yield event
        self._story.tell(f"<- {port} {response.status_code} the end")

    @asynccontextmanager
    async def _sent(
        self, port: int, verb: str, headers: Mapping[str, str], message: Json | None
    ) -> AsyncIterator[httpx2.Response]:
        url, body = f"http://127.0.0.1:{port}/mcp", None if message is None else json.dumps(message)
        try:
            async with self._client.stream(verb, url, content=body, headers={**ACCEPT, **headers}) as response:
                yield response
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise self._lost(port, repr(error)) from None

    def _lost(self, port: int, why: str) -> Lost:
        self._story.tell(f"<- {port} lost: {why}")
        return Lost(why)


def brief(value: object) -> str:
    """Return JSON for a story: without what is the same in all messages, and with the ends of long texts only."""
    return json.dumps(shortened(value))


def shortened(value: object) -> object:
    match value:
        case dict():
            return {name: shortened(each) for name, each in value.items() if name not in UNTOLD}
        case list():
            return [shortened(each) for each in value]
        case str() if len(value) > MOST_TOLD:
            return f"{value[:8]}...{value[-24:]}" if " " not in value else value
        case _:
            return value


async def events_of(response: httpx2.Response) -> AsyncGenerator[Event, None]:
    """Yield what a response says: one message, or the events of a stream."""
    if "text/event-stream" not in response.headers.get("content-type", ""):
        data = await response.aread()
        try:
            yield Event("", json.loads(data))
        except ValueError:
            yield Event("", {"text": data.decode(errors="replace")} if data else None)
        return
    event_id, data_lines = "", list[str]()
    async for line in response.aiter_lines():
        name, _, value = line.partition(":")
        if name == "id":
            event_id = value.strip()
        elif name == "data":
            data_lines.append(value.strip())
        elif not line and (event_id or data_lines):
            text = "\n".join(data_lines)
            yield Event(event_id, json.loads(text) if text else None)
            event_id, data_lines = "", []
