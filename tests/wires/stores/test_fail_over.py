"""A fail-over: another server is there at the address of the store, with all that it had been sent but the last writes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from store_servers import PostgresServer, RedisServer, postgres_server, redis_server
from store_talk import BOUND, bury_none, dead, open_at, thing, written

from trio_mcp.stores import Append, Expect, Missed, Notice, StoreConflict

FILE = ("--save", "", "--appendonly", "yes")


class Pair:
    """A primary, and what takes its place."""

    def __init__(self, url: str) -> None:
        self.url = url

    def part(self) -> None:
        """Let nothing more reach the one that will take over."""
        raise NotImplementedError

    def fail_over(self) -> None:
        """End the primary, and let the other one take its address."""
        raise NotImplementedError


class RedisPair(Pair):
    def __init__(self, primary: RedisServer, replica: RedisServer) -> None:
        super().__init__(primary.url)
        self._primary, self._replica = primary, replica

    def part(self) -> None:
        self._primary.say("SET", "mark", "1")
        # Behind everything that was written before.
        until = time.monotonic() + BOUND
        while self._replica.say("EXISTS", "mark") != ":1":
            assert time.monotonic() < until, "the replica does not follow"
            time.sleep(0.02)
        # What came with the first copy is in its file only when that was written whole.
        writing = ("aof_rewrite_in_progress", "aof_rewrite_scheduled")
        while any(self._replica.info("persistence")[each] != "0" for each in writing):
            assert time.monotonic() < until, "the replica does not write its file"
            time.sleep(0.02)
        assert self._replica.say("REPLICAOF", "NO", "ONE") == "+OK"

    def fail_over(self) -> None:
        self._primary.stop()
        self._replica.stop()
        self._replica.port, self._replica.options = self._primary.port, FILE
        self._replica.start()


class PostgresPair(Pair):
    """Its standby is a copy of the files of the primary."""

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__(primary.url)
        self._primary = primary
        self._files, self._copy = primary.folder / "data", primary.folder / "standby"

    def part(self) -> None:
        self._primary.stop()
        shutil.copytree(self._files, self._copy, copy_function=copied)
        if self._primary.user:
            for each in [self._copy, *self._copy.rglob("*")]:
                shutil.chown(each, "postgres")
        self._primary.start()

    def fail_over(self) -> None:
        self._primary.stop()
        shutil.rmtree(self._files)
        self._copy.rename(self._files)
        self._primary.start()


def copied(source: str, target: str) -> str:
    return shutil.copy2(source, target) if not Path(source).is_socket() else target


@contextmanager
def redis_pair() -> Iterator[RedisPair]:
    with redis_server(*FILE) as primary, tempfile.TemporaryDirectory() as folder:
        replica = RedisServer(Path(folder), *FILE, "--replicaof", "127.0.0.1", str(primary.port))
        replica.start()
        try:
            yield RedisPair(primary, replica)
        finally:
            replica.stop()


@contextmanager
def postgres_pair() -> Iterator[PostgresPair]:
    with postgres_server() as primary:
        yield PostgresPair(primary)


@pytest.fixture(params=[redis_pair, postgres_pair], ids=["redis", "postgres"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with request.param() as made:
        yield made


async def test_what_was_replicated_is_there_and_no_living_process_is_taken_for_dead(pair: Pair) -> None:
    with trio.fail_after(BOUND):
        async with open_at(pair.url) as store, open_at(pair.url) as other, other.listen() as notices:
            await store.join("here")
            await other.join("other", b"about")
            await dead(store, "a stranger")
            await store.write([thing("kept"), Append("log", "l", 1, [b"one"])])
            await trio.to_thread.run_sync(pair.part)
            await written(store, "lost")
            await store.write([thing("kept", version=1), Append("log", "l", 2, [b"two"])])
            await trio.to_thread.run_sync(pair.fail_over)
            await bury_none((store, "other"), (other, "here"), seconds=4)
            await written(other, "after")
            assert (store.lapses, other.lapses) == (0, 0)
            assert (await store.nodes())["other"] == b"about"
            kept = await store.read("thing", "kept")
            assert kept is not None
            assert kept.version == 1
            assert await store.read("thing", "lost") is None
            assert await store.entries("log", "l", 0, 10) == [b"one"]
            while await anext(notices) is not Missed.MISSED:
                pass
            await store.announce("after", b"")
            while await anext(notices) != Notice("after", b""):
                pass


async def test_a_write_that_relies_on_a_lost_one_is_a_conflict(pair: Pair) -> None:
    with trio.fail_after(BOUND):
        async with open_at(pair.url) as store:
            await store.write([thing("claim")])
            await trio.to_thread.run_sync(pair.part)
            await written(store, "new")
            await store.write([thing("claim", version=1)])
            await trio.to_thread.run_sync(pair.fail_over)
            await written(store, "after")
            for key, version in (("claim", 2), ("new", 1)):
                with pytest.raises(StoreConflict):
                    await store.write([Expect("thing", key, version), thing("step")])
            assert await store.read("thing", "step") is None
