"""Finding out which era a server speaks, and what becomes of a client that cannot open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from naming import naming
from scripted import Json, as_modern, discovered, handshake, initialized, opening_client, unopened
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp.client import Client, ClientOptions
from trio_mcp.errors import Disconnected, PeerError, RemoteProtocolError, RequestTimeout
from trio_mcp.protocol.jsonrpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
)
from trio_mcp.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from trio_mcp.protocol.revisions import MODERN, NEWEST_LEGACY
from trio_mcp.session import Envelope
from trio_mcp.types import Implementation

LEGACY_VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", NEWEST_LEGACY]


def living() -> int:
    return trio.lowlevel.current_statistics().tasks_living


# auto: the probe


async def test_a_server_that_can_be_discovered_is_modern() -> None:
    async with opening_client(on_elicit=lambda _params: None) as (client, wire, opened):
        request = await wire.request("server/discover")
        meta = request["params"]["_meta"]
        assert meta[PROTOCOL_VERSION] == MODERN
        assert meta[CLIENT_CAPABILITIES] == {"elicitation": {"form": {}}}
        assert meta[CLIENT_INFO] == {"name": "tester", "version": "1"}
        await wire.respond(request, discovered(MODERN, NEWEST_LEGACY))
        assert await opened.result() is client
        assert client.protocol_version == MODERN
        assert client.server_info is not None
        assert (client.server_info.name, client.instructions) == ("scripted", "Be kind.")
        assert client.server_capabilities.tools is not None


@pytest.mark.parametrize("code", [METHOD_NOT_FOUND, INVALID_PARAMS, INVALID_REQUEST, -32000, -32002, 0, 401])
async def test_any_other_error_means_the_handshake_era(code: int) -> None:
    async with opening_client() as (client, wire, opened):
        await wire.fail(await wire.request("server/discover"), code)
        params = await handshake(wire)
        await opened.result()
        assert (params["protocolVersion"], params["clientInfo"]) == (NEWEST_LEGACY, {"name": "tester", "version": "1"})
        assert PROTOCOL_VERSION not in params.get("_meta", {})
        assert client.protocol_version == NEWEST_LEGACY
        assert client.server_info is not None
        assert (client.server_info.name, client.instructions) == ("scripted", "Be kind.")


async def test_silence_means_the_handshake_era_after_the_probe_timeout(autojump_clock: MockClock) -> None:
    async with opening_client(probe_timeout=7) as (client, wire, opened):
        probe = await wire.request("server/discover")
        assert probe["id"] == (await wire.notification("notifications/cancelled"))["requestId"]
        assert trio.current_time() == 7
        await handshake(wire)
        await opened.result()
        assert client.protocol_version == NEWEST_LEGACY
        await wire.respond(probe, discovered())  # too late to matter
        await wait_all_tasks_blocked()
        assert client.protocol_version == NEWEST_LEGACY


@pytest.mark.parametrize("answer", [{}, {"supportedVersions": "all"}, {"resultType": "input_required"}], ids=str)
async def test_an_answer_that_makes_no_sense_means_the_handshake_era(answer: Json) -> None:
    async with opening_client() as (_client, wire, opened):
        await wire.respond(await wire.request("server/discover"), answer)
        await handshake(wire)
        await opened.result()


@pytest.mark.parametrize(
    ("supported", "proposed"),
    [
        ([NEWEST_LEGACY], NEWEST_LEGACY),
        (["2025-06-18", "2025-03-26"], "2025-06-18"),
        ([], NEWEST_LEGACY),
        ("all", NEWEST_LEGACY),
        (None, NEWEST_LEGACY),
    ],
    ids=str,
)
async def test_a_refused_version_without_a_modern_one_in_common_means_the_handshake_era(
    supported: object, proposed: str
) -> None:
    async with opening_client() as (client, wire, opened):
        data = {"supported": supported, "requested": MODERN}
        await wire.fail(await wire.request("server/discover"), UNSUPPORTED_VERSION, data=data)
        params = await handshake(wire)
        await opened.result()
        assert params["protocolVersion"] == proposed
        assert client.protocol_version == NEWEST_LEGACY


async def test_a_server_that_speaks_nothing_we_do_is_named_with_what_it_speaks() -> None:
    """It is modern, so a handshake would be no answer (M-VER-2c, M-DUAL-5c)."""
    async with opening_client() as (_client, wire, opened):
        data = {"supported": ["2030-01-01"], "requested": MODERN}
        await wire.fail(await wire.request("server/discover"), UNSUPPORTED_VERSION, data=data)
        with pytest.raises(RemoteProtocolError, match=naming("2030-01-01", MODERN)):
            await opened.result()


@pytest.mark.parametrize("mode", ["auto", MODERN])
async def test_a_refused_version_is_asked_for_again_if_the_server_offers_it(mode: str) -> None:
    """A server that is being replaced may refuse at first; what counts is what it says it supports (M-VER-2c)."""
    async with opening_client(mode=mode) as (client, wire, opened):
        data = {"supported": ["2030-01-01", MODERN, NEWEST_LEGACY], "requested": MODERN}
        first = await wire.request("server/discover")
        await wire.fail(first, UNSUPPORTED_VERSION, data=data)
        second = await wire.request("server/discover")
        assert second["params"]["_meta"][PROTOCOL_VERSION] == MODERN
        assert second["id"] != first["id"]
        await wire.respond(second, discovered())
        await opened.result()
        assert client.protocol_version == MODERN


async def test_a_version_that_is_refused_twice_means_the_handshake_era() -> None:
    async with opening_client() as (_client, wire, opened):
        data = {"supported": [MODERN], "requested": MODERN}
        for _ in range(2):
            await wire.fail(await wire.request("server/discover"), UNSUPPORTED_VERSION, data=data)
        await handshake(wire)
        await opened.result()


@pytest.mark.parametrize("code", [HEADER_MISMATCH, MISSING_CAPABILITY])
async def test_an_error_of_the_modern_era_is_no_reason_for_a_handshake(code: int) -> None:
    async with opening_client() as (_client, wire, opened):
        await wire.fail(await wire.request("server/discover"), code, "not like this")
        with pytest.raises(PeerError, match="not like this"):
            await opened.result()
        await wire.end()


async def test_a_server_that_lists_only_legacy_versions_is_spoken_to_in_the_handshake_era() -> None:
    async with opening_client() as (_client, wire, opened):
        await wire.respond(await wire.request("server/discover"), discovered(NEWEST_LEGACY))
        await handshake(wire)
        await opened.result()


@pytest.mark.parametrize("version", LEGACY_VERSIONS)
async def test_the_server_chooses_among_the_legacy_revisions(version: str) -> None:
    async with opening_client() as (client, wire, opened):
        await wire.fail(await wire.request("server/discover"), METHOD_NOT_FOUND)
        await handshake(wire, version)
        await opened.result()
        assert version == client.protocol_version


# a decided mode


@pytest.mark.parametrize(("mode", "version"), [("legacy", NEWEST_LEGACY), *((each, each) for each in LEGACY_VERSIONS)])
async def test_a_legacy_mode_does_not_probe(mode: str, version: str) -> None:
    async with opening_client(mode=mode) as (_client, wire, opened):
        assert version == (await handshake(wire, version))["protocolVersion"]
        await opened.result()


async def test_a_modern_mode_does_not_fall_back() -> None:
    async with opening_client(mode=MODERN) as (_client, wire, opened):
        await wire.fail(await wire.request("server/discover"), METHOD_NOT_FOUND, "what?")
        with pytest.raises(PeerError, match="what"):
            await opened.result()
        await wire.end()


# failing


@pytest.mark.parametrize("version", ["1999-01-01", MODERN, ""])
async def test_a_server_that_answers_with_an_unsupported_version_is_refused_and_left(version: str) -> None:
    before = living()
    async with opening_client(mode="legacy") as (_client, wire, opened):
        await wire.respond(await wire.request("initialize"), initialized(version))
        with pytest.raises(RemoteProtocolError, match=naming(version)):
            await opened.result()
        await wire.end()
    assert before == living()


async def test_a_refused_initialize_is_the_cause_that_open_raises_and_no_task_is_left() -> None:
    before = living()
    async with opening_client() as (_client, wire, opened):
        await wire.fail(await wire.request("server/discover"), METHOD_NOT_FOUND)
        await wire.fail(await wire.request("initialize"), -32000, "members only")
        with pytest.raises(PeerError, match="members only"):
            await opened.result()
        await wire.end()
    assert before == living()


@pytest.mark.parametrize("step", ["at once", "after the probe", "after initialize"])
async def test_a_server_that_goes_away_while_opening_is_a_disconnect_and_no_task_is_left(step: str) -> None:
    before = living()
    async with opening_client() as (_client, wire, opened):
        if step != "at once":
            await wire.fail(await wire.request("server/discover"), METHOD_NOT_FOUND)
        if step == "after initialize":
            await wire.request("initialize")
        await wire.close()
        with pytest.raises(Disconnected):
            await opened.result()
    assert before == living()


@asynccontextmanager
async def refused() -> AsyncIterator[trio.abc.Channel[Envelope]]:
    await trio.lowlevel.checkpoint()
    raise OSError("connection refused")
    yield


async def test_a_transport_that_cannot_connect_raises_its_own_error_and_no_task_is_left() -> None:
    before = living()
    client = Client(refused(), ClientOptions(info=Implementation(name="tester", version="1")))
    with pytest.raises(OSError, match="connection refused"):
        await client.open()
    assert before == living()
    assert repr(client) == "<Client closed>"


async def test_a_cancelled_open_closes_the_client_and_leaves_no_task(autojump_clock: MockClock) -> None:
    before = living()
    async with unopened(mode="legacy") as (client, wire, _start):
        with trio.move_on_after(3) as scope:
            await client.open()
        assert scope.cancelled_caught
        await wire.request("initialize")  # which is never cancelled
        await wire.end()
        with pytest.raises(Disconnected):
            await client.ping()
    await wait_all_tasks_blocked()
    assert before == living()


async def test_a_client_may_be_closed_while_it_opens(autojump_clock: MockClock) -> None:
    before = living()
    async with opening_client(mode="legacy") as (client, wire, opened):
        await wire.request("initialize")
        await client.aclose()
        with pytest.raises(Disconnected, match=naming("closed")):
            await opened.result()
        await wire.end()
    assert before == living()


async def test_the_repr_shows_the_state_and_the_revision() -> None:
    async with unopened() as (client, wire, start):
        assert repr(client) == "<Client opening>"
        opened = start(client.open)
        await as_modern(wire)
        await opened.result()
        assert f"<Client open {MODERN}>" == repr(client)
        await client.aclose()
        assert f"<Client closed {MODERN}>" == repr(client)


async def test_a_server_that_never_answers_the_handshake_fails_the_opening(autojump_clock: MockClock) -> None:
    async with opening_client(mode="legacy") as (_client, wire, opened):
        await wire.request("initialize")
        with pytest.raises(RequestTimeout, match="initialize"):
            await opened.result()


async def test_closing_a_client_that_was_never_opened_takes_no_time(autojump_clock: MockClock) -> None:
    async with unopened() as (client, _wire, _start):
        before = trio.current_time()
        await client.aclose()
        assert trio.current_time() == before
