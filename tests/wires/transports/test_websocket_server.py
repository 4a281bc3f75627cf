"""What a server does on a WebSocket, seen from a raw socket: `docs/websocket.md`, rule by rule."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from hypercorn_peer import frame, soon
from stage import Stage
from websocket_peer import BINARY, PING, PONG, TEXT, RawPeer, raw, served

from trio_mcp import CancelReason
from trio_mcp_transports.http import HttpLimits, McpApp, asgi_app
from trio_mcp_transports.hypercorn.serve import serve_asgi

LIMIT = 60.0


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
async def url(stage: Stage) -> AsyncIterator[str]:
    async with served(stage.server) as url:
        yield url


# the handshake


async def test_the_subprotocol_is_echoed_and_no_extension_is(url: str) -> None:
    async with raw(url, connected=False) as peer:
        offered = {"sec-websocket-protocol": "chat, mcp", "sec-websocket-extensions": "permessage-deflate"}
        status, headers, _ = await peer.upgrade(offered)
        assert (status, headers["sec-websocket-protocol"]) == (101, "mcp")
        assert "sec-websocket-extensions" not in headers


async def refusal(url: str, headers: Mapping[str, str | None] | None = None) -> tuple[int, Mapping[str, str], str]:
    """Ask for a WebSocket with these headers: the status of the answer, its headers and the words of its error."""
    async with raw(url, connected=False) as peer:
        status, received, body = await peer.upgrade(headers)
        assert received["content-type"] == "application/json"
        assert await peer.client.rest() == b""
        return status, received, json.loads(body)["error"]["message"]


REFUSED: list[tuple[Mapping[str, str | None], int, str]] = [
    ({"host": "evil.example"}, 421, "This server is not 'evil.example'"),
    ({"origin": "https://evil.example"}, 403, "The origin 'https://evil.example' may not call this server"),
    ({"origin": "null"}, 403, "The origin 'null' may not call this server"),
    ({"sec-websocket-protocol": None}, 400, 'speaks the subprotocol "mcp"'),
    ({"sec-websocket-protocol": "chat"}, 400, 'speaks the subprotocol "mcp"'),
    ({"sec-websocket-protocol": "MCP"}, 400, 'speaks the subprotocol "mcp"'),
]


@pytest.mark.parametrize(("headers", "status", "words"), REFUSED)
async def test_an_upgrade_is_refused_before_it_is_accepted_with_a_sentence(
    url: str, headers: Mapping[str, str | None], status: int, words: str
) -> None:
    got, _, said = await refusal(url, headers)
    assert (got, words in said) == (status, True)


NONE_AT_ALL: list[dict[str, str | None]] = [
    {"sec-websocket-protocol": "m\xe9p"},
    {"sec-websocket-version": "12"},
    {"sec-websocket-key": "c2hvcnQ="},
    {"sec-websocket-key": "dGhlIHNhbXBsZSBub25j*Q=="},
    {"sec-websocket-key": "\xe9"},
]


@pytest.mark.parametrize("headers", NONE_AT_ALL)
async def test_an_invalid_upgrade_is_400_and_affects_no_other_client(url: str, headers: dict[str, str | None]) -> None:
    async with raw(url) as bystander, raw(url, connected=False) as peer:
        assert (await peer.upgrade(headers))[0] == 400
        assert await bystander.text(await bystander.leg("echo", {"text": "still here"})) == "still here"


async def test_another_path_is_404(url: str) -> None:
    status, _, said = await refusal(url + "/else")
    assert (status, "/mcp" in said) == (404, True)


async def test_a_page_of_a_listed_origin_may_connect(stage: Stage) -> None:
    async with served(stage.server, allowed_origins=["https://app.example"]) as url:
        async with raw(url, connected=False) as peer:
            await peer.open({"origin": "https://app.example"})


# the end of a connection


async def test_a_close_is_answered_and_cancels_what_runs(stage: Stage, url: str) -> None:
    async with raw(url) as peer:
        await peer.leg("wait")
        await stage.started.wait()
        await peer.close()
        assert (await peer.closed())[0] == 1000
        assert await peer.client.rest() == b""
    await soon(stage.ended)
    assert stage.reason is CancelReason.DISCONNECT


BREACHES = {
    "binary": (frame(BINARY, b"{}"), (1003, "a message is JSON in a text frame")),
    "not UTF-8": (frame(TEXT, b"\xff"), (1007, None)),
    "no mask": (b"\x81\x02{}", (1002, None)),
    "too long": (frame(TEXT, b"a" * 1001), (1009, "a message may have 1000 bytes")),
    "too long in bytes": (frame(TEXT, "é".encode() * 501), (1009, "a message may have 1000 bytes")),
}


@pytest.mark.parametrize(("data", "end"), BREACHES.values(), ids=BREACHES)
async def test_a_frame_against_the_rules_ends_the_connection_with_its_code_and_leaves_no_call(
    stage: Stage, data: bytes, end: tuple[int, str | None]
) -> None:
    async with served(stage.server, limits=HttpLimits(body=1000)) as url, raw(url) as peer:
        await peer.leg("wait")
        await stage.started.wait()
        await peer.client.send(data)
        code, reason = await peer.closed()
        assert (code, end[1] and reason) == end
        await stage.ended.wait()
    assert stage.reason is CancelReason.DISCONNECT


# who may connect, and how many


async def test_credentials_are_asked_for_before_the_upgrade_and_are_on_every_message(stage: Stage) -> None:
    principals: list[str | None] = []

    async def authenticate(headers: Mapping[str, str]) -> str | None:
        principals.append(headers.get("authorization"))
        return {"Bearer ada": "ada", "Bearer bob": "bob"}.get(headers.get("authorization", ""))

    async with served(stage.server, authenticate=authenticate) as url:
        status, headers, said = await refusal(url)
        assert (status, headers["www-authenticate"], "must know who calls" in said) == (401, "bearer", True)
        async with raw(url, connected=False) as ada, raw(url, connected=False) as bob:
            await ada.open({"authorization": "Bearer ada"})
            await bob.open({"authorization": "Bearer bob"})
            assert await ada.text(await ada.leg("whoami")) == "ada None"
            assert await bob.text(await bob.leg("whoami")) == "bob None"
    assert principals == [None, "Bearer ada", "Bearer bob"]


async def test_credentials_that_expire_end_the_connection_with_1008(stage: Stage) -> None:
    accepted = {"Bearer ada"}
    asked = trio.Event()

    async def authenticate(headers: Mapping[str, str]) -> str | None:
        sent = headers.get("authorization", "")
        if not accepted:
            asked.set()
        return "ada" if sent in accepted else None

    async with served(stage.server, authenticate=authenticate, limits=HttpLimits(recheck_seconds=0.05)) as url:
        async with raw(url, connected=False) as peer:
            await peer.open({"authorization": "Bearer ada"})
            await peer.leg("wait")
            await stage.started.wait()
            accepted.clear()
            await asked.wait()
            assert await peer.closed() == (1008, "these credentials are no longer accepted")
            await stage.ended.wait()
    assert stage.reason is CancelReason.DISCONNECT


async def test_one_more_than_the_limit_is_503_until_one_has_gone(stage: Stage) -> None:
    async with served(stage.server, limits=HttpLimits(websockets=1)) as url:
        async with raw(url) as first:
            status, headers, said = await refusal(url)
            assert (status, headers["retry-after"], "HttpLimits.websockets" in said) == (503, "1", True)
            await first.close()
            assert await first.client.rest()
        async with raw(url) as next_one:
            assert await next_one.text(await next_one.leg("echo", {"text": "in"})) == "in"


async def test_the_websockets_of_one_principal_are_limited_and_the_rest_is_for_others(stage: Stage) -> None:
    async def authenticate(headers: Mapping[str, str]) -> str | None:
        return headers.get("x-user")

    limits = HttpLimits(per_principal=1)
    async with (
        served(stage.server, authenticate=authenticate, limits=limits) as url,
        raw(url, connected=False) as first,
        raw(url, connected=False) as other,
    ):
        await first.open({"x-user": "ada"})
        status, _, said = await refusal(url, {"x-user": "ada"})
        assert (status, "HttpLimits.per_principal" in said) == (503, True)
        await other.open({"x-user": "bob"})


# shutdown


@asynccontextmanager
async def draining(stage: Stage) -> AsyncIterator[tuple[McpApp, str]]:
    """A served application whose `drain` a test may call."""
    app = asgi_app(stage.server)
    async with trio.open_nursery() as nursery:
        with trio.fail_after(LIMIT):
            (address,) = await nursery.start(partial(serve_asgi, app, port=0, signals=False))
        with trio.fail_after(LIMIT):
            yield app, f"ws{address.partition(' ')[0].removeprefix('http')}/mcp"
        nursery.cancel_scope.cancel()


async def test_a_shutdown_answers_what_runs_refuses_what_is_new_and_closes_with_1001(stage: Stage) -> None:
    async with draining(stage) as (app, url), raw(url) as peer, trio.open_nursery() as nursery:
        listening = await peer.ask("subscriptions/listen", notifications={"toolsListChanged": True})
        assert (await peer.receive())["method"] == "notifications/subscriptions/acknowledged"
        call = await peer.leg("wait")
        await stage.started.wait()
        nursery.start_soon(app.drain, 30.0)
        ending = await peer.receive()  # others share the connection, so it is said which stream ends (M-CAN-2s)
        assert (ending["method"], ending["params"]["requestId"]) == ("notifications/cancelled", listening)
        await peer.result(listening)
        refused = await peer.leg("echo", {"text": "late"})
        answer = await peer.receive()
        assert (answer["id"], answer["error"]["message"]) == (refused, "this server is shutting down")
        assert (await refusal(url))[0] == 503
        stage.go_on.set()
        assert await peer.text(call) == "waited"
        assert await peer.closed() == (1001, "this server is shutting down")


async def test_a_server_that_is_cut_still_says_goodbye(stage: Stage) -> None:
    async with trio.open_nursery() as outer:
        async with served(stage.server) as url:
            peer = await outer.start(partial(keep_open, url))
        assert (await peer.closed())[0] == 1001
        outer.cancel_scope.cancel()


async def keep_open(url: str, *, task_status: trio.TaskStatus[RawPeer]) -> None:
    async with raw(url) as peer:
        task_status.started(peer)
        await trio.sleep_forever()


# silent clients (reliability row 34)


async def test_pings_are_answered_while_a_tool_runs(stage: Stage, url: str) -> None:
    async with raw(url) as peer:
        await peer.leg("wait")
        await stage.started.wait()
        for number in range(1000):
            await peer.client.send(frame(PING, b"%d" % number))
        for number in range(1000):
            assert await peer.client.frame() == (0x80 | PONG, b"%d" % number)
        stage.go_on.set()
        assert (await peer.receive())["result"]["content"][0]["text"] == "waited"
