"""What a store on a network does when its server is away, frozen, killed, or is none that can be used, whichever it is."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio
from store_servers import PostgresServer, RedisServer, postgres_server, redis_server
from store_talk import BOUND, bury_none, dead, open_at, opened, thing, written

from trio_mcp.errors import ConfigurationError
from trio_mcp.session import KeyRing, MemoryBudget
from trio_mcp.stores import Missed, Notice, Remove, StoreError, StoreTimeout, listening, open_store

KEYS = KeyRing([bytes(32)])


@pytest.fixture(scope="module", params=[redis_server, postgres_server], ids=["redis", "postgres"])
def made(request: pytest.FixtureRequest) -> Iterator[RedisServer | PostgresServer]:
    with request.param() as server:
        yield server


@pytest.fixture
def server(made: RedisServer | PostgresServer) -> RedisServer | PostgresServer:
    """The server of this module, with nothing in it."""
    made.say(*(["FLUSHALL"] if isinstance(made, RedisServer) else ["drop schema if exists trio_mcp cascade"]))
    return made


@contextmanager
def frozen(server: RedisServer | PostgresServer) -> Iterator[None]:
    server.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.signal(signal.SIGCONT)


# at the start


@pytest.mark.parametrize("scheme", ["redis", "postgresql"])
async def test_a_server_that_is_away_ends_the_start_and_the_error_names_it_without_its_password(scheme: str) -> None:
    with pytest.raises(ConfigurationError, match=r"127\.0\.0\.1") as caught:
        async with open_at(f"{scheme}://user:secret@127.0.0.1:1/0"):
            pass
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://host:port/0",
        "redis://127.0.0.1?socket_timeout=soon",
        "rediss://127.0.0.1?ssl_cert_reqs=soon",
        "postgresql://127.0.0.1/shop?nonsense=1",
    ],
)
async def test_a_url_that_cannot_be_read_ends_the_start(url: str) -> None:
    with pytest.raises(ConfigurationError):
        async with open_at(url):
            pass


@pytest.mark.parametrize(("kind", "package"), [("redis", "redis"), ("postgresql", "psycopg")])
def test_without_its_package_the_error_names_the_extra(kind: str, package: str) -> None:
    code = (
        f"import sys; sys.modules['{package}'] = None\n"
        "from trio_mcp.stores.opening import find_store\n"
        f"try: find_store('{kind}')\n"
        "except ValueError as error: print(error)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"trio-mcp[{kind.removesuffix('ql')}]" in shown.stdout


async def test_two_servers_in_one_database_see_nothing_of_each_other(server: RedisServer | PostgresServer) -> None:
    with trio.fail_after(BOUND):
        async with (
            open_store(server.url, KEYS, MemoryBudget(), "travel") as travel,
            open_store(server.url, KEYS, MemoryBudget(), "shop") as shop,
            open_store(f"{server.url}?namespace=travel", KEYS, MemoryBudget(), "other") as same,
        ):
            await travel.write([thing("a")])
            assert await shop.read("thing", "a") is None
            assert await same.read("thing", "a") is not None


# while it runs


async def test_a_server_that_does_not_answer_is_a_timeout_after_a_second_and_what_waits_behind_fails_too(
    server: RedisServer | PostgresServer,
) -> None:
    outcomes: list[type[StoreError]] = []
    async with opened(server.url) as store:

        async def fail(key: str) -> None:
            with pytest.raises(StoreError) as caught:
                await store.write([thing(key)])
            outcomes.append(caught.type)

        await store.write([thing("a")])
        with frozen(server):
            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                for number in range(200):
                    nursery.start_soon(fail, f"{number}")
            assert trio.current_time() - began < 3
            assert set(outcomes) == {StoreTimeout}
        await written(store, "a")


async def test_what_was_given_up_is_not_made_after_what_follows(server: RedisServer | PostgresServer) -> None:
    """A server that was frozen still finds the commands in the socket of a connection that was closed."""
    async with opened(server.url) as store:
        await store.write([thing("a")])
        for _ in range(3):
            with frozen(server), pytest.raises(StoreTimeout):
                await store.write([Remove("thing", "a"), thing("a", b"late")])
            await store.write([Remove("thing", "a"), thing("a", b"newer")])
            await trio.sleep(0.1)
            record = await store.read("thing", "a")
            assert record is not None
            assert record.value == b"newer"


async def test_a_server_that_was_killed_fails_writes_until_it_is_back_and_then_the_store_goes_on(
    server: RedisServer | PostgresServer,
) -> None:
    async with opened(server.url) as store:
        await store.write([thing("a")])
        server.stop()
        for use in (store.write([thing("b")]), store.read("thing", "a"), store.bury("other")):
            with pytest.raises(StoreError):
                await use
        server.start()
        # Nothing was sent over a connection that the server had closed, so that this is made at once.
        await store.write([thing("b")])
        kept = ["b"] if isinstance(server, RedisServer) else ["a", "b"]
        assert [record.key for record in await store.list("thing")] == kept


async def test_no_process_is_buried_because_of_an_outage(server: RedisServer | PostgresServer) -> None:
    """The leases lapse while the server is frozen, and it thaws before any process has renewed one."""
    async with opened(server.url) as store, opened(server.url) as other:
        await store.join("here")
        await other.join("other")
        await dead(store, "a stranger")
        with frozen(server):
            await trio.sleep(3)
        await bury_none((store, "other"), (other, "here"), seconds=2)
        await written(store, "a")


async def test_a_burial_that_a_frozen_server_finds_in_its_socket_is_too_late(
    server: RedisServer | PostgresServer,
) -> None:
    """It was sent before any renewal that waits there too, and a server that thaws may carry it out first."""
    async with opened(server.url) as store, opened(server.url) as other:
        await other.join("other")
        await dead(store, "a stranger")
        with frozen(server):
            with pytest.raises(StoreTimeout):
                await store.bury("other")
            await trio.sleep(1)
        await bury_none((store, "other"), seconds=1)
        assert other.lapses == 0


async def test_the_clock_of_this_machine_does_not_count(
    server: RedisServer | PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    def ahead() -> float:
        return time.time() + 3600

    async with opened(server.url) as store, opened(server.url, ahead) as other:
        until = time.time() + 100
        await store.write([thing("a", expires_at=until)])
        await other.write([thing("b", expires_at=until + 3600)])
        assert [round(record.expires_at - until) for record in await store.list("thing")] == [0, 0]
        seen = await other.read("thing", "a")
        assert seen is not None
        assert round(seen.expires_at - until) == 3600
        await store.join("here")
        await other.join("other")
        await dead(store, "a stranger")
        assert not await other.bury("here")
        assert not await store.bury("other")
    assert isinstance(server, PostgresServer) or "differs by" in caplog.text


async def test_a_listener_learns_that_it_may_have_missed_some_when_its_connection_was_lost(
    server: RedisServer | PostgresServer,
) -> None:
    async with opened(server.url) as store, store.listen() as notices:
        await store.announce("one", b"")
        assert await anext(notices) == Notice("one", b"")
        server.stop()
        server.start()
        assert await anext(notices) is Missed.MISSED
        await store.announce("two", b"")
        assert await anext(notices) == Notice("two", b"")


async def test_a_listener_whose_connection_has_become_silent_gets_another_one(
    server: RedisServer | PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that drops a connection tells nobody."""
    monkeypatch.setattr(listening, "PROBE_SECONDS", 0.1)
    async with opened(server.url) as store, store.listen() as notices:
        await store.announce("one", b"")
        assert await anext(notices) == Notice("one", b"")
        with frozen(server):
            await trio.sleep(2)
        assert await anext(notices) is Missed.MISSED
        await store.announce("two", b"")
        assert await anext(notices) == Notice("two", b"")
