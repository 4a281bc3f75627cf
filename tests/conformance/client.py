"""Plays the client in one scenario of the official conformance suite: `client.py URL`, and exit with 0 when all went well.

The suite names the scenario, the revision that its server speaks, and what the scenario gives to know, in
MCP_CONFORMANCE_SCENARIO, MCP_CONFORMANCE_PROTOCOL_VERSION (its older build does not say) and MCP_CONFORMANCE_CONTEXT.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import trio
from logging_in import REFUSALS, auth_for

from trio_mcp.client import Client, accept, accept_defaults
from trio_mcp.errors import AuthorizationError, McpError
from trio_mcp.types import ElicitRequestFormParams, ElicitResult, JsonObject, JsonValue

Play: TypeAlias = Callable[[Client], Awaitable[None]]

LIMIT = 25.0
"""Seconds for everything; the suite waits for 30, and then leaves the process alone."""

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"

STAND_INS: Mapping[str, JsonValue] = {
    "integer": 0,
    "number": 0,
    "boolean": False,
    "object": {},
    "array": [],
    "null": None,
}
"""A value of each type, for arguments that mean nothing here; text is the rest."""


def main() -> None:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    play = SCENARIOS.get(scenario, call_every_tool if scenario.startswith("auth/") else None)
    if play is None:
        sys.exit(f"there is nothing here that plays the scenario {scenario!r}")
    refused = REFUSALS.get(scenario)
    try:
        trio.run(connected, sys.argv[-1], play)
    except McpError as error:
        kind = error.kind if isinstance(error, AuthorizationError) else "rejected"
        if kind != refused:
            raise
    else:
        assert refused is None, f"the client did not refuse with {refused}"


async def connected(url: str, play: Play) -> None:
    """Do what the scenario is about, with a client that has a user, a model and folders."""
    revision = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", HANDSHAKE)
    mode = "auto" if revision == MODERN else revision
    with trio.fail_after(LIMIT):
        async with Client.connect(
            url,
            mode=mode,
            auth=auth_for(os.environ["MCP_CONFORMANCE_SCENARIO"], context()),
            on_elicit=answered,
            on_sample=lambda _request: "So be it.",
            on_roots=list,
        ) as client:
            await play(client)


def context() -> JsonObject:
    """What the scenario gives to know; empty if it gives nothing."""
    found = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    assert isinstance(found, dict)
    return found


def answered(question: ElicitRequestFormParams) -> ElicitResult:
    """What the user says: yes where it is asked for, and else what the form proposes."""
    if "confirmed" in question.requested_schema.properties:
        return accept(confirmed=True)
    return accept_defaults(question)


def calls(*names: str, **arguments: JsonValue) -> Play:
    """List the tools, and call these with the arguments."""

    async def play(client: Client) -> None:
        await client.list_tools()
        for name in names:
            await call(client, name, arguments)

    return play


async def call_every_tool(client: Client) -> None:
    for tool in await client.list_tools():
        await call(client, tool.name, stand_ins(tool.input_schema))


async def use_everything(client: Client) -> None:
    await call_every_tool(client)
    for resource in await client.list_resources():
        await client.read_resource(resource.uri)
    for prompt in await client.list_prompts():
        await client.get_prompt(prompt.name)


async def call_what_the_context_says(client: Client) -> None:
    await client.list_tools()
    for said in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        await call(client, said["name"], said["arguments"])


async def send_a_schema_back(client: Client) -> None:
    schemas = {tool.name: tool.input_schema for tool in await client.list_tools()}
    await call(client, "json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]})


async def answer_in_rounds(client: Client) -> None:
    await client.list_tools()
    async with trio.open_nursery() as nursery:  # side by side, so that what belongs to one could reach another
        for name in ("echo_state", "unrelated", "no_state", "no_result_type"):
            nursery.start_soon(call, client, f"test_mrtr_{name}")


async def call(client: Client, name: str, arguments: JsonObject | None = None) -> None:
    """Call a tool; what it answers has to be a result, and not an error."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, f"{name}: {result.text}"


def stand_ins(schema: JsonObject) -> JsonObject:
    """Arguments that are there because the schema wants them."""
    properties, required = schema.get("properties"), schema.get("required")
    assert isinstance(properties, dict | None)
    assert isinstance(required, list | None)
    kinds = {str(name): (properties or {}).get(str(name)) for name in required or ()}
    return {name: STAND_INS.get(str(kind.get("type")), "x") for name, kind in kinds.items() if isinstance(kind, dict)}


SCENARIOS: Mapping[str, Play] = {
    "elicitation-sep1034-client-defaults": calls("test_client_elicitation_defaults"),
    "http-custom-headers": call_what_the_context_says,
    "http-invalid-tool-headers": call_every_tool,
    "http-standard-headers": use_everything,
    "initialize": calls(),
    "json-schema-2020-12-preservation": send_a_schema_back,
    "json-schema-ref-no-deref": calls(),
    "request-metadata": calls("add_numbers", a=5, b=3),
    "sep-2322-client-request-state": answer_in_rounds,
    "sse-retry": calls("test_reconnection"),
    "tools_call": calls("add_numbers", a=5, b=3),
}

if __name__ == "__main__":
    main()
