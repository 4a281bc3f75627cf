"""The database file of a SQLite store: its schema, and each change and look-up as SQL. It knows nothing of Trio."""

# records   one row for each record. Values may be large, so the table has row ids and an index beside it.
# entries   one row for each entry of a log, in the order of the primary key.
#
# `PRAGMA application_id` says that the file is ours, `PRAGMA user_version` which schema it has.

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from ..errors import ConfigurationError
from ..storage import (
    Append,
    Change,
    EventsGone,
    Forget,
    NoSuchEvent,
    Put,
    Record,
    Remove,
    StoreConflict,
    StoreError,
    StoreFull,
)

APPLICATION_ID: Final = 0x74726D63
"""The letters "trmc"."""
BUSY_SECONDS: Final = 5.0
"""How long a statement waits for another process that writes."""
SLICE: Final = 500
"""Expired rows that are deleted at once."""
FREE_PAGES: Final = 256
"""Pages that are given back to the file system at once."""

MIGRATIONS: Final[Sequence[str]] = (
    """
CREATE TABLE records (
    kind TEXT NOT NULL, key TEXT NOT NULL, owner TEXT NOT NULL, version INTEGER NOT NULL, expires_at REAL, value BLOB NOT NULL,
    UNIQUE (kind, key)
);
CREATE INDEX records_by_owner ON records (kind, owner, key);
CREATE INDEX records_by_expiry ON records (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE entries (
    kind TEXT NOT NULL, key TEXT NOT NULL, number INTEGER NOT NULL, expires_at REAL, value BLOB NOT NULL,
    PRIMARY KEY (kind, key, number)
) WITHOUT ROWID;
CREATE INDEX entries_by_expiry ON entries (expires_at) WHERE expires_at IS NOT NULL
""",
)
"""What leads from each version of the schema to the next; the first makes it."""

_PUT_NEW: Final = (
    "INSERT OR IGNORE INTO records (kind, key, owner, version, expires_at, value) VALUES (?, ?, ?, 1, ?, ?)"
)
_PUT: Final = (
    "UPDATE records SET owner = ?, version = version + 1, expires_at = ?, value = ? "
    "WHERE kind = ? AND key = ? AND version = ?"
)
_LIVE: Final = "(expires_at IS NULL OR expires_at > ?)"


def open_database(path: Path) -> sqlite3.Connection:
    """Open the database, and make it if there is none; only its owner can read it.

    Raises:
        ConfigurationError: it cannot be opened, is no database of this package, or one of a newer version.
    """
    try:
        # Before SQLite makes it, which would go by the umask. The files beside it get the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise ConfigurationError(f"the store {path} cannot be opened: {error}") from None
    try:
        _prepare(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise ConfigurationError(
            f"the store {path} is damaged or no SQLite database ({error}). Nothing was changed. Move it "
            "away to start with an empty one, or put a backup in its place"
        ) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    run = connection.execute
    version, newest = _pragma(connection, "user_version"), len(MIGRATIONS)
    is_new = version == 0 and _pragma(connection, "schema_version") == 0
    if not is_new and _pragma(connection, "application_id") != APPLICATION_ID:
        raise ConfigurationError(f"{path} is a database of another program, not a store of trio_mcp: name another file")
    if version > newest:
        raise ConfigurationError(
            f"the store {path} was written by a newer version of trio_mcp (schema {version}, this one has {newest}). "
            "Nothing was changed: install that version again, or name another file"
        )
    if is_new:
        run("PRAGMA auto_vacuum = INCREMENTAL")
        run("PRAGMA journal_mode = WAL")
    if version < newest:
        _migrate(connection)
    # NORMAL: a commit survives the end of the process without a wait for the disk; a machine that dies may lose the last ones.
    run("PRAGMA synchronous = NORMAL")


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema to the newest version, all at once."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Asked again: another process may have been faster.
        for migration in MIGRATIONS[_pragma(connection, "user_version") :]:
            for statement in migration.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def write_together(
    connection: sqlite3.Connection, batch: Sequence[Sequence[Change]], now: float
) -> list[StoreError | None]:
    """Make several writes in one transaction; return what was wrong with each, None for those that were made.

    If the database itself fails, they are tried one by one, so that one that does not fit does not take the others with it.
    """
    try:
        return _in_transaction(connection, batch, now)
    except sqlite3.Error as error:
        if len(batch) == 1:
            return [failure_of(error)]
    failures: list[StoreError | None] = []
    for changes in batch:
        failures += write_together(connection, [changes], now)
    return failures


def _in_transaction(
    connection: sqlite3.Connection, batch: Sequence[Sequence[Change]], now: float
) -> list[StoreError | None]:
    failures: list[StoreError | None] = []
    connection.execute("BEGIN IMMEDIATE")
    try:
        for changes in batch:
            connection.execute("SAVEPOINT one")
            try:
                for change in changes:
                    make(connection, change, now)
            except StoreConflict as conflict:
                connection.execute("ROLLBACK TO one")
                failures.append(conflict)
            else:
                failures.append(None)
            connection.execute("RELEASE one")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return failures


def make(connection: sqlite3.Connection, change: Change, now: float) -> None:
    """Make one change.

    Raises:
        StoreConflict: a record has another version.
    """
    match change:
        case Put(record):
            _put(connection, record, now)
        case Remove(kind, key, None):
            connection.execute("DELETE FROM records WHERE kind = ? AND key = ?", (kind, key))
        case Remove(kind, key, version):
            where = "DELETE FROM records WHERE kind = ? AND key = ? AND version = ?"
            if not connection.execute(where, (kind, key, version)).rowcount:
                raise StoreConflict(f"this {kind} has another version than {version}")
        case Append():
            _append(connection, change)
        case Forget(kind, key):
            connection.execute("DELETE FROM entries WHERE kind = ? AND key = ?", (kind, key))


def _put(connection: sqlite3.Connection, record: Record, now: float) -> None:
    kind, key, value, owner, expires_at, version = record
    expiry = stored_expiry(expires_at)
    if version:
        changed = connection.execute(_PUT, (owner, expiry, value, kind, key, version)).rowcount
    else:
        changed = connection.execute(_PUT_NEW, (kind, key, owner, expiry, value)).rowcount
        if not changed:
            # One that has expired is as good as none.
            gone = "DELETE FROM records WHERE kind = ? AND key = ? AND expires_at <= ?"
            if connection.execute(gone, (kind, key, now)).rowcount:
                changed = connection.execute(_PUT_NEW, (kind, key, owner, expiry, value)).rowcount
    if not changed:
        raise StoreConflict(f"this {kind} has another version than {version}")


def _append(connection: sqlite3.Connection, change: Append) -> None:
    kind, key, first = change.kind, change.key, change.first
    connection.execute("DELETE FROM entries WHERE kind = ? AND key = ? AND number >= ?", (kind, key, first))
    newest = connection.execute("SELECT max(number) FROM entries WHERE kind = ? AND key = ?", (kind, key)).fetchone()[0]
    if newest is not None and newest + 1 != first:
        # Nobody must miss an entry in between.
        connection.execute("DELETE FROM entries WHERE kind = ? AND key = ?", (kind, key))
    expiry = stored_expiry(change.expires_at)
    rows = [(kind, key, number, expiry, value) for number, value in enumerate(change.entries, first)]
    connection.executemany("INSERT INTO entries (kind, key, number, expires_at, value) VALUES (?, ?, ?, ?, ?)", rows)
    if change.keep is not None:
        oldest = first + len(rows) - change.keep
        connection.execute("DELETE FROM entries WHERE kind = ? AND key = ? AND number < ?", (kind, key, oldest))


def read(connection: sqlite3.Connection, kind: str, key: str, now: float) -> Record | None:
    """Return a record."""
    query = f"SELECT kind, key, value, owner, expires_at, version FROM records WHERE kind = ? AND key = ? AND {_LIVE}"  # noqa: S608
    row = connection.execute(query, (kind, key, now)).fetchone()
    return None if row is None else record_of(row)


def list_records(
    connection: sqlite3.Connection, kind: str, owner: str | None, after: str, limit: int, now: float
) -> list[Record]:
    """Return records in the order of their keys."""
    whose, of = ("", ()) if owner is None else ("AND owner = ?", (owner,))
    query = (
        "SELECT kind, key, value, owner, expires_at, version FROM records "  # noqa: S608
        f"WHERE kind = ? {whose} AND key > ? AND {_LIVE} ORDER BY key LIMIT ?"
    )
    return [record_of(row) for row in connection.execute(query, (kind, *of, after, now, limit))]


def entries(connection: sqlite3.Connection, kind: str, key: str, after: int, limit: int, now: float) -> list[bytes]:
    """Return entries of a log. Raises as `Store.entries` does."""
    place = kind, key
    rows = connection.execute(
        f"SELECT number, value FROM entries WHERE kind = ? AND key = ? AND number > ? AND {_LIVE} ORDER BY number LIMIT ?",  # noqa: S608
        (*place, after, now, limit),
    ).fetchall()
    if rows:
        if rows[0][0] != after + 1:
            raise EventsGone(f"the entries after number {after} of this log are no longer kept")
        return [row[1] for row in rows]
    newest = connection.execute(
        f"SELECT max(number) FROM entries WHERE kind = ? AND key = ? AND {_LIVE}",  # noqa: S608
        (*place, now),
    ).fetchone()[0]
    if newest is None:
        raise EventsGone("this log is no longer kept")
    if after > newest:
        raise NoSuchEvent(f"this log has no entry {after}")
    return []


def drop_expired(connection: sqlite3.Connection, now: float) -> bool:
    """Delete a slice of what has expired, and give pages back; return whether there is more."""
    more = False
    connection.execute("BEGIN IMMEDIATE")
    try:
        records = "DELETE FROM records WHERE rowid IN (SELECT rowid FROM records WHERE expires_at <= ? LIMIT ?)"
        more = connection.execute(records, (now, SLICE)).rowcount == SLICE
        old = connection.execute(
            "SELECT kind, key, number FROM entries WHERE expires_at <= ? LIMIT ?", (now, SLICE)
        ).fetchall()
        connection.executemany("DELETE FROM entries WHERE kind = ? AND key = ? AND number = ?", old)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute(f"PRAGMA incremental_vacuum({FREE_PAGES})").fetchall()
    return more or len(old) == SLICE


def close_database(connection: sqlite3.Connection) -> None:
    """Write everything into the one file, and close it."""
    with closing(connection):
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error:
            # Another process has it open, and will do that.
            return


def record_of(row: tuple[str, str, bytes, str, float | None, int]) -> Record:
    kind, key, value, owner, expires_at, version = row
    return Record(kind, key, value, owner, float("inf") if expires_at is None else expires_at, version)


def stored_expiry(expires_at: float) -> float | None:
    return None if expires_at == float("inf") else expires_at


def failure_of(error: sqlite3.Error) -> StoreError:
    """Return an error of SQLite as a store raises it."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreFull("the disk is full, or the database has reached its limit")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(f"another process has kept the database locked for {BUSY_SECONDS:g} seconds")
    return StoreError(f"the database failed: {error}")
