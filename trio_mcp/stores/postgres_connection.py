"""Connections to PostgreSQL: each is used by one thread, and carries out a batch in one transaction."""

from __future__ import annotations

import base64
import contextlib
import secrets
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
import psycopg.sql
from outcome import Error, capture
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo
from psycopg.errors import CannotConnectNow, DiskFull, ReadOnlySqlTransaction
from psycopg.rows import TupleRow

from ..base.named_tuples import NamedTuple
from ..base.values import shown_url
from ..errors import ConfigurationError
from ..storage import StoreError, StoreFull, StoreTimeout
from .batches import Outcomes
from .leased import NotAdmitted
from .opening import split_url
from .postgres_schema import MIGRATIONS, START

DriverError = psycopg.Error

ANSWER_SECONDS: Final = 1.0
"""How long the server may take to answer."""
CONNECT_SECONDS: Final = 2
"""How long it may take to connect: the least that libpq knows."""
MIGRATE_SECONDS: Final = 30.0
TERMINATE_MILLISECONDS: Final = 500
LEAST_VERSION: Final = 140_000
SCHEMES: Final = ("postgresql://", "postgres://")
OURS: Final = ("namespace", "notify")
"""What libpq does not know in the query of a URL."""
MIGRATION_LOCK: Final = 0x7472696F
"""The advisory lock of those who make or change the schema."""

Row: TypeAlias = TupleRow
Rows: TypeAlias = list[Row]
RV = TypeVar("RV")


class Request(NamedTuple):
    """A statement, and what makes a result of its rows."""

    statement: str
    arguments: Sequence[object]
    result: Callable[[Rows], object]


class Address:
    """The database and the namespace that a URL names.

    Args:
        url: as libpq reads it; `namespace` and `notify` may be in its query.

    Attributes:
        notices: where notices are received. It is another address if this one may be that of a pool which gives each transaction
            another connection to the server.

    Raises:
        ConfigurationError: it cannot be read.
    """

    def __init__(self, url: str) -> None:
        parts = split_url(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
        self.has_namespace = "namespace" in dict(options)
        self.namespace = dict(options).get("namespace", "trio_mcp")
        self.notices: Address = self
        if (notify := dict(options).get("notify")) is not None:
            # Nothing else is read as a URL: a connection string of libpq, say, would be shown with its password.
            if not notify.startswith(SCHEMES):
                raise ConfigurationError(
                    "notify= in the URL of a store is the URL of its database, postgresql://HOST/NAME"
                )
            self.notices = Address(notify)
        # libpq does not know a plus for a blank.
        others = urlencode([each for each in options if each[0] not in OURS], quote_via=quote)
        user, _, host = parts.netloc.rpartition("@")
        # Not by `urlunsplit`, which drops the slashes of an empty host.
        place = f"{parts.path}?{others}"
        self.name = shown_url(url.partition("?")[0])
        try:
            # Without the user first: libpq quotes what it cannot read, and that may be the password.
            make_conninfo(f"{parts.scheme}://{host}{place}")
        except psycopg.Error as error:
            raise ConfigurationError(f"the store {self.name} is not a URL of PostgreSQL: {one_line(error)}") from None
        try:
            self.conninfo = make_conninfo(f"{parts.scheme}://{parts.netloc}{place}")
        except psycopg.Error:
            self.conninfo = ""
        # It takes the first of two for the end of the password.
        if not self.conninfo or "@" in user:
            raise ConfigurationError(
                f"the user or the password of the store {self.name} has a character that must be encoded: write %25 for %, %40 "
                "for @ and %20 for a space"
            )


class LimitedConnection(psycopg.Connection[Row]):
    """A connection that waits for a limited time for each answer: libpq has no such limit."""

    limit = ANSWER_SECONDS

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Wait for what a generator of psycopg does, at most for `limit` seconds; close the connection if that is too short."""
        try:
            return super().wait(gen, interval, self.limit if timeout is None else timeout)
        except psycopg.errors._WaitTimeout:  # noqa: SLF001  it has no other name
            if timeout is None:
                # Or those who clean up would wait again.
                self.close()
            raise


def connect(address: Address, label: str = "trio_mcp") -> LimitedConnection:
    """Return a new connection, which the server shows under a label. Raises `StoreError`."""
    try:
        return LimitedConnection.connect(
            address.conninfo,
            autocommit=True,
            # The next transaction may come to another connection to the server, which does not have what was prepared.
            prepare_threshold=1 if address.notices is address else None,
            connect_timeout=CONNECT_SECONDS,
            application_name=label,
            client_encoding="utf8",
        )
    except psycopg.Error as error:
        raise not_connected(address.name, error) from None


def not_connected(name: str, error: psycopg.Error) -> StoreError:
    """Return the error of a connection that could not be made."""
    # libpq keeps no code of such an error. What the server itself has said has this word before it.
    if "FATAL:" in str(error):
        return NotAdmitted(f"the store {name} was reached, and refused the connection: {one_line(error)}")
    return StoreError(f"the store {name} cannot be reached: {one_line(error)}")


class PostgresConnection:
    """A connection that one thread uses, and that is replaced when it fails."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._name = address.name
        self._label = f"trio_mcp {secrets.token_hex(8)}"
        self._connection: LimitedConnection | None = None

    def carried_out(self, requests: Sequence[Request], /) -> Outcomes:
        """Carry out requests in one transaction, and return their results.

        What certainly was not carried out, because the server takes no writes, is tried once more over a new connection.

        Raises:
            StoreTimeout: the server does not answer in time.
            StoreError: it cannot be reached, or the connection was lost.
        """
        connection = self._connected()
        try:
            return self._together(connection, requests)
        except psycopg.errors._WaitTimeout:  # noqa: SLF001  it has no other name
            self._drop()
            raise StoreTimeout(
                f"the store {self._name} took more than {connection.limit:g} seconds to answer"
            ) from None
        except (ReadOnlySqlTransaction, CannotConnectNow):
            self._drop()
            return self._one_by_one(requests)
        except psycopg.Error as error:
            if connection.closed:
                self._drop()
                raise StoreError(
                    f"the connection to the store {self._name} was lost before it had answered: {one_line(error)}"
                ) from None
            if len(requests) == 1:
                return [Error(self._refusal(error))]
        # One that does not fit must not take the others with it.
        return self._one_by_one(requests)

    def _together(self, connection: LimitedConnection, requests: Sequence[Request]) -> Outcomes:
        if len(requests) == 1:
            cursors = [self._sent(connection, requests[0])]
        else:
            with connection.pipeline(), connection.transaction():
                cursors = [self._sent(connection, request) for request in requests]
        # From here on it is committed: nothing may be carried out again.
        return [capture(result_of, request, cursor) for request, cursor in zip(requests, cursors, strict=True)]

    def _one_by_one(self, requests: Sequence[Request]) -> Outcomes:
        outcomes: list[Outcomes] = []
        for request in requests:
            try:
                outcomes.append(self._together(self._connected(), [request]))
            except psycopg.errors._WaitTimeout:  # noqa: SLF001
                self._drop()
                raise StoreTimeout(
                    f"the store {self._name} took more than {ANSWER_SECONDS:g} second to answer"
                ) from None
            except psycopg.Error as error:
                outcomes.append([Error(self._refusal(error))])
        return [outcome for each in outcomes for outcome in each]

    @staticmethod
    def _sent(connection: LimitedConnection, request: Request) -> psycopg.Cursor[Row]:
        return connection.cursor(binary=True).execute(query(request.statement), request.arguments)

    def _refusal(self, error: psycopg.Error) -> StoreError:
        if isinstance(error, DiskFull):
            return StoreFull(f"the store {self._name} is full: {one_line(error)}")
        return StoreError(f"the store {self._name} refused: {one_line(error)}")

    def _connected(self) -> LimitedConnection:
        """Return a connection that the server has not closed. Raises `StoreError`."""
        if self._connection is not None and not self._connection.closed and not is_readable(self._connection):
            return self._connection
        self._drop()
        connection = connect(self._address, self._label)
        try:
            self._introduce(connection)
        except psycopg.Error as error:
            connection.close()
            raise StoreError(f"the store {self._name} cannot be used: {one_line(error)}") from None
        self._connection = connection
        return connection

    def _introduce(self, connection: LimitedConnection) -> None:
        """Make the schema if it is missing, and let the server end what the connection before this one began."""
        if version_of(connection) < len(MIGRATIONS):
            migrate(connection)
        # A write that was given up must not be made after those that follow. Behind a pool, other programs may have got a
        # connection to the server with this label: what they run on it is left alone.
        connection.execute(
            "select pg_terminate_backend(pid, %s) from pg_stat_activity"
            " where application_name = %s and pid <> pg_backend_pid()"
            " and (%s or state = 'idle' or query like '%%trio_mcp.%%')",
            (TERMINATE_MILLISECONDS, self._label, self._address.notices is self._address),
        )

    def close(self) -> None:
        """Close the connection."""
        self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def check(address: Address) -> None:
    """Connect for the first time. Raises `StoreError` or `ConfigurationError` if the server cannot be used."""
    with contextlib.closing(connect(address)) as connection:
        check_server(connection, address.name)
    if address.notices is not address:
        check_notices(address)


def check_notices(address: Address) -> None:
    """Raise `ConfigurationError` unless a notice that is sent over one URL of a store is received over the other."""
    channel = f"trio_mcp_{secrets.token_hex(8)}"
    with (
        contextlib.closing(PostgresSubscription(address, channel)) as subscription,
        contextlib.closing(connect(address)) as sender,
    ):
        try:
            sender.execute("select pg_notify(%s, '')", (channel,))
        except psycopg.Error as error:
            raise StoreError(f"the store {address.name} refused a notice: {one_line(error)}") from None
        if not subscription.receive(ANSWER_SECONDS):
            raise ConfigurationError(
                f"notify={address.notices.name} receives no notice of the store {address.name}: it leads to another database, "
                "or to a pool that gives each transaction another connection"
            )


def check_server(connection: LimitedConnection, name: str) -> None:
    """Raise `ConfigurationError` if a server cannot be used; make the schema, or bring it up to date."""
    version = connection.info.server_version
    if version < LEAST_VERSION:
        raise ConfigurationError(
            f"the store {name} is PostgreSQL {version // 10_000}: {LEAST_VERSION // 10_000} or a newer version is needed"
        )
    try:
        found = version_of(connection)
        if found < len(MIGRATIONS):
            migrate(connection)
        (is_read_only,) = connection.execute("show transaction_read_only").fetchone() or ("",)
    except psycopg.Error as error:
        raise ConfigurationError(
            f"the store {name} cannot be made: {one_line(error)}. Its user needs the right to create the schema trio_mcp, and "
            "the server has to take writes"
        ) from None
    if is_read_only == "on":
        raise ConfigurationError(f"the store {name} takes no writes: name the primary")
    if found > len(MIGRATIONS):
        raise ConfigurationError(
            f"the store {name} was written by a newer version of trio_mcp (schema {found}, this one has {len(MIGRATIONS)}). "
            "Nothing was changed: install that version again, or name another database"
        )


def version_of(connection: LimitedConnection) -> int:
    """Return the version of the schema; 0 if there is none."""
    (is_there,) = connection.execute("select to_regclass('trio_mcp.schema') is not null").fetchone() or (False,)
    row = connection.execute("select version from trio_mcp.schema").fetchone() if is_there else None
    return 0 if row is None else int(row[0])


def migrate(connection: LimitedConnection) -> None:
    """Bring the schema to the newest version, all at once."""
    connection.limit = MIGRATE_SECONDS
    try:
        with connection.transaction():
            connection.execute("set local lock_timeout = 0")
            connection.execute("select pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
            connection.execute(query(START))
            # Asked again: another process may have been faster.
            for migration in MIGRATIONS[version_of(connection) :]:
                connection.execute(query(migration))
            connection.execute("update trio_mcp.schema set version = %s", (len(MIGRATIONS),))
    finally:
        connection.limit = ANSWER_SECONDS


class PostgresSubscription:
    """A connection that receives what is sent to a channel. Raises `StoreError` if it cannot be made."""

    def __init__(self, address: Address, channel: str) -> None:
        self._name = address.notices.name
        self._connection = connect(address.notices)
        try:
            self._connection.execute(psycopg.sql.SQL("listen {}").format(psycopg.sql.Identifier(channel)))
        except psycopg.Error as error:
            self._connection.close()
            raise StoreError(f"the store {self._name} refused: {one_line(error)}") from None

    def receive(self, seconds: float) -> list[bytes]:
        """Wait for notices; return none if none comes in time. Raises `StoreError` if the connection is lost."""
        try:
            notices = list(self._connection.notifies(timeout=seconds, stop_after=1))
        except psycopg.Error as error:
            raise self._lost(error) from None
        return [data for notice in notices for data in decoded(notice.payload)]

    def probe(self) -> None:
        """Ask whether the server is still there. Raises `StoreError`."""
        try:
            self._connection.execute("select 1")
        except psycopg.Error as error:
            raise self._lost(error) from None

    def _lost(self, error: psycopg.Error) -> StoreError:
        return StoreError(f"the connection to the store {self._name} was lost: {one_line(error)}")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def result_of(request: Request, cursor: psycopg.Cursor[Row]) -> object:
    return request.result(cursor.fetchall())


def decoded(payload: str) -> Iterator[bytes]:
    """Yield the data of a notice; nothing if it is not one of ours, since every user of a database may send on any channel."""
    with contextlib.suppress(ValueError):
        yield base64.b64decode(payload, validate=True)


def is_readable(connection: LimitedConnection) -> bool:
    """Return whether something has come that was not asked for: the end, mostly."""
    if sys.platform == "win32":
        return bool(select.select([connection], [], [], 0)[0])
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def query(text: str) -> bytes:
    """Return one of our own statements as psycopg wants it, which takes no text that a program has put together."""
    return text.encode()


def one_line(error: psycopg.Error) -> str:
    return str(error).strip().replace("\n", " ").rstrip(".")
