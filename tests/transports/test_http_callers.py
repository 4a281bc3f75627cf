"""Who counts as one caller over HTTP: a principal, or else a connection, a session, or the address that a proxy names."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgi_peer import JSON_HEADERS, AsgiPeer, initialize, legacy_call, modern_call, served
from stage import Stage
from trio.testing import wait_all_tasks_blocked

from trio_mcp import ServiceOptions
from trio_mcp.http.options import address_of, caller_at
from trio_mcp.session import Limits
from trio_mcp_transports.http import HttpLimits, asgi_app
from trio_mcp_transports.hypercorn.worker import caller_of

PROXY = "10.0.0.1"
LIMIT = 4
HALF = LIMIT // 2

Client = tuple[str, int] | None


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[AsgiPeer]:
    """Serve with room for `LIMIT` calls of all callers, and as many sessions."""
    stage = Stage(ServiceOptions(actors=Limits(actors=LIMIT)))
    app = asgi_app(stage.server, limits=HttpLimits(sessions=LIMIT), **options)
    async with served(app) as peer:
        yield peer
        stage.go_on.set()


async def sent(peer: AsgiPeer, message: Any, headers: Mapping[str, str], client: Client) -> Any:
    """Send a message from this address; return what has come back when nothing more happens."""
    lines = [(name.encode(), value.encode()) for name, value in headers.items()]
    reply = peer.start_raw(json.dumps(message).encode(), lines, "POST", "/mcp", client=client)
    await wait_all_tasks_blocked()
    return reply


async def is_run(peer: AsgiPeer, client: Client, **headers: str) -> bool:
    """Call a tool that runs until the end; return whether it does."""
    message, named = modern_call("wait")
    reply = await sent(
        peer, message, {**named, **{key.replace("_", "-"): each for key, each in headers.items()}}, client
    )
    assert reply.status in (0, 200, 503)
    return reply.status != 503


async def runs(peer: AsgiPeer, *calls: tuple[Client, Mapping[str, str]]) -> list[bool]:
    return [await is_run(peer, client, **headers) for client, headers in calls]


async def by_user(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-user")


async def test_without_a_principal_a_caller_is_a_connection() -> None:
    one, other = ("192.0.2.1", 5000), ("192.0.2.1", 5001)
    async with serving() as peer:
        assert await runs(peer, *[(one, {})] * 3) == [True, True, False]
        assert await runs(peer, *[(other, {})] * 2) == [True, False]


async def test_a_principal_is_one_caller_on_all_its_connections() -> None:
    alice, bob = {"x_user": "alice"}, {"x_user": "bob"}
    async with serving(authenticate=by_user) as peer:
        calls = [(("192.0.2.1", port), alice) for port in range(3)]
        assert await runs(peer, *calls) == [True, True, False]
        assert await runs(peer, (("192.0.2.1", 0), bob)) == [True]


async def test_behind_a_trusted_proxy_a_caller_is_the_address_that_it_names() -> None:
    one, other = {"x_forwarded_for": "192.0.2.1"}, {"x_forwarded_for": "192.0.2.2"}
    async with serving(trusted_proxies=[PROXY]) as peer:
        calls = [((PROXY, port), one) for port in range(3)]
        assert await runs(peer, *calls) == [True, True, False]
        # On a connection on which the first has called, as proxies use them.
        assert await runs(peer, ((PROXY, 0), other), ((PROXY, 0), other)) == [True, False]


async def test_what_an_untrusted_client_says_of_its_address_makes_it_no_other_caller() -> None:
    client = ("192.0.2.9", 5000)
    async with serving(trusted_proxies=[PROXY]) as peer:
        calls = [(client, {"x_forwarded_for": f"192.0.2.{number}"}) for number in range(3)]
        assert await runs(peer, *calls) == [True, True, False]


async def test_the_calls_of_a_session_count_for_the_connection_that_opened_it() -> None:
    opener, other = ("192.0.2.1", 5000), ("192.0.2.1", 5001)
    async with serving() as peer:
        opened = await sent(peer, initialize({}), JSON_HEADERS, opener)
        session = {**JSON_HEADERS, "mcp-session-id": opened.headers["mcp-session-id"]}
        for number, port in enumerate((6000, 6001, 6002)):
            reply = await sent(peer, legacy_call("wait", id=number), session, ("192.0.2.1", port))
            assert (reply.status == 503) is (number >= HALF)
        assert await runs(peer, (other, {})) == [True]


async def test_a_session_that_was_only_opened_makes_room_for_its_own_caller_alone() -> None:
    one, other = ("192.0.2.1", 5000), ("192.0.2.1", 5001)
    async with serving() as peer:
        others = await sent(peer, initialize({}), JSON_HEADERS, other)
        for _ in range(6):
            assert (await sent(peer, initialize({}), JSON_HEADERS, one)).status == 200
        session = {**JSON_HEADERS, "mcp-session-id": others.headers["mcp-session-id"]}
        assert (await sent(peer, {"jsonrpc": "2.0", "id": 9, "method": "ping"}, session, other)).status == 200


@pytest.mark.parametrize(
    ("client", "caller"),
    [
        (None, None),
        ((PROXY, 5000), None),
        (("::ffff:10.0.0.1", 5000), None),
        (("192.0.2.1", 5000), "192.0.2.1"),
        (("::ffff:192.0.2.1", 5000), "192.0.2.1"),
        (("2001:db8::1", 5000), "2001:db8::/64"),
        (("2001:db8::ffff:1", 5000), "2001:db8::/64"),
        (("fe80::1%eth0", 5000), "fe80::/64"),
    ],
)
def test_who_opens_connections_is_an_address_unless_many_clients_are_behind_it(
    client: Client, caller: str | None
) -> None:
    found = caller_of(client, [PROXY])
    assert (None if found is None else str(found)) == caller


def test_the_address_of_a_connection_is_that_which_a_proxy_would_name() -> None:
    address = address_of("192.0.2.1")
    assert address is not None
    assert caller_at(address) == caller_of(("192.0.2.1", 5000), ())
