"""Connections to Redis: each is used by one thread, and sends a batch of commands as one pipeline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias, cast
from urllib.parse import parse_qs, urlencode

import redis
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool
from redis.exceptions import (
    BusyLoadingError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)
from redis.retry import Retry

from ..base.logs import RepeatedRecords, peer_logger
from ..base.values import shown_url
from ..errors import ConfigurationError
from ..storage import StoreError, StoreFull, StoreTimeout
from .leased import NotAdmitted
from .opening import split_url
from .redis_scripts import ALL

ANSWER_SECONDS: Final = 1.0
"""How long the server may take to answer, or to accept a connection."""
NOT_DONE: Final = (BusyLoadingError, MasterDownError, NoScriptError, ReadOnlyError)
"""What a server answers that has not done what it was asked for, and that another connection may lead past."""

Argument: TypeAlias = bytes | int
Command: TypeAlias = Sequence[Argument]

logger = peer_logger("trio_mcp.stores")


def not_connected(name: str, error: redis.RedisError) -> StoreError:
    """Return the error of a connection that could not be made."""
    said = str(error).rstrip(".")
    # Some errors of a login are of the class of lost connections.
    if isinstance(error, ResponseError | redis.AuthenticationError):
        return NotAdmitted(f"the store {name} was reached, and refused the connection: {said}")
    return StoreError(f"the store {name} cannot be reached: {said}")


class Wire(Protocol):
    """What is used of a connection of redis-py, whose own types are incomplete."""

    @property
    def is_connected(self) -> bool: ...

    def connect(self) -> None: ...

    def disconnect(self) -> None: ...

    def can_read(self, timeout: float) -> bool: ...

    def pack_commands(self, commands: Sequence[Command]) -> list[bytes]: ...

    def send_packed_command(self, command: list[bytes], check_health: bool) -> None: ...

    def read_response(self, disable_decoding: bool) -> object: ...


class Address:
    """The server and the namespace that a URL names.

    Args:
        url: as redis-py reads it; `namespace` may be in its query.

    Raises:
        ConfigurationError: it cannot be read.
    """

    def __init__(self, url: str) -> None:
        parts = split_url(url)
        query = parse_qs(parts.query, keep_blank_values=True)
        self.has_namespace = "namespace" in query
        self.namespace = query.pop("namespace", ["trio_mcp"])[0]
        options = urlencode(query, doseq=True)
        # `urlunsplit` drops the slashes of `unix:///path`, which redis-py wants.
        self._url = f"{parts.scheme}://{parts.netloc}{parts.path}{options and '?'}{options}"
        self.name = shown_url(url.partition("?")[0])
        try:
            self.connection()
        except (ValueError, TypeError, redis.RedisError) as error:
            raise ConfigurationError(f"the store {self.name} is not a URL of Redis: {error}") from None

    @property
    def prefix(self) -> bytes:
        """What the name of each key begins with. The braces are the hash tag of a cluster."""
        return b"{trio_mcp:%b}:" % self.namespace.encode()

    def connection(self) -> Wire:
        """Return a new connection, which is not connected yet."""
        pool: ConnectionPool = ConnectionPool.from_url(
            self._url,
            protocol=2,
            socket_timeout=ANSWER_SECONDS,
            socket_connect_timeout=ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 0),
            client_name="trio_mcp",
        )
        return cast("Wire", pool.make_connection())


class RedisConnection:
    """A connection that one thread uses, and that is replaced when it fails."""

    def __init__(self, address: Address) -> None:
        self._name = address.name
        self._connection = address.connection()
        self._before: tuple[int, bytes] | None = None
        """The number of the connection before this one, and the run of the server that gave it."""
        self._records = RepeatedRecords(logger)

    def exchange(self, commands: Sequence[Command]) -> list[object]:
        """Send commands as one pipeline; return the answers, a `StoreError` for what the server refused.

        Commands that certainly were not carried out are sent once more, over a new connection.

        Raises:
            StoreTimeout: the server does not answer in time.
            StoreError: it cannot be reached; nothing was sent.
        """
        answers = self._exchange(commands)
        again = [number for number, answer in enumerate(answers) if isinstance(answer, NOT_DONE)]
        if again:
            self._connection.disconnect()
            for number, answer in zip(again, self._exchange([commands[number] for number in again]), strict=True):
                answers[number] = answer
        return [self._refusal(answer) if isinstance(answer, redis.RedisError) else answer for answer in answers]

    def _refusal(self, error: redis.RedisError) -> StoreError:
        if isinstance(error, OutOfMemoryError):
            return StoreFull(f"the store {self._name} is full: {error}")
        if str(error).startswith("MISCONF"):
            return StoreFull(f"the store {self._name} cannot write to its disk: {error}")
        return StoreError(f"the store {self._name} refused: {error}")

    def _exchange(self, commands: Sequence[Command]) -> list[object]:
        self._connect()
        answers: list[object] = []
        try:
            self._connection.send_packed_command(self._connection.pack_commands(commands), check_health=False)
            # One by one: those before a failure are known.
            for _ in commands:
                answers.append(self._answer())  # noqa: PERF401
        except BusyLoadingError as error:
            # The first of those that it refuses closes the connection; the others would be refused in the same way.
            answers += [error] * (len(commands) - len(answers))
        except redis.TimeoutError:
            raise StoreTimeout(f"the store {self._name} took more than {ANSWER_SECONDS:g} second to answer") from None
        except redis.ConnectionError as error:
            lost = StoreError(f"the connection to the store {self._name} was lost before it had answered: {error}")
            answers += [lost] * (len(commands) - len(answers))
        return answers

    def _answer(self) -> object:
        try:
            return self._connection.read_response(disable_decoding=True)
        except ResponseError as error:
            return error

    def _connect(self) -> None:
        """Make sure that there is a connection which the server has not closed. Raises `StoreError`."""
        try:
            if self._connection.is_connected and not self._is_closed():
                return
            self._connection.disconnect()
            self._connection.connect()
            self._introduce()
        except redis.RedisError as error:
            self._connection.disconnect()
            raise not_connected(self._name, error) from None

    def _is_closed(self) -> bool:
        try:
            # Nothing should come by itself: what comes is the end, or the answer to a command that was given up.
            return self._connection.can_read(0)
        except redis.RedisError:
            return True

    def _introduce(self) -> None:
        """Load the scripts, which a restart forgets, and let the server forget the connection before this one."""
        loads = [(b"SCRIPT", b"LOAD", script.encode()) for script in ALL]
        number, said, *answers = self._answers([(b"CLIENT", b"ID"), (b"INFO", b"server"), *loads])
        for answer in answers:
            if isinstance(answer, ResponseError):
                raise answer
        run = run_of(said)
        # Commands that were sent over that one and given up must not be carried out after those that follow. A server that
        # was frozen still finds them in its socket. In another run of it the number is that of somebody else.
        kills = [] if self._before is None or self._before[1] != run else [(b"CLIENT", b"KILL", b"ID", self._before[0])]
        killed = [answer for answer in self._answers(kills) if isinstance(answer, ResponseError)]
        self._before = (number, run) if isinstance(number, int) else None
        if self._before is None or any("No such client" not in str(answer) for answer in killed):
            self._records.log(
                "the store %s does not let this user use CLIENT ID and CLIENT KILL: a write that was given up may be made late",
                self._name,
            )

    def _answers(self, commands: Sequence[Command]) -> list[object]:
        self._connection.send_packed_command(self._connection.pack_commands(commands), check_health=False)
        return [self._answer() for _ in commands]

    def close(self) -> None:
        """Close the connection."""
        self._records.close()
        self._connection.disconnect()


def run_of(said: object) -> bytes:
    """Return what tells this run of a server from others, by its answer to INFO; nothing if it does not say."""
    found = re.search(rb"^run_id:(\w+)", said, re.MULTILINE) if isinstance(said, bytes) else None
    return found[1] if found else b""


class RedisSubscription:
    """A connection that receives what is published to a channel. Raises `StoreError` if it cannot be made."""

    def __init__(self, address: Address, channel: bytes) -> None:
        self._name = address.name
        self._connection = address.connection()
        self._unread: list[bytes] = []
        try:
            self._connection.connect()
            self._connection.send_packed_command(
                self._connection.pack_commands([(b"SUBSCRIBE", channel)]), check_health=False
            )
            self._connection.read_response(disable_decoding=True)
        except redis.RedisError as error:
            self._connection.disconnect()
            raise not_connected(self._name, error) from None

    def receive(self, seconds: float) -> Sequence[bytes]:
        """Wait for a notice; return none if none comes in time. Raises `StoreError` if the connection is lost."""
        if unread := self._unread:
            self._unread = []
            return unread
        try:
            if not self._connection.can_read(seconds):
                return ()
            return self._next()[2:]
        except redis.RedisError as error:
            raise self._lost(error) from None

    def probe(self) -> None:
        """Ask whether the server is still there. Raises `StoreError`."""
        try:
            self._connection.send_packed_command(self._connection.pack_commands([(b"PING",)]), check_health=False)
            while (answer := self._next())[0] != b"pong":
                self._unread += answer[2:]
        except redis.RedisError as error:
            raise self._lost(error) from None

    def _next(self) -> list[bytes]:
        """Return the kind, the channel and the content of what comes next; the answer to a PING has no channel."""
        return cast("list[bytes]", self._connection.read_response(disable_decoding=True))

    def _lost(self, error: redis.RedisError) -> StoreError:
        return StoreError(f"the connection to the store {self._name} was lost: {error}")

    def close(self) -> None:
        """Close the connection."""
        self._connection.disconnect()
