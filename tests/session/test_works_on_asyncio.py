"""Every public async function of a client or a server works on both loops, or says why not."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest
from on_asyncio import BOUND

import trio_mcp
from trio_mcp import Client, ClientGroup, ClientTask, GroupServer, Server
from trio_mcp.client import Changes, TaskChanges
from trio_mcp.compose import ModelTools
from trio_mcp.session.event_loop import iterates_on_asyncio, works_on_asyncio
from trio_mcp_transports import http
from trio_mcp_transports.http import McpApp, McpApps

CLASSES = [Client, ClientTask, TaskChanges, Changes, ClientGroup, GroupServer, ModelTools, Server, McpApp, McpApps]
FUNCTIONS = [trio_mcp.run_agent, trio_mcp.list_model_tools]
SPECIAL = {"__aenter__", "__aexit__", "__anext__", "__call__"}

TRIO_ONLY = {
    "Client.__aenter__": "awaits open, which works on both",
    "Client.__aexit__": "awaits aclose",
    "ClientGroup.__aenter__": "awaits open",
    "ClientGroup.__aexit__": "awaits aclose",
    "ModelTools.run_anthropic": "awaits run",
    "ModelTools.run_openai": "awaits run",
    "ModelTools.run_openai_responses": "awaits run",
    "Server.serve": "awaits serve_over, which works on both",
    "Client.new_channel": "for authors of transports, which run on Trio",
    "Server.open_service": "for transports",
    "Server.serve_channel": "for transports",
    "Server.__call__": "only fails, with advice",
    "McpApp.__call__": "asks where it runs, and serves there",
    "McpApp.lifespan": "asks where it runs",
    "McpApp.serving": "what the lifespan serves with, on Trio",
    "McpApp.respond": "on Trio, as every request is served",
    "McpApp.serve_forwarded": "for links between workers, on Trio",
    "McpApp.hand_over": "for a worker that is replaced, on Trio",
    "McpApp.stop": "for the first request of a mounted application, on Trio",
    "McpApps.__call__": "asks where it runs, and serves there",
    "McpApps.lifespan": "asks where it runs",
    "McpApps.serving": "what the lifespan serves with, on Trio",
    "McpApps.respond": "on Trio, as every request is served",
    "McpApps.stop": "for the first request of a mounted application, on Trio",
}

DECORATED = {works_on_asyncio(lambda: None).__code__, iterates_on_asyncio(lambda: None).__code__}


def methods() -> Iterator[tuple[str, object]]:
    for owner in CLASSES:
        for name in dir(owner):
            if not name.startswith("_") or name in SPECIAL:
                found = inspect.getattr_static(owner, name)
                yield f"{owner.__name__}.{name}", getattr(found, "__func__", found)
    yield from ((function.__name__, function) for function in FUNCTIONS)


def layers(function: object) -> Iterator[object]:
    while function is not None:
        yield function
        function = getattr(function, "__wrapped__", None)


def is_async(function: object) -> bool:
    inner = [*layers(function)][-1]
    returned = str(getattr(inner, "__annotations__", {}).get("return", ""))
    return inspect.iscoroutinefunction(inner) or "Async" in returned


def works(function: object) -> bool:
    return any(getattr(layer, "__code__", None) in DECORATED for layer in layers(function))


def test_every_public_async_function_works_on_both_loops_or_is_listed() -> None:
    found = {name: works(function) for name, function in methods() if is_async(function)}
    assert {name for name, works in found.items() if not works} == TRIO_ONLY.keys()
    assert len(found) > 50


def test_a_function_has_one_signature_for_both_loops() -> None:
    for name, function in methods():
        if works(function):
            inner = [*layers(function)][-1]
            assert inspect.signature(function) == inspect.signature(inner), name
            assert inspect.getdoc(function) == inspect.getdoc(inner), name


def test_no_public_name_says_on_which_loop_it_works() -> None:
    """There is no second API."""
    names = {name for package in (trio_mcp, http) for name in package.__all__}
    names |= {name for name, function in methods() if is_async(function)}
    assert {name for name in names if "async" in name.lower() or "trio" in name.lower()} == set()


def test_a_coroutine_made_outside_of_both_loops_runs_on_the_one_that_awaits_it() -> None:
    coroutine = Client.connect(Server("s")).open()

    async def main() -> None:
        client = await coroutine
        await client.ping()
        await client.aclose()

    asyncio.run(asyncio.wait_for(main(), BOUND))


def test_without_an_event_loop_the_error_names_the_cause() -> None:
    coroutine = Client.connect(Server("s")).open()
    with pytest.raises(Exception, match="unknown async library"):
        coroutine.send(None)
