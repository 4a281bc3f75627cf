"""What `ServiceOptions(store=...)` means."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
from pages import Page
from store_makers import KEYS

from trio_mcp.errors import ConfigurationError
from trio_mcp.server import Server
from trio_mcp.session import KeyRing, MemoryBudget, ServiceOptions
from trio_mcp.stores import JournalStore, MemoryStore, Put, Record, Store, open_store, opening
from trio_mcp.stores.redis_connection import Address as RedisAddress
from trio_mcp.stores.sealed import SealedStore


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIO_MCP_KEYS", raising=False)


class Durable(MemoryStore):
    durable = True


@asynccontextmanager
async def open_durable(target: str) -> AsyncIterator[Store]:
    assert target == "//host/name"
    yield Durable()


@pytest.mark.parametrize("given", [None, "memory:"])
async def test_without_a_name_the_store_is_in_memory(given: str | None) -> None:
    memory = MemoryBudget(1_000_000)
    async with open_store(given, None, memory) as store:
        assert not store.durable
        await store.write([Put(Record("thing", "a", b"x"))])
        assert memory.drawn > 0
    assert memory.drawn == 0


@pytest.mark.parametrize("prefix", ["", "sqlite:"])
async def test_a_path_is_that_of_a_sqlite_file(tmp_path: Path, prefix: str) -> None:
    async with open_store(f"{prefix}{tmp_path}/state.db", KEYS, MemoryBudget()) as store:
        assert store.durable
        assert isinstance(store, SealedStore)
    assert (tmp_path / "state.db").exists()


async def test_a_durable_store_needs_keys_and_the_error_shows_how_to_make_one(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    for given in (str(path), Durable()):
        with pytest.raises(ConfigurationError) as caught:
            async with open_store(given, None, MemoryBudget()):
                pass
        assert "TRIO_MCP_KEYS" in str(caught.value)
        assert opening.MAKE_A_KEY in str(caught.value)
    assert not path.exists()
    assert opening.MAKE_A_KEY in Page("deployment").text


async def test_a_server_whose_store_has_no_keys_does_not_start(tmp_path: Path) -> None:
    server = Server("keyless", options=ServiceOptions(store=str(tmp_path / "state.db")))
    with pytest.raises(ConfigurationError):
        async with server.open_service():
            pass


async def test_a_store_that_is_open_is_used_as_it_is_and_sealed_if_it_is_durable() -> None:
    given = MemoryStore()
    async with open_store(given, None, MemoryBudget()) as store:
        assert store is given
    durable = Durable()
    async with open_store(durable, KEYS, MemoryBudget()) as store:
        await store.write([Put(Record("thing", "a", b"secret"))])
    record = await durable.read("thing", "a")
    assert record is not None
    assert b"secret" not in record.value


async def test_another_scheme_is_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("other", f"{__name__}:open_durable", opening.GROUP)
    monkeypatch.setattr(opening, "entry_points", lambda group: EntryPoints([entry]))
    async with open_store("other://host/name", KEYS, MemoryBudget()) as store:
        assert store.durable


SCHEMES = ("redis", "rediss", "postgresql")
UNENCODED = [(scheme, mark, "%2F", keys) for scheme in SCHEMES for mark in "/?#[\u2100" for keys in (KEYS, None)]
UNENCODED += [("postgresql", mark, "%25", KEYS) for mark in "%@ "]


@pytest.mark.parametrize(("scheme", "mark", "hint", "keys"), UNENCODED)
async def test_an_error_shows_nothing_of_a_password_that_is_not_encoded(
    scheme: str, mark: str, hint: str, keys: KeyRing | None
) -> None:
    with pytest.raises(ConfigurationError, match=hint) as raised:
        async with open_store(f"{scheme}://user:sec{mark}ret@host/0", keys, MemoryBudget()):
            pass
    assert not {"sec", "ret"} & {*re.findall(r"\w+", str(raised.value))}


@pytest.mark.parametrize("keys", [KEYS, None])
@pytest.mark.parametrize(
    "given",
    [
        "redis:secret@host",
        "redis//:secret@host/0",
        "unix:/secret",
        "postgresql:host=db password=secret",
        "postgres//secret",
    ],
)
async def test_an_error_shows_nothing_of_what_is_no_url(given: str, keys: KeyRing | None) -> None:
    with pytest.raises(ConfigurationError, match="://") as raised:
        async with open_store(given, keys, MemoryBudget()):
            pass
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("server", ["", "shop"])
def test_the_url_of_a_socket_names_its_path(server: str) -> None:
    target = "///run/redis.sock?db=2"
    address = RedisAddress(f"unix:{opening.with_namespace(target, server) if server else target}")
    assert address.connection().path == "/run/redis.sock"  # type: ignore[attr-defined]  of redis-py
    assert address.namespace == (server or "trio_mcp")


async def test_a_scheme_that_is_not_installed_ends_the_start() -> None:
    with pytest.raises(ConfigurationError, match="sqlite"):
        async with open_store("sqlit:x", KEYS, MemoryBudget()):
            pass


def test_a_store_is_a_path_or_has_its_methods() -> None:
    with pytest.raises(TypeError):
        ServiceOptions(store=5)  # type: ignore[arg-type]


async def test_the_store_of_a_server_is_that_of_its_calls(tmp_path: Path) -> None:
    server = Server("kept", options=ServiceOptions(store=str(tmp_path / "state.db"), keys=KEYS))
    async with server.open_service() as service:
        assert service.store is service.calls.store
        journals = service.calls.journals
        assert isinstance(journals, JournalStore)
        await journals.put("a", b"1", 100)
        await journals.put("a", b"2", 100)
        assert await journals.get("a") == b"2"
        assert await journals.get("b") is None


def test_a_server_without_such_a_store_loads_none() -> None:
    code = (
        "import sys, trio, trio_mcp.cli.commands.serve\n"
        "from trio_mcp import Server\n"
        "async def main():\n"
        "    async with Server('a').open_service(): pass\n"
        "trio.run(main)\n"
        "networked = {f'trio_mcp.stores.{name}' for name in ('batches', 'leased', 'redis', 'postgres')}\n"
        "print(sorted({'sqlite3', 'redis', 'psycopg', *networked} & sys.modules.keys()))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
