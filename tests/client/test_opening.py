"""Finding out which era a server speaks, and what becomes of a client that cannot open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from naming import naming
from scripted import (
    FOLLOWS_TASKS,
    Json,
    as_modern,
    client_over,
    discovered,
    handshake,
    initialized,
    living,
    opening_client,
    unopened,
)
from trio.testing import wait_all_tasks_blocked
from wire_terms import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    MODERN,
    NEWEST_LEGACY,
    PROTOCOL_VERSION,
    UNSUPPORTED_VERSION,
)

from trio_mcp.errors import Disconnected, PeerError, RemoteProtocolError, RequestTimeout
from trio_mcp.session import Envelope

LEGACY_VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", NEWEST_LEGACY]
TESTER = {"name": "tester", "version": "1"}


async def test_a_server_that_can_be_discovered_is_modern() -> None:
    async with opening_client(on_elicit=lambda _params: None) as (client, wire, opened):
        request = await wire.reply("server/discover", discovered(MODERN, NEWEST_LEGACY))
        meta = request["params"]["_meta"]
        assert meta[PROTOCOL_VERSION] == MODERN
        assert meta[CLIENT_CAPABILITIES] == {"elicitation": {"form": {}}, **FOLLOWS_TASKS}
        assert meta[CLIENT_INFO] == TESTER
        assert await opened.result() is client
        assert client.protocol_version == MODERN
        assert (client.server_info.name, client.instructions) == ("scripted", "Be kind.")
        assert client.server_capabilities.tools is not None


def refusing(code: int, supported: object = None) -> Json:
    return {"error": {"code": code, "message": "no", "data": {"supported": supported, "requested": MODERN}}}


@pytest.mark.parametrize(
    ("answer", "proposed"),
    [
        *((refusing(code), NEWEST_LEGACY) for code in (METHOD_NOT_FOUND, INVALID_PARAMS, INVALID_REQUEST)),
        *((refusing(code), NEWEST_LEGACY) for code in (-32000, -32002, 0, 401)),
        *((refusing(UNSUPPORTED_VERSION, odd), NEWEST_LEGACY) for odd in ([], "all", None, [NEWEST_LEGACY])),
        (refusing(UNSUPPORTED_VERSION, ["2025-06-18", "2025-03-26"]), "2025-06-18"),
        *(({"result": odd}, NEWEST_LEGACY) for odd in ({}, {"supportedVersions": "all"})),
        ({"result": {"resultType": "input_required"}}, NEWEST_LEGACY),
        ({"result": discovered(NEWEST_LEGACY)}, NEWEST_LEGACY),
    ],
    ids=str,
)
async def test_any_other_answer_means_the_legacy_era(answer: Json, proposed: str) -> None:
    async with opening_client() as (client, wire, opened):
        probe = await wire.request("server/discover")
        await wire.send({"id": probe["id"], **answer})
        params = await handshake(wire)
        await opened.result()
        assert (params["protocolVersion"], params["clientInfo"]) == (proposed, TESTER)
        assert PROTOCOL_VERSION not in params.get("_meta", {})
        assert client.protocol_version == NEWEST_LEGACY
        assert (client.server_info.name, client.instructions) == ("scripted", "Be kind.")


async def test_silence_means_the_legacy_era_after_the_probe_timeout() -> None:
    async with opening_client(probe_timeout=7) as (client, wire, opened):
        probe = await wire.request("server/discover")
        assert probe["id"] == (await wire.notification("notifications/cancelled"))["requestId"]
        assert trio.current_time() == 7
        await handshake(wire)
        await opened.result()
        await wire.respond(probe, discovered())  # too late to matter
        await wait_all_tasks_blocked()
        assert client.protocol_version == NEWEST_LEGACY


async def test_a_modern_server_that_was_slow_to_start_is_modern_after_all() -> None:
    """It has answered the probe when it reads `initialize`, which it then rejects: its connection has an era by now."""
    async with opening_client(probe_timeout=7) as (client, wire, opened):
        probe = await wire.request("server/discover")
        await wire.notification("notifications/cancelled")
        await wire.respond(probe, discovered())
        await wire.refuse("initialize", UNSUPPORTED_VERSION, data={"supported": [MODERN]})
        await wire.reply("server/discover", discovered())
        await opened.result()
        assert client.protocol_version == MODERN


async def test_a_handshake_that_is_refused_is_final_if_the_probe_was_answered() -> None:
    async with opening_client() as (_client, wire, opened):
        await wire.refuse("server/discover", METHOD_NOT_FOUND)
        await wire.refuse("initialize", UNSUPPORTED_VERSION, data={"supported": ["2030-01-01"]})
        await opened.fails(PeerError)


async def test_a_server_that_speaks_nothing_we_do_is_named_with_what_it_speaks() -> None:
    """It is modern, so a handshake would be no answer (M-VER-2c, M-DUAL-5c)."""
    async with opening_client() as (_client, wire, opened):
        await wire.refuse("server/discover", UNSUPPORTED_VERSION, data={"supported": ["2030-01-01"]})
        await opened.fails(RemoteProtocolError, naming("2030-01-01", MODERN))


@pytest.mark.parametrize("mode", ["auto", MODERN])
async def test_a_refused_version_is_asked_for_again_if_the_server_offers_it(mode: str) -> None:
    """A server that is being replaced may refuse at first; what counts is what it says it supports (M-VER-2c)."""
    async with opening_client(mode=mode) as (client, wire, opened):
        offered = {"supported": ["2030-01-01", MODERN, NEWEST_LEGACY], "requested": MODERN}
        first = await wire.refuse("server/discover", UNSUPPORTED_VERSION, data=offered)
        second = await wire.reply("server/discover", discovered())
        assert second["params"]["_meta"][PROTOCOL_VERSION] == MODERN
        assert second["id"] != first["id"]
        await opened.result()
        assert client.protocol_version == MODERN


async def test_a_version_that_is_refused_twice_means_the_legacy_era() -> None:
    async with opening_client() as (_client, wire, opened):
        for _ in range(2):
            await wire.refuse("server/discover", UNSUPPORTED_VERSION, data={"supported": [MODERN], "requested": MODERN})
        await handshake(wire)
        await opened.result()


@pytest.mark.parametrize(
    ("mode", "code"), [("auto", HEADER_MISMATCH), ("auto", MISSING_CAPABILITY), (MODERN, METHOD_NOT_FOUND)]
)
async def test_an_error_of_the_modern_era_or_in_a_modern_mode_is_no_reason_for_a_handshake(
    mode: str, code: int
) -> None:
    async with opening_client(mode=mode) as (_client, wire, opened):
        await wire.refuse("server/discover", code, "not like this")
        await opened.fails(PeerError, "not like this")
        await wire.end()


@pytest.mark.parametrize(
    ("mode", "chosen"), [*(("legacy", each) for each in LEGACY_VERSIONS), *((each, each) for each in LEGACY_VERSIONS)]
)
async def test_a_legacy_mode_does_not_probe_and_the_server_chooses_the_revision(mode: str, chosen: str) -> None:
    async with opening_client(mode=mode) as (client, wire, opened):
        asked = (await handshake(wire, chosen))["protocolVersion"]
        assert asked == (NEWEST_LEGACY if mode == "legacy" else mode)
        await opened.result()
        assert client.protocol_version == chosen


async def test_nothing_but_initialize_is_sent_before_its_answer_and_the_server_may_ping() -> None:
    async with opening_client(mode="legacy", on_log=lambda _params: None) as (_client, wire, opened):
        request = await wire.request("initialize")
        await wire.silence(5)
        await wire.ask("p", "ping", {})
        assert (await wire.answer("p"))["result"] == {}
        await wire.respond(request, initialized())
        await wire.notification("notifications/initialized")
        await opened.result()


# That no task is left is checked for every client.
@pytest.mark.parametrize(
    ("happens", "kind", "named"),
    [
        (lambda client, wire, request: wire.fail(request, -32000, "members only"), PeerError, "members only"),
        (lambda client, wire, request: wire.silence(), RequestTimeout, "initialize"),
        (lambda client, wire, request: client.aclose(), Disconnected, "closed"),
    ],
    ids=["refused", "silence", "closed"],
)
async def test_an_opening_that_fails_raises_why_and_leaves_the_server(
    happens: Callable[..., Awaitable[None]], kind: type[Exception], named: str
) -> None:
    async with opening_client() as (client, wire, opened):
        await wire.refuse("server/discover", METHOD_NOT_FOUND)
        await happens(client, wire, await wire.request("initialize"))
        await opened.fails(kind, naming(named))
        await wire.end()


@pytest.mark.parametrize("version", ["1999-01-01", MODERN, ""])
async def test_a_server_that_answers_with_an_unsupported_version_is_refused_and_left(version: str) -> None:
    async with opening_client(mode="legacy") as (_client, wire, opened):
        await wire.reply("initialize", initialized(version))
        await opened.fails(RemoteProtocolError, naming(version))
        await wire.end()


@pytest.mark.parametrize("step", ["at once", "after the probe", "after initialize"])
async def test_a_server_that_goes_away_while_opening_is_a_disconnect(step: str) -> None:
    async with opening_client() as (_client, wire, opened):
        if step != "at once":
            await wire.refuse("server/discover", METHOD_NOT_FOUND)
        if step == "after initialize":
            await wire.request("initialize")
        await wire.close()
        await opened.fails(Disconnected)


@asynccontextmanager
async def refused() -> AsyncIterator[trio.abc.Channel[Envelope]]:
    await trio.lowlevel.checkpoint()
    raise OSError("connection refused")
    yield


async def test_a_transport_that_cannot_connect_raises_its_own_error_and_no_task_is_left() -> None:
    before = living()
    async with client_over(refused()) as (client, _start):
        with pytest.raises(OSError, match="connection refused"):
            await client.open()
        assert living() == before
        assert repr(client) == "<Client closed>"


async def test_a_cancelled_open_closes_the_client_and_leaves_no_task() -> None:
    before = living()
    async with unopened(mode="legacy") as (client, wire, _start):
        with trio.move_on_after(3) as scope:
            await client.open()
        assert scope.cancelled_caught
        await wait_all_tasks_blocked()
        assert living() == before
        await wire.request("initialize")  # which is never cancelled
        await wire.end()
        with pytest.raises(Disconnected):
            await client.ping()


async def test_the_repr_shows_the_state_and_the_revision() -> None:
    async with unopened() as (client, wire, start):
        assert repr(client) == "<Client opening>"
        opened = start(client.open)
        await as_modern(wire)
        await opened.result()
        assert repr(client) == f"<Client open {MODERN}>"
        await client.aclose()
        assert repr(client) == f"<Client closed {MODERN}>"


async def test_closing_a_client_that_was_never_opened_takes_no_time() -> None:
    async with unopened() as (client, _wire, _start):
        before = trio.current_time()
        await client.aclose()
        assert trio.current_time() == before


@pytest.mark.parametrize(
    "info", [{"name": "odd"}, {"name": "odd", "version": 1}, {"name": "odd", "version": "", "icons": 5}]
)
async def test_a_modern_server_that_says_something_odd_of_itself_is_opened(info: Json) -> None:
    async with opening_client() as (client, wire, opened):
        await wire.reply("server/discover", {**discovered(), "_meta": {"io.modelcontextprotocol/serverInfo": info}})
        await opened.result()
        assert (client.server_info.name, client.server_info.version) == ("odd", "")
