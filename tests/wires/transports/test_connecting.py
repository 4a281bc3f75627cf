"""What `Client.connect` takes beside a fixed URL and a command: a Python file, and a function that returns the headers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from serving import START, served

from trio_mcp import Client, Context, Disconnected, HttpOptions, Server
from trio_mcp.errors import PeerError, Unreachable

FILE = """
from trio_mcp import Server

one, server = Server("one"), Server("two")


@server.tool
async def hello() -> str:
    return "hello"
"""


@pytest.mark.parametrize("named", ["app.py", "app.py:server", Path("app.py")], ids=str)
async def test_a_python_file_is_served_in_a_process_from_whatever_folder(
    named: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await trio.Path(tmp_path / "app.py").write_text(FILE)
    assert file
    monkeypatch.chdir(tmp_path)
    (other := tmp_path / "other").mkdir()
    with trio.fail_after(START):
        async with Client.connect(named, cwd=other) as client:
            assert (await client.call_tool("hello")).text == "hello"


class Tokens:
    """Tokens that are each good for one use."""

    def __init__(self, *failures: Exception) -> None:
        self.used: list[str] = []
        self.given = 0
        self.failures = [*failures]

    async def headers(self) -> Mapping[str, str]:
        await trio.lowlevel.checkpoint()
        if self.failures:
            raise self.failures.pop()
        self.given += 1
        return {"authorization": f"Bearer {self.given}"}

    async def authenticate(self, headers: Mapping[str, str]) -> str | None:
        token = headers.get("authorization", "")
        if not token or token in self.used:
            return None
        self.used.append(token)
        return "ann"


def whoami(tokens: Tokens) -> Server:
    server = Server("shop", http=HttpOptions(authenticate=tokens.authenticate, sse_path="/sse"))

    @server.tool
    async def who(ctx: Context) -> str:
        return str(ctx.request.principal)

    return server


@asynccontextmanager
async def shop(tokens: Tokens | None = None) -> AsyncIterator[str]:
    with trio.fail_after(START):
        async with served(whoami(tokens or Tokens())) as url:
            yield url


WIRES = {
    "http legacy": ("http", "/mcp", "legacy"),
    "http modern": ("http", "/mcp", "modern"),
    "sse": ("http", "/sse", "legacy"),
    "websocket": ("ws", "/mcp", "legacy"),
}


@pytest.mark.parametrize(("scheme", "path", "mode"), WIRES.values(), ids=WIRES)
async def test_a_function_is_asked_for_the_headers_of_each_request(scheme: str, path: str, mode: str) -> None:
    tokens = Tokens()
    async with shop(tokens) as url:
        target = scheme + url.removeprefix("http").replace("/mcp", path)
        async with Client.connect(target, mode=mode, headers=tokens.headers) as client:
            for _ in range(3):
                assert (await client.call_tool("who")).text == "ann"
    assert len(tokens.used) == tokens.given >= (1 if scheme == "ws" else 3)


async def test_a_plain_function_does_too_and_its_headers_are_checked() -> None:
    async with shop() as url:
        for wrong in ({"a b": "c"}, {"a": "b\n"}, {"a": 1}):
            with pytest.raises(Disconnected, match="headers"):
                await Client.connect(url, mode="modern", headers=lambda wrong=wrong: wrong).open()  # type: ignore[misc, return-value]
        with pytest.raises(PeerError, match="Authorization"):
            await Client.connect(url, mode="modern", headers=dict[str, str]).open()


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_a_function_that_fails_is_an_error_of_the_request_which_was_not_sent(scheme: str) -> None:
    tokens = Tokens(*(ValueError("the token service is down") for _ in range(20)))
    async with shop(tokens) as url:
        with pytest.raises(Disconnected, match="token service is down"):
            await Client.connect(f"{scheme}{url[4:]}", mode="legacy", headers=tokens.headers).open()
    assert tokens.used == []


@pytest.mark.parametrize(("path", "mode"), [("/mcp", "legacy"), ("/mcp", "modern"), ("/sse", "legacy")])
async def test_a_call_whose_headers_cannot_be_made_was_not_sent_and_the_next_one_is(path: str, mode: str) -> None:
    tokens = Tokens()
    async with shop(tokens) as url:
        async with Client.connect(url.replace("/mcp", path), mode=mode, headers=tokens.headers) as client:
            await client.list_tools()
            tokens.failures.append(ValueError("the token service is down"))
            used = len(tokens.used)
            with pytest.raises(Unreachable, match="token service is down"):
                await client.call_tool("who")
            assert len(tokens.used) == used
            assert (await client.call_tool("who")).text == "ann"


UNSENDABLE = {
    "a character outside ASCII": {"authorization": "Bearer canary\u00e9"},
    "half of a surrogate pair": {"authorization": "Bearer canary\ud800"},
    "a space at the end": {"authorization": "Bearer canary "},
    "the length of the body": {"Content-Length": "7"},
    "another framing": {"transfer-encoding": "canary"},
}


@pytest.mark.parametrize("headers", UNSENDABLE.values(), ids=UNSENDABLE)
@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_headers_that_cannot_be_sent_are_refused_without_their_values(
    scheme: str, headers: Mapping[str, str]
) -> None:
    async with shop() as url:
        target = f"{scheme}{url[4:]}"
        with pytest.raises(Disconnected, match="headers") as failed:
            await Client.connect(target, mode="legacy", headers=lambda: headers).open()
        with pytest.raises(ValueError, match="headers") as refused:
            Client.connect(target, mode="legacy", headers=headers)
    assert "canary" not in f"{failed.value} {refused.value}"


OF_THE_PROTOCOL = {
    "Content-Type": "text/plain",
    "Accept": "text/html",
    "Mcp-Method": "x",
    "MCP-Protocol-Version": "2024-11-05",
}


async def test_a_function_does_not_replace_what_the_protocol_says_in_a_header(mode: str) -> None:
    tokens = Tokens()

    async def headers() -> Mapping[str, str]:
        return {**await tokens.headers(), **OF_THE_PROTOCOL}

    async with shop(tokens) as url, Client.connect(url, mode=mode, headers=headers) as client:
        assert (await client.call_tool("who")).text == "ann"


async def test_a_function_that_hangs_is_ended_by_the_limit_of_connecting() -> None:
    async with shop() as url:
        with pytest.raises(Disconnected, match="headers"):
            await Client.connect(url, mode="modern", headers=trio.sleep_forever, connect_timeout=0.1).open()  # type: ignore[arg-type]
