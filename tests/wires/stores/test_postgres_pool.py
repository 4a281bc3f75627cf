"""The store in PostgreSQL behind a pool that gives each transaction another connection to the server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
import trio
from store_servers import POOL_VARIABLE, InPool, PostgresServer, pool_of, postgres_server
from waiting import until

from trio_mcp.errors import ConfigurationError
from trio_mcp.stores import Put, Record, StoreTimeout
from trio_mcp.stores.postgres import open_postgres
from trio_mcp.stores.postgres_connection import Address, PostgresConnection, Request
from trio_mcp.testing.contract import StoreCase, StoreTrait, store_cases_of

BOUND = 30
ALONE = [case for case in store_cases_of(InPool()) if not case.rule.needs & {StoreTrait.SHARED, StoreTrait.LEASED}]
"""The rules without those of several processes, which take long and go by the same functions."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def pool_url(server: PostgresServer) -> Iterator[str]:
    with pool_of(server.url) as url, pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, POOL_VARIABLE, url)
        yield url


@pytest.mark.usefixtures("pool_url")
@pytest.mark.parametrize("case", ALONE, ids=str)
def test_contract(case: StoreCase, tmp_path: Path) -> None:
    case.run(tmp_path)


SLOW = (
    """create function slow() returns trigger language plpgsql as $$
    begin
      if new.key = 'late' then perform pg_sleep(2.5); end if;
      return new;
    end $$""",
    "create trigger slow before insert on trio_mcp.records for each row execute function slow()",
)
"""Lets a write take longer than a store waits for it."""
SLEEPING = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'"


@pytest.mark.parametrize("behind", ["nothing", "pool"])
async def test_what_was_given_up_is_not_made_after_what_follows(
    server: PostgresServer, pool_url: str, behind: str
) -> None:
    with trio.fail_after(BOUND), psycopg.connect(server.url, autocommit=True) as admin:
        async with open_postgres(pool_url if behind == "pool" else server.url) as store:
            server.say(*SLOW)
            try:
                with pytest.raises(StoreTimeout):
                    await store.write([Put(Record("thing", "late", b""))])
                await store.write([Put(Record("thing", f"behind {behind}", b""))])
                await until(lambda: admin.execute(SLEEPING).fetchone() == (0,))
                assert await store.read("thing", "late") is None
            finally:
                server.say("drop function slow cascade")


async def test_it_sets_nothing_on_the_connections_which_other_programs_get_after_it(pool_url: str) -> None:
    with trio.fail_after(BOUND):
        async with open_postgres(pool_url) as store:
            await store.write([Put(Record("thing", "b", b""))])
            with psycopg.connect(pool_url.partition("?")[0], autocommit=True, prepare_threshold=None) as other:
                assert {other.execute("show lock_timeout").fetchone() for _ in range(6)} == {("0",)}


def test_the_transaction_of_another_program_is_not_ended(pool_url: str) -> None:
    """The connection to the server that it has from the pool still shows under the label of who had it before."""
    ours = PostgresConnection(Address(pool_url))
    ask = Request("select pg_backend_pid()", (), list)
    try:
        had = {ours.carried_out([ask])[0].unwrap()[0][0] for _ in range(10)}  # type: ignore[index]
        with psycopg.connect(pool_url.partition("?")[0]) as other:
            assert other.execute("select pg_backend_pid()").fetchone() in [(pid,) for pid in had]
            ours.close()
            ours.carried_out([ask])
            assert other.execute("select 1").fetchone() == (1,)
    finally:
        ours.close()


async def test_a_second_url_that_leads_to_another_database_ends_the_start_also_if_that_has_a_store(
    server: PostgresServer, pool_url: str
) -> None:
    server.say("create database other")
    elsewhere = server.url.rpartition("/")[0] + "/other"
    async with open_postgres(elsewhere):
        pass
    with pytest.raises(ConfigurationError, match="another database"):
        async with open_postgres(f"{pool_url.partition('?')[0]}?notify={quote(elsewhere, safe='')}"):
            pass


async def test_a_second_url_needs_no_rights_but_to_connect(server: PostgresServer, pool_url: str) -> None:
    server.say("create role listener login")
    listener = server.url.replace("postgres@", "listener@")
    async with open_postgres(f"{pool_url.partition('?')[0]}?notify={quote(listener, safe='')}"):
        pass


@pytest.mark.parametrize("given", ["host=db password=hidden", "redis://:hidden@db/0", ""])
def test_a_second_url_that_is_none_is_an_error_which_shows_nothing_of_it(given: str) -> None:
    with pytest.raises(ConfigurationError, match="notify") as caught:
        Address(f"postgresql://pool/shop?notify={quote(given, safe='')}")
    assert "hidden" not in str(caught.value)
