"""docs/troubleshooting.md quotes messages as they are: their fixed parts are in the source, and the frequent ones are raised."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from pages import Page, main, sources
from pydantic import BaseModel
from trio.testing import MockClock

from trio_mcp import Client, Context, Disconnected, HttpOptions, PeerError, Server, ServiceOptions, SyncContext
from trio_mcp.testing import MockClient, Never
from trio_mcp_transports.http import asgi_app

TEXT = Page("troubleshooting").text
ENTRIES = re.findall(r"^### (.*)$", TEXT, re.MULTILINE)
QUOTES = [quote for entry in ENTRIES for quote in re.findall(r"`([^`]+)`", entry) if " " in quote or "…" in quote]
OTHERS = ("trio._highlevel_open_tcp_stream", "asyncio.events", "click.exceptions", "_pytest.python", "trio._core._run")
"""Modules of others that raise some of the messages."""
FOREIGN = {
    "Connection closed": "Claude Desktop",
    "Server disconnected": "Claude Desktop",
    "spawn": "Node",
    "ENOENT": "Node",
    "'NoneType' object has no attribute": "Python",
    "cannot import name": "Python",
    "from 'trio_mcp'": "Python",
    "was never awaited": "Python",
    "SQLite objects created in a thread can only be used in that same thread": "SQLite's module of Python",
    "ImportError": "Python",
    "-w 2": "an option of hypercorn",
}
"""Messages of programs that are not here, or whose source is not Python."""


def parts_of(quote: str) -> list[str]:
    parts = (part.strip(" ;:,.()") for part in re.split(r"…|; ", quote))
    return [part for part in parts if len(part) > 3]


def test_there_are_enough_of_them() -> None:
    assert len(ENTRIES) >= 60
    assert len(QUOTES) >= 60


def test_messages_are_quoted_as_they_are() -> None:
    known = sources(*OTHERS)
    assert [part for quote in QUOTES for part in parts_of(quote) if part not in known and part not in FOREIGN] == []


def test_the_errors_that_the_page_names_exist() -> None:
    assert "CERTIFICATE_VERIFY_FAILED" in TEXT
    assert issubclass(ssl.SSLCertVerificationError, ssl.SSLError)


def said(text: str) -> None:
    """Fail unless a quotation of the page fits a text that was printed, logged or raised."""
    fitting = [quote for quote in QUOTES if all(part in text for part in parts_of(quote)) and parts_of(quote)]
    assert fitting, text


# loading


FILES = {
    "empty.py": "x = 1\n",
    "two.py": "from trio_mcp import Server\na, b = Server('a'), Server('b')\n",
    "wrong.py": "from trio_mcp import Serve\n",
    "twice.py": "from trio_mcp import Server\ns = Server('s')\ns.tool(name='a')(lambda: 1)\ns.tool(name='a')(lambda: 1)\n",
    "option.py": "from trio_mcp import Server\nServer('s', auth=1)\n",
}


@pytest.mark.parametrize("file", [*FILES, "missing.py"])
def test_files_that_cannot_be_loaded(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    if file in FILES:
        (tmp_path / file).write_text(FILES[file])
    assert main(["run", str(tmp_path / file)]) == 3
    said(capsys.readouterr().err)


# calls


@dataclass
class Inner:
    x: int


class Nested(BaseModel):
    inner: Inner


async def sleeps_in_asyncio() -> None:
    await asyncio.sleep(1)


async def uses_state(ctx: Context[Any]) -> None:
    ctx.state.db.execute("x")


async def needs_a_model(ctx: Context) -> None:
    await ctx.sample("?")


async def has_a_bad_form(ctx: Context) -> None:
    await ctx.elicit("?", Nested)


async def forgets_await(ctx: Context) -> None:
    ctx.info("x")  # type: ignore[unused-coroutine]


async def lamp() -> str:
    return "lamp"


async def returns_a_coroutine() -> object:
    return lamp()


def branches_in_a_thread(ctx: Context) -> None:
    ctx.branches()


def logs_in_a_pool(ctx: SyncContext) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ctx.info, "x").result()


async def returns_text() -> int:
    return "x"  # type: ignore[return-value]


async def returns_an_object() -> object:
    return object()


async def asks_in_time(ctx: Context) -> None:
    await ctx.elicit("?", bool, timeout=5)


async def raises() -> None:
    raise ValueError("secret")


async def sleeps() -> None:
    await trio.sleep_forever()


async def reports_twice(ctx: Context) -> str:
    await ctx.progress(1)
    await ctx.progress(1)
    return "x"


CASES: list[Callable[..., object]] = [
    sleeps_in_asyncio,
    uses_state,
    has_a_bad_form,
    forgets_await,
    returns_a_coroutine,
    branches_in_a_thread,
    logs_in_a_pool,
    returns_text,
    returns_an_object,
    reports_twice,
]


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
async def test_tools_that_fail(function: Callable[..., object], caplog: pytest.LogCaptureFixture) -> None:
    server = Server("shop")
    server.add_tool(function)
    result = await MockClient().call((server, function.__name__))
    said(f"{result.text}\n{caplog.text}")


async def test_an_exception_is_masked() -> None:
    server = Server("shop", options=ServiceOptions(tell_errors=False))
    server.add_tool(raises)
    async with Client.connect(server) as client:
        said((await client.call_tool("raises")).text)
        with pytest.raises(PeerError) as caught:
            await client.call_tool("nope")
    said(str(caught.value))


async def test_a_client_without_a_model() -> None:
    server = Server("shop")
    server.add_tool(needs_a_model)
    async with Client.connect(server) as client:
        with pytest.raises(PeerError) as caught:
            await client.call_tool("needs_a_model")
    said(str(caught.value))


async def test_limits_of_time(autojump_clock: MockClock, mcp_era: str) -> None:
    server = Server("shop")
    server.add_tool(asks_in_time)
    server.add_tool(sleeps, timeout=3)
    said((await MockClient(elicits=[Never()], era=mcp_era).call((server, "asks_in_time"))).text)
    said((await MockClient(era=mcp_era).call((server, "sleeps"))).text)


async def test_scripts_that_do_not_fit() -> None:
    server = Server("shop")
    server.add_tool(asks_in_time)
    for client in (MockClient(), MockClient(elicits=[True, True])):
        with pytest.raises(AssertionError) as caught:
            await client.call((server, "asks_in_time"))
        said(str(caught.value))


def test_a_client_in_asyncio() -> None:
    async def open_service() -> None:
        async with Server("shop").open_service():
            pass

    async def elsewhere() -> None:
        async with Client.connect(Server("shop")) as client:
            await asyncio.to_thread(asyncio.run, used(client))

    async def used(client: Client) -> None:
        await client.ping()

    for program in (open_service, elsewhere):
        with pytest.raises(RuntimeError) as caught:
            asyncio.run(program())
        said(str(caught.value))


async def test_a_client_outside_of_its_block() -> None:
    client = Client.connect(Server("shop"))
    with pytest.raises(Disconnected) as caught:
        await client.ping()
    said(str(caught.value))
    async with client:
        with pytest.raises(PeerError) as missing:
            await client.read_resource("shop://x")
        said(str(missing.value))
    with pytest.raises(RuntimeError) as again:
        await client.open()
    said(str(again.value))


# HTTP


async def authenticate(headers: object) -> str | None:
    return None


POST = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
REQUESTS: dict[str, tuple[int, str, dict[str, str]]] = {
    "host": (421, "http://evil.example/mcp", POST),
    "origin": (403, "http://localhost/mcp", {**POST, "origin": "https://evil.example"}),
    "path": (404, "http://localhost/mpc", POST),
    "accept": (406, "http://localhost/mcp", {**POST, "accept": "application/json"}),
    "type": (415, "http://localhost/mcp", {**POST, "content-type": "text/plain"}),
    "session": (404, "http://localhost/mcp", {**POST, "mcp-session-id": "x" * 32}),
}


@pytest.mark.parametrize(("status", "url", "headers"), REQUESTS.values(), ids=REQUESTS)
async def test_requests_that_are_rejected(status: int, url: str, headers: dict[str, str]) -> None:
    app = asgi_app(Server("shop"))
    body = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
    with trio.fail_after(10):
        async with app.lifespan(), httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as client:
            answer = await client.post(url, content=body, headers=headers)
    assert answer.status_code == status
    said(answer.json()["error"]["message"])


async def test_a_caller_without_a_token() -> None:
    app = asgi_app(Server("shop", http=HttpOptions(authenticate=authenticate)))
    with trio.fail_after(10):
        async with app.lifespan(), httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as client:
            answer = await client.post("http://localhost/mcp", content="{}", headers=POST)
    assert answer.status_code == 401
    said(answer.json()["error"]["message"])


def test_an_address_on_the_network_without_names(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "shop_app.py").write_text("from trio_mcp import Server\nserver = Server('shop')\n")
    assert main(["serve", str(tmp_path / "shop_app.py"), "--host", "0.0.0.0", "--port", "0"]) == 2
    said(capsys.readouterr().err)
