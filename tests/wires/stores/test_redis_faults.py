"""What a store in Redis does when its server is away, frozen, killed, full, emptied, or is none that can be used."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
import trio
from certificates import make_certificate
from store_servers import RedisServer, free_port, redis_server
from store_talk import bury_none, dead, opened, thing
from waiting import until

from trio_mcp.errors import ConfigurationError
from trio_mcp.session import KeyRing, MemoryBudget
from trio_mcp.stores import (
    Append,
    Remove,
    SharedStore,
    StoreConflict,
    StoreError,
    StoreFull,
    open_store,
    redis_connection,
)
from trio_mcp.stores.redis import open_redis, problems_of
from trio_mcp.testing.contract.leaks import open_descriptors


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


# at the start


async def test_a_wrong_password_or_database_ends_the_start_and_the_error_does_not_say_that_the_server_is_away(
    server: RedisServer,
) -> None:
    missing = f"{server.url.removesuffix('/0')}/99"
    assert server.say("CONFIG", "SET", "requirepass", "right") == "+OK"
    for url in (server.url, server.url.replace("//", "//:wrong@"), missing.replace("//", "//:right@")):
        with pytest.raises(ConfigurationError, match=r"refused the connection.*password") as caught:
            async with open_redis(url):
                pass
        assert "cannot be reached" not in str(caught.value)
    async with open_redis(server.url.replace("//", "//:right@")) as store:
        await store.write([thing("a")])


def test_a_server_that_is_too_old_or_a_replica_ends_the_start() -> None:
    for info in (
        {"redis_version": "6.2.14"},
        {"redis_version": "7.2.4", "valkey_version": "7.2.5"},
        {"redis_version": "7.2.4", "role": "slave"},
    ):
        with pytest.raises(ConfigurationError):
            problems_of(info, "redis://here")
    assert not problems_of({"redis_version": "7.0.15", "role": "master"}, "redis://here")


async def test_a_start_that_fails_leaves_no_connection(server: RedisServer) -> None:
    server.say("REPLICAOF", "127.0.0.1", "1")
    before = open_descriptors()
    with pytest.raises(ConfigurationError):
        async with open_redis(server.url):
            pass
    assert open_descriptors() == before


async def test_a_server_that_evicts_is_warned_of(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    server.say("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    async with opened(server.url):
        pass
    assert "allkeys-lru" in caplog.text
    assert "noeviction" in caplog.text


async def test_a_primary_that_takes_writes_without_its_replicas_is_warned_of(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server("--replicaof", f"127.0.0.1 {server.port}"):
        server.say("CONFIG", "SET", "min-replicas-to-write", "1")
        await until(lambda: server.info("replication")["min_slaves_good_slaves"] == "1")
        async with opened(server.url):
            assert "min-replicas" not in caplog.text
        server.say("CONFIG", "SET", "min-replicas-to-write", "0")
        async with opened(server.url):
            assert "min-replicas-to-write to 1" in caplog.text


async def test_a_server_without_a_store_takes_that_of_the_environment(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIO_MCP_STORE", server.url)
    async with open_store(None, KeyRing([bytes(32)]), MemoryBudget(), "travel") as store:
        assert isinstance(store, SharedStore)
    async with open_store("memory:", KeyRing([bytes(32)]), MemoryBudget(), "travel") as store:
        assert not store.durable


async def test_a_server_is_reached_over_tls_or_over_a_socket(tmp_path: Path) -> None:
    pem = str(make_certificate(tmp_path / "localhost.pem"))
    port, path = free_port(), tmp_path / "redis.sock"
    files = ("--tls-cert-file", pem, "--tls-key-file", pem, "--tls-ca-cert-file", pem)
    with redis_server("--tls-port", str(port), "--tls-auth-clients", "no", *files, "--unixsocket", str(path)):
        for url in (f"rediss://localhost:{port}/0?ssl_ca_certs={pem}", f"unix://{path}"):
            async with open_store(url, KeyRing([bytes(32)]), MemoryBudget(), "travel") as store:
                await store.write([Remove("thing", "a"), thing("a")])
        with pytest.raises(ConfigurationError):
            async with open_redis(f"rediss://localhost:{port}/0"):
                pass


# while it runs


async def test_a_server_that_appends_to_a_file_loses_nothing_when_it_is_killed() -> None:
    with redis_server("--appendonly", "yes") as server:
        async with opened(server.url) as store:
            await store.write([thing("a")])
            await store.join("here")
            server.stop()
            server.start()
            assert await store.read("thing", "a") is not None
            with pytest.raises(StoreConflict):
                await store.write([thing("a")])


class Loading(threading.Thread):
    """A server that loads its data: it refuses each command after those of the connection, for so many connections."""

    def __init__(self, refusals: int) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}"
        self.refusals = refusals
        self.commands: list[bytes] = []

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rwb") as stream:
                self.serve(stream)

    def serve(self, stream: IO[bytes]) -> None:
        while line := stream.readline():
            words = []
            for _ in range(int(line[1:])):
                words.append(stream.read(int(stream.readline()[1:])))
                stream.readline()
            if words[0] == b"GET":
                self.commands.append(words[1])
                if self.refusals:
                    self.refusals -= 1
                    stream.write(b"-LOADING Redis is loading the dataset in memory\r\n")
                    stream.flush()
                    return
            stream.write(b":1\r\n" if words[0] == b"CLIENT" and words[1] == b"ID" else b"+OK\r\n")
            stream.flush()


@pytest.mark.parametrize("refusals", [1, 2])
def test_commands_that_a_server_refuses_because_it_loads_its_data_are_sent_once_more(refusals: int) -> None:
    server = Loading(refusals)
    server.start()
    connection = redis_connection.RedisConnection(redis_connection.Address(server.url))
    answers = connection.exchange([(b"GET", b"a"), (b"GET", b"b")])
    connection.close()
    server.listener.close()
    if refusals == 1:
        assert answers == [b"OK", b"OK"]
    else:
        assert [type(answer) for answer in answers] == [StoreError, StoreError]
    assert server.commands == ([b"a", b"a", b"b"] if refusals == 1 else [b"a", b"a"])


def test_a_connection_to_a_server_that_was_started_again_ends_no_connection_of_others(server: RedisServer) -> None:
    """A server that was started again numbers its connections from the first one on."""
    address = redis_connection.Address(server.url)
    connection = redis_connection.RedisConnection(address)
    (number,) = connection.exchange([(b"CLIENT", b"ID")])
    server.stop()
    server.start()
    bystanders = [redis_connection.RedisConnection(address)]
    try:
        while bystanders[-1].exchange([(b"CLIENT", b"ID")]) < [number]:
            bystanders.append(redis_connection.RedisConnection(address))
        before = [each.exchange([(b"CLIENT", b"ID")]) for each in bystanders]
        connection.exchange([(b"PING",)])
        assert [each.exchange([(b"CLIENT", b"ID")]) for each in bystanders] == before
    finally:
        for each in (connection, *bystanders):
            each.close()


async def test_scripts_that_the_server_has_forgotten_are_loaded_again(server: RedisServer) -> None:
    async with opened(server.url) as store:
        await store.write([thing("a")])
        server.say("SCRIPT", "FLUSH")
        await store.write([thing("b")])
        assert [record.key for record in await store.list("thing")] == ["a", "b"]


async def test_a_server_that_has_become_a_replica_refuses_writes_and_takes_them_when_it_is_primary_again(
    server: RedisServer,
) -> None:
    async with opened(server.url) as store:
        await store.write([thing("a")])
        server.say("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreError):
            await store.write([thing("b")])
        server.say("REPLICAOF", "NO", "ONE")
        await store.write([thing("b")])


async def test_a_full_server_is_a_full_store_and_reads_go_on(server: RedisServer) -> None:
    async with opened(server.url) as store:
        await store.write([thing("a")])
        server.say("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(StoreFull):
            await store.write([thing("b")])
        assert await store.read("thing", "a") is not None
        with pytest.raises(StoreFull):
            await store.write([Append("thing", "a", 1, [b"entry"])])
        assert await store.read("thing", "b") is None
        server.say("CONFIG", "SET", "maxmemory", "0")
        await store.write([thing("b")])


async def test_a_full_server_still_tells_which_processes_live(server: RedisServer) -> None:
    """Else nobody could take over what a dead process has, as long as the server is full."""
    async with opened(server.url) as store, opened(server.url) as other:
        server.say("CONFIG", "SET", "maxmemory", "1")
        await other.join("other")
        await dead(store, "a stranger")
        assert await store.nodes() == {"other": b""}
        assert not await store.bury("other")


@pytest.mark.parametrize("setting", [("save", '"3600 1"'), ("min-replicas-to-write", "1")], ids=["disk", "replicas"])
async def test_a_server_that_takes_no_writes_lists_what_it_has(server: RedisServer, setting: tuple[str, str]) -> None:
    async with opened(server.url) as store:
        await store.write([thing("a"), thing("b", expires_at=time.time() + 0.1)])
        await trio.sleep(0.2)
        if setting[0] == "save":
            server.folder.rmdir()
            server.say("BGSAVE")
            await until(lambda: server.info("persistence")["rdb_last_bgsave_status"] == "err")
        server.say("CONFIG", "SET", *setting)
        with pytest.raises(StoreFull if setting[0] == "save" else StoreError):
            await store.write([thing("c")])
        assert [record.key for record in await store.list("thing")] == ["a"]
        server.folder.mkdir(exist_ok=True)


async def test_a_write_whose_connection_is_cut_has_an_unknown_outcome_and_the_next_one_is_made(
    server: RedisServer,
) -> None:
    async with opened(server.url) as store:
        for number in range(20):
            server.say("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            # Mostly it is seen that the server has closed the connection, before anything is sent.
            with contextlib.suppress(StoreError):
                await store.write([thing(f"{number}")])
        await store.write([thing("last")])
        assert await store.read("thing", "last") is not None


# processes


async def test_a_store_that_was_emptied_buries_no_living_process_and_goes_on(server: RedisServer) -> None:
    async with opened(server.url) as store, opened(server.url) as other:
        await store.join("here")
        await other.join("other", b"about")
        await dead(store, "a stranger")
        server.say("FLUSHALL")
        await bury_none((store, "other"), seconds=3)
        assert (await store.nodes())["other"] == b"about"
        await other.write([thing("a")])


async def test_every_key_expires(server: RedisServer) -> None:
    async with opened(server.url) as store:
        await store.join("here")
        await store.write([thing("a", expires_at=time.time() + 100), thing("b", expires_at=time.time() + 50)])
        await dead(store, "a stranger")
        connection = redis_connection.RedisConnection(store.address)
        (names,) = connection.exchange([(b"KEYS", b"*")])
        assert isinstance(names, list)
        lives = dict(zip(names, connection.exchange([(b"TTL", name) for name in names]), strict=True))
        connection.close()
    assert len(names) >= 6
    assert all(isinstance(life, int) and life > 0 for life in lives.values()), lives
    indexes = [life for name, life in lives.items() if b":i" in name]
    assert all(isinstance(life, int) and 90 <= life <= 100 for life in indexes)
