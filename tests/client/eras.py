"""Openings of a scripted server that offers everything, one for each era."""

from __future__ import annotations

from scripted import Wire, discovered, initialized

from trio_mcp.protocol.jsonrpc import METHOD_NOT_FOUND

OFFERS = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}


async def modern(wire: Wire) -> None:
    await wire.respond(await wire.request("server/discover"), {**discovered(), "capabilities": OFFERS})


async def legacy(wire: Wire) -> None:
    await wire.fail(await wire.request("server/discover"), METHOD_NOT_FOUND)
    await wire.respond(await wire.request("initialize"), {**initialized(), "capabilities": OFFERS})
    await wire.notification("notifications/initialized")
