"""Our client against the official Python SDK: resources, prompts, completion, changes, and streams that end early."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from processes import HERE, child_environment, over_http, over_stdio

from trio_mcp import Client, PeerError
from trio_mcp.client import Change
from trio_mcp.types import BlobResourceContents, PromptReference, ResourceTemplateReference, TextContent

pytest.importorskip("mcp", reason="the official SDK is not installed")
pytest.importorskip("uvicorn", reason="uvicorn, which serves the official SDK over HTTP, is not installed")

LIMIT = 20.0
SCRIPT = HERE / "official_library.py"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with over_http([sys.executable, str(SCRIPT), "http", "0"]) as url:
        yield url


@asynccontextmanager
async def connected(target: Any, mode: str, **more: Any) -> AsyncIterator[Client]:
    options = {} if isinstance(target, str) else {"env": child_environment()}
    with trio.fail_after(LIMIT):
        async with Client.connect(target, mode=mode, **options, **more) as client:
            yield client


@pytest.fixture(params=["stdio", "http"])
def target(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("url") if request.param == "http" else over_stdio(SCRIPT)


@pytest.fixture(params=["legacy", "2025-06-18", "2026-07-28"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_what_a_library_holds_is_listed_read_rendered_and_completed(target: Any, mode: str) -> None:
    async with connected(target, mode) as client:
        assert {resource.uri for resource in await client.list_resources()} == {"config://app", "blob://logo"}
        assert [each.uri_template async for each in client.iter_resource_templates()] == ["users://{user_id}/profile"]
        [prompt] = await client.list_prompts()
        assert (prompt.name, [argument.name for argument in prompt.arguments or []]) == ("review", ["code", "language"])
        [profile] = (await client.read_resource("users://ada/profile")).contents
        assert (profile.uri, getattr(profile, "text", None)) == ("users://ada/profile", "profile of ada")
        [logo] = (await client.read_resource("blob://logo")).contents
        assert isinstance(logo, BlobResourceContents)
        rendered = await client.get_prompt("review", {"code": "1 + 1"})
        assert rendered.messages[0].content == TextContent(text="Review this python: 1 + 1")
        with pytest.raises(PeerError):
            await client.get_prompt("nothing")
        with pytest.raises(PeerError):
            await client.read_resource("config://nothing")
        found = await client.complete(PromptReference(name="review"), "language", "py", context={"code": "!"})
        assert found.values == ["python!", "pyret!"]
        template = ResourceTemplateReference(uri="users://{user_id}/profile")
        assert (await client.complete(template, "user_id", "")).values == ["ada", "bob"]


async def test_changes_reach_a_modern_listener(target: Any) -> None:
    async with connected(target, "2026-07-28") as client:
        async with client.listen(tools=True, uris=["config://app"]) as changes:
            assert changes.honoured.tools_list_changed
            assert changes.honoured.resource_subscriptions == ["config://app"]
            await client.call_tool("change")
            assert await changes.__anext__() == Change("tools")
            assert await changes.__anext__() == Change("updated", "config://app")
        await client.call_tool("change")  # nobody listens any more


async def test_changes_of_lists_reach_a_client_of_the_handshake_era(target: Any) -> None:
    heard = trio.Event()

    def on_change(change: Change) -> None:
        assert change == Change("tools")
        heard.set()

    async with connected(target, "legacy", on_change=on_change) as client:
        await client.call_tool("change")
        await heard.wait()


async def test_a_response_that_ends_early_is_gone_on_with_and_nothing_is_lost(url: str) -> None:
    seen: list[float] = []
    async with connected(url, "legacy") as client:
        result = await client.call_tool("nap", on_progress=lambda report: seen.append(report.progress))
        assert result.text == "rested"
        assert (await client.call_tool("nap")).text == "rested"
    assert seen == [1, 2]


async def test_a_session_that_the_server_forgot_is_opened_again(url: str) -> None:
    import httpx2

    async with connected(url, "legacy") as client:
        await client.call_tool("change")
        channel = client._link.session._channel  # noqa: SLF001  to end its session behind the client's back
        before = dict(channel._connection.session)  # noqa: SLF001
        async with httpx2.AsyncClient() as http:
            assert (await http.delete(url, headers=before)).status_code == 200
        assert (await client.call_tool("change")).text == "changed"
        assert channel._connection.session["mcp-session-id"] != before["mcp-session-id"]  # noqa: SLF001
