"""A server whose lists are whatever a test says, also what none of ours would list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import trio
from peer import Json, json_of, message_of
from wire_terms import METHOD_NOT_FOUND

from trio_mcp.session import Envelope
from trio_mcp.types import JsonObject

KINDS = {"tool": "tools", "prompt": "prompts", "resource": "resources", "resource template": "resourceTemplates"}
"""The member of a list that has the items of a kind."""
MEMBERS = {"tool": "name", "prompt": "name", "resource": "uri", "resource template": "uriTemplate"}
"""The member that identifies an item of a kind."""
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}

Connection: TypeAlias = trio.abc.Channel[Envelope]


def item(kind: str, key: str, description: str = "") -> JsonObject:
    """Return an item as a server lists it."""
    found: JsonObject = {"name": "x", MEMBERS[kind]: key, "description": description}
    return {**found, "inputSchema": {"type": "object"}} if kind == "tool" else found


class ListingServer:
    """A legacy server that lists items of one kind, and answers each call with its own name and that of the item.

    Attributes:
        seconds: how long it takes to list.
        channels: the open connections, the oldest first.
    """

    def __init__(self, name: str, kind: str, keys: Sequence[str | JsonObject], seconds: float = 0.0) -> None:
        self.name = name
        self.seconds = seconds
        self._kind = kind
        self.channels: list[Connection] = []
        self.items = self._made(keys)

    async def change(self, keys: Sequence[str | JsonObject], to: Sequence[Connection] | None = None) -> None:
        """List other items, and notify the clients, or those of some connections."""
        self.items = self._made(keys)
        plural = self._kind.split(" ")[-1].replace("template", "resource") + "s"
        await self.notify(f"notifications/{plural}/list_changed", to)

    async def notify(self, method: str, to: Sequence[Connection] | None = None, **params: Any) -> None:
        for channel in self.channels if to is None else to:
            await channel.send(Envelope(message_of({"method": method, "params": params})))

    async def serve_channel(self, channel: Connection) -> None:
        self.channels.append(channel)
        try:
            async for envelope in channel:
                request = json_of(envelope.message)
                if "method" in request and "id" in request:
                    answer = {"id": request["id"], **await self._answer(request["method"], request.get("params", {}))}
                    await channel.send(Envelope(message_of(answer), about=request["id"]))
        finally:
            self.channels.remove(channel)

    async def _answer(self, method: str, params: Json) -> Json:
        result = await self._result(method, params)
        return {"error": {"code": METHOD_NOT_FOUND, "message": "unknown"}} if result is None else {"result": result}

    async def _result(self, method: str, params: Any) -> JsonObject | None:
        if method == "initialize":
            announced = {"listChanged": True, "subscribe": True}
            declared = {"tools": announced, "prompts": announced, "resources": announced}
            info: JsonObject = {"name": self.name, "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": declared, "serverInfo": info}  # type: ignore[dict-item]
        if method in LISTS:
            await trio.sleep(self.seconds)
            return {LISTS[method]: self.items if LISTS[method] == KINDS[self._kind] else []}  # type: ignore[dict-item]
        text = f"{self.name}: {params.get('name', params.get('uri'))}"
        return {
            "ping": {},
            "resources/subscribe": {},
            "tools/call": {"content": [{"type": "text", "text": text}]},
            "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]},
            "resources/read": {"contents": [{"uri": params.get("uri"), "text": text}]},
        }.get(method)  # type: ignore[return-value]

    def _made(self, keys: Sequence[str | JsonObject]) -> list[JsonObject]:
        return [item(self._kind, key) if isinstance(key, str) else key for key in keys]
