"""Servers that tests start for themselves: on a free port, with a temporary folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import pytest

from trio_mcp.storage import Store
from trio_mcp.stores.redis import open_redis
from trio_mcp.testing.contract.store import StoreTrait

START_SECONDS: Final = 20
REDIS_VARIABLE: Final = "TRIO_MCP_TEST_REDIS"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class RedisServer:
    """A Redis server of a test."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip(
                "redis-server is not installed (apt-get install redis-server): the store in Redis is NOT TESTED"
            )
        command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), *self.options]
        self.process = subprocess.Popen([*command, "--loglevel", "warning"], stdout=subprocess.DEVNULL)
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            try:
                if self.say("PING") == "+PONG":
                    return
            except OSError:
                time.sleep(0.02)
        raise AssertionError("redis-server does not start")

    def say(self, *words: str) -> str:
        """Send a command to the server, and return the first line of its answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(" ".join(words).encode() + b"\r\n")
            return connection.makefile().readline().strip()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def redis_server(*options: str) -> Iterator[RedisServer]:
    """Start a server that keeps nothing, unless options say otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder), *(options or ("--save", "", "--appendonly", "no")))
        server.start()
        try:
            yield server
        finally:
            server.stop()


class InRedis:
    name = "redis"
    traits = frozenset(StoreTrait)

    @asynccontextmanager
    async def open(self, place: Path) -> AsyncIterator[Store]:
        namespace = hashlib.sha256(str(place).encode()).hexdigest()[:16]
        async with open_redis(f"{os.environ[REDIS_VARIABLE]}?namespace={namespace}") as store:
            yield store
