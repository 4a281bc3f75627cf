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
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, NoReturn
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from serving import free_port

from trio_mcp.stores import Store
from trio_mcp.stores.postgres import open_postgres
from trio_mcp.stores.redis import open_redis
from trio_mcp.testing.contract import StoreTrait

START_SECONDS: Final = 20
REDIS_VARIABLE: Final = "TRIO_MCP_TEST_REDIS"
POSTGRES_VARIABLE: Final = "TRIO_MCP_TEST_POSTGRES"
POOL_VARIABLE: Final = "TRIO_MCP_TEST_POSTGRES_POOL"
REQUIRED: Final = "TRIO_MCP_TEST_DATABASES"
"""Set by `.ci/run` where the servers are installed: a test that does not find one fails then."""


def missing(program: str, package: str) -> NoReturn:
    """Skip the test, or fail it where `.ci/run` has installed the servers."""
    text = f"{program} is not installed (apt-get install {package}): what needs it is NOT TESTED"
    if REQUIRED in os.environ:
        pytest.fail(text)
    pytest.skip(text)


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
            missing("redis-server", "redis-server")
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

    def info(self, section: str) -> dict[str, str]:
        """Return what the server says of itself."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(f"INFO {section}\r\n".encode())
            answer = connection.makefile(newline="\r\n")
            text = answer.read(int(answer.readline().removeprefix("$")))
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

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


class PostgresServer:
    """A PostgreSQL server of a test, which belongs to a user without rights where tests are run as root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if not programs:
            missing("PostgreSQL", "postgresql")
        self.bin = programs[-1].parent
        self.user: dict[str, str] = {"user": "postgres"} if os.geteuid() == 0 else {}

    def make(self) -> None:
        if self.user:
            shutil.chown(self.folder, "postgres")
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
        command = [self.bin / "initdb", "-D", self.folder / "data", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", **self.user)  # type: ignore[call-overload]

    def start(self) -> None:
        command = [
            *(self.bin / "postgres", "-D", self.folder / "data", "-p", str(self.port), "-k", ""),
            *("-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"),
        ]
        self.process = subprocess.Popen(
            command,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            **self.user,  # type: ignore[call-overload]
        )
        await_server(self.url, "postgres")

    def say(self, *statements: str) -> None:
        """Carry out statements as the superuser."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the server."""
        for pid in self._pids:
            # One that was about to end may have ended.
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def limit_files(self, size: int | Literal["unlimited"]) -> None:
        """Let no file of the server grow over a size in bytes: PostgreSQL takes that for a full disk."""
        for pid in self._pids:
            # Its own user may do so. One that was about to end may have ended, which is a status.
            subprocess.run(["prlimit", "--pid", str(pid), f"--fsize={size}:"], cwd="/", check=False, **self.user)  # type: ignore[call-overload]

    @property
    def _pids(self) -> list[int]:
        return [self.process.pid, *children_of(self.process.pid)]

    def stop(self) -> None:
        """End it at once, without a checkpoint."""
        self.signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Start a server with an empty database."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        inner = Path(folder, "postgres")
        inner.mkdir()
        server = PostgresServer(inner)
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop()


class InPostgres:
    name = "postgres"
    variable = POSTGRES_VARIABLE
    traits = frozenset(StoreTrait)

    @asynccontextmanager
    async def open(self, place: Path) -> AsyncIterator[Store]:
        namespace = hashlib.sha256(str(place).encode()).hexdigest()[:16]
        url = os.environ[self.variable]
        async with open_postgres(f"{url}{'&' if '?' in url else '?'}namespace={namespace}") as store:
            yield store


class InPool(InPostgres):
    """In PostgreSQL behind a pool, which gives each transaction another connection to it."""

    name = "pool"
    variable = POOL_VARIABLE


@contextmanager
def pool_of(server_url: str) -> Iterator[str]:
    """Start a pool that gives each transaction another connection to a server; yield the URL of a store behind it."""
    program = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
    if program is None:
        missing("pgbouncer", "pgbouncer")
    port, server = free_port(), urlsplit(server_url)
    settings = f"""
[databases]
postgres = host=127.0.0.1 port={server.port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
server_round_robin = 1
"""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder, "pgbouncer.ini")
        file.write_text(settings)
        # It does not run as root.
        user = ["-u", "postgres"] if os.geteuid() == 0 else []
        process = subprocess.Popen([program, "-q", *user, str(file)], stderr=subprocess.DEVNULL, cwd="/")
        try:
            await_server(f"postgresql://postgres@127.0.0.1:{port}/postgres", "pgbouncer")
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres?notify={quote(server_url, safe='')}"
        finally:
            process.kill()
            process.wait()


def await_server(url: str, name: str) -> None:
    """Return when a server answers."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        try:
            with psycopg.connect(url) as connection:
                connection.execute("select 1")
        except psycopg.Error:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"{name} does not start")
