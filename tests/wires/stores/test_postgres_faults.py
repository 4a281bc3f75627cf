"""What a store in PostgreSQL does when its server is away, frozen, killed, full, read-only, or is none that can be used."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator
from types import SimpleNamespace

import psycopg
import pytest
import trio
from outcome import Value
from store_servers import PostgresServer, postgres_server
from store_talk import AnyStore, opened, thing, written
from waiting import until

from trio_mcp.errors import ConfigurationError
from trio_mcp.stores import (
    Notice,
    Put,
    Remove,
    StoreConflict,
    StoreError,
    StoreFull,
    postgres,
    postgres_connection,
    postgres_schema,
)
from trio_mcp.stores.leases import LEASE_SECONDS
from trio_mcp.stores.postgres import open_postgres

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def made() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def server(made: PostgresServer) -> PostgresServer:
    """The server of this module, with an empty database."""
    made.say("drop schema if exists trio_mcp cascade")
    return made


async def refused(store: AnyStore) -> None:
    """Write until the store does not take it."""
    try:
        while True:
            await store.write([Remove("thing", "a"), thing("a")])
    except StoreError:
        return


# at the start


async def test_an_unknown_user_or_database_ends_the_start_and_the_error_does_not_say_that_the_server_is_away(
    server: PostgresServer,
) -> None:
    for url in (server.url.replace("postgres@", "stranger@"), f"{server.url.rpartition('/')[0]}/nothing"):
        with pytest.raises(ConfigurationError, match=r"refused the connection.*password") as caught:
            async with open_postgres(url):
                pass
        assert "cannot be reached" not in str(caught.value)


async def test_a_user_who_may_not_make_the_schema_ends_the_start(server: PostgresServer) -> None:
    server.say("drop role if exists guest", "create role guest login")
    with pytest.raises(ConfigurationError, match="schema"):
        async with open_postgres(server.url.replace("postgres@", "guest@")):
            pass


async def test_a_server_that_takes_no_writes_ends_the_start(server: PostgresServer) -> None:
    async with opened(server.url):
        pass
    with pytest.raises(ConfigurationError, match="primary"):
        async with open_postgres(f"{server.url}?options=-c%20default_transaction_read_only%3Don"):
            pass


def test_a_server_that_is_too_old_ends_the_start() -> None:
    old = SimpleNamespace(info=SimpleNamespace(server_version=130_012))
    with pytest.raises(ConfigurationError, match="13"):
        postgres_connection.check_server(old, "postgresql://here")  # type: ignore[arg-type]


async def test_a_newer_schema_ends_the_start_and_an_older_one_is_brought_up_to_date(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(server.url) as store:
        await store.write([thing("a")])
    newer = (*postgres_schema.MIGRATIONS, "alter table trio_mcp.records add column note text")
    monkeypatch.setattr(postgres_connection, "MIGRATIONS", newer)
    async with opened(server.url) as store:
        assert await store.read("thing", "a") is not None
        server.say("select note from trio_mcp.records")
    monkeypatch.undo()
    with pytest.raises(ConfigurationError, match="newer version"):
        async with open_postgres(server.url):
            pass


async def test_several_that_make_the_same_schema_all_open_it(server: PostgresServer) -> None:
    async def use(key: str) -> None:
        async with opened(server.url) as store:
            await store.write([thing(key)])

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(use, f"{number}")
    async with opened(server.url) as store:
        assert len(await store.list("thing")) == 6


# while it runs


async def test_a_connection_that_the_server_has_closed_is_replaced_before_anything_is_sent(
    server: PostgresServer,
) -> None:
    async with opened(server.url) as store:
        for number in range(5):
            await store.write([thing(f"{number}")])
            server.say("select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'trio_mcp%'")
            await trio.sleep(0.05)
        assert len(await store.list("thing")) == 5


async def test_a_schema_that_was_dropped_is_made_again_with_the_next_connection(server: PostgresServer) -> None:
    async with opened(server.url) as store:
        await store.join("here", b"about")
        server.say(
            "drop schema trio_mcp cascade",
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'trio_mcp%'",
        )
        await trio.sleep(0.05)
        await written(store, "a")
        while not await store.nodes():  # noqa: ASYNC110  no event of ours
            await trio.sleep(0.05)
        assert await store.nodes() == {"here": b"about"}


async def test_a_server_that_takes_no_writes_for_a_while_refuses_them_and_reads_go_on(server: PostgresServer) -> None:
    async with opened(server.url) as store:
        await store.write([thing("a")])
        server.say("alter system set default_transaction_read_only = on", "select pg_reload_conf()")
        try:
            # The server takes the option over in its time.
            await refused(store)
            assert await store.read("thing", "a") is not None
        finally:
            server.say(
                "set default_transaction_read_only = off",
                "alter system reset default_transaction_read_only",
                "select pg_reload_conf()",
            )
        await written(store, "b")


async def test_a_write_that_fails_or_conflicts_leaves_the_others_of_its_batch(server: PostgresServer) -> None:
    outcomes: dict[str, type[Exception] | None] = {}

    async def write(store: AnyStore, put: Put) -> None:
        try:
            await store.write([put])
        except StoreError as error:
            outcomes[put.record.key] = type(error)
        else:
            outcomes[put.record.key] = None

    async with opened(server.url) as store:
        await store.write([thing("there")])
        puts = [thing("a"), thing("there"), thing("b"), thing("c", version=2**70), thing("\ud800"), thing("d\0")]
        async with trio.open_nursery() as nursery:
            for put in (*puts, *(thing(f"more {number}") for number in range(30))):
                nursery.start_soon(write, store, put)
    assert outcomes.pop("there") is StoreConflict
    assert [outcomes.pop(key) for key in ("c", "\ud800", "d\0")] == [StoreError] * 3
    assert set(outcomes.values()) == {None}


async def fill(store: AnyStore, size: int) -> None:
    """Write values of 1 MiB, and remove and write another one with each."""
    for number in range(size // MIB):
        await store.write([thing(f"{number}", secrets.token_bytes(MIB)), Remove("thing", "kept")])
        await store.write([thing("kept")])


async def test_a_full_disk_is_a_full_store_and_reads_and_what_fits_go_on() -> None:
    # Its log has files of 16 MiB. Less than a page of 8 KiB fits at the end of a larger one.
    limit = 16 * 1024 * 1024 + 4096
    with postgres_server() as server:
        async with opened(server.url) as store:
            await store.write([thing("kept"), thing("removed")])
            server.limit_files(limit)
            with pytest.raises(StoreFull):
                await fill(store, 2 * limit)
            # Of the write that did not fit, nothing was made.
            assert (await store.read("thing", "kept")) is not None
            await store.write([Remove("thing", "removed")])
            server.limit_files("unlimited")
            await store.write([thing("more", secrets.token_bytes(MIB))])


async def test_two_processes_that_write_the_same_records_in_another_order_both_go_on(server: PostgresServer) -> None:
    """Their transactions wait for each other; the database, or the limit of a lock, ends one of them."""

    async def write(store: AnyStore, *keys: str) -> None:
        for _ in range(20):
            for key in keys:
                await written(store, key)

    async with opened(server.url) as store, opened(server.url) as other:
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(write, store, f"{number}", f"{number + 1}")
                nursery.start_soon(write, other, f"{number + 1}", f"{number}")
        assert len(await store.list("thing")) == 9


async def test_what_another_program_sends_on_the_channel_of_the_notices_is_dropped(server: PostgresServer) -> None:
    """Every user of a database may send on each of its channels."""
    async with opened(server.url) as store, store.listen() as notices:
        for payload in ("x", "é", "Zm9!"):
            server.say(f"notify {store._channel}, '{payload}'")  # noqa: SLF001
        await store.announce("topic", b"content")
        assert await anext(notices) == Notice("topic", b"content")


def test_a_connection_that_cannot_be_used_is_closed(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[postgres_connection.LimitedConnection]()

    def refuse(connection: postgres_connection.LimitedConnection, _statement: object) -> None:
        made.append(connection)
        raise psycopg.errors.QueryCanceled("canceling statement")

    monkeypatch.setattr(postgres_connection.LimitedConnection, "execute", refuse)
    with pytest.raises(StoreError):
        postgres_connection.PostgresConnection(postgres_connection.Address(server.url)).carried_out([])
    assert [connection.closed for connection in made] == [True]


async def test_a_lease_is_renewed_while_much_has_expired(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()

    def drop_a_slice(_requests: object) -> list[Value[object]]:
        time.sleep(0.01)
        return [Value([(postgres_schema.SLICE if time.monotonic() < began + 5 else 0,)])]

    async with opened(server.url) as store:
        monkeypatch.setattr(store._sweeper, "carried_out", drop_a_slice)  # noqa: SLF001
        store._swept_at = -math.inf  # noqa: SLF001
        for _ in range(3):
            before = store.leases._renewed_at  # noqa: SLF001
            await until(lambda: store.leases._renewed_at != before, LEASE_SECONDS)  # noqa: B023, SLF001


async def test_what_has_expired_is_deleted(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "SWEEP_SECONDS", 0.1)
    monkeypatch.setattr(postgres_schema, "SLICE", 500)
    async with opened(server.url) as store:
        await store.write([thing(f"{number}", expires_at=time.time() + 0.1) for number in range(600)])
        with psycopg.connect(server.url, autocommit=True) as connection:
            await until(lambda: not connection.execute("select 1 from trio_mcp.records").fetchone())
