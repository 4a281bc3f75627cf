"""Mistakes that type checkers find: `make lint` fails if one of them is no longer found."""

from __future__ import annotations

from trio_mcp import Client, ClientGroup


def misspelled() -> None:
    ClientGroup({"a": ["b"]}, headres={})  # type: ignore[call-arg]
    Client.connect("https://example.org/mcp", headres={})  # type: ignore[call-arg]


def wrong_types() -> None:
    ClientGroup({"a": 7})  # type: ignore[dict-item]
    ClientGroup({"a": ["b"]}, log_level="loud")  # type: ignore[arg-type]
    Client.connect("https://example.org/mcp", headers=7)  # type: ignore[arg-type]


async def keywords_for_arguments(client: Client, group: ClientGroup) -> None:
    await client.call_tool("send", subject="x")  # type: ignore[call-overload]
    await client.get_prompt("send", subject="x")  # type: ignore[call-arg]
    await group.call_tool("mail_send", subject="x")  # type: ignore[call-overload]
