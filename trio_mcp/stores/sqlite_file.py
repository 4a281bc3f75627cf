"""What a SQLite store does with its database: each change and each look-up as SQL. It knows nothing of Trio."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..storage import (
    Append,
    Change,
    EventsGone,
    Expect,
    Forget,
    NoSuchEvent,
    Put,
    Record,
    Remove,
    StoreConflict,
    StoreError,
    StoreFull,
)
from .nodes import OwnFiles, has_reached_limit
from .sqlite_schema import BUSY_SECONDS, is_busy, primary_code

SLICE: Final = 500
"""Expired rows that are deleted at once."""
FREE_PAGES: Final = 1024
"""Pages that are given back to the file system at once."""
MOST: Final = 2**63 - 1
"""The largest integer of SQLite."""

FULL: Final = "the disk is full, or the database has reached its limit"

_LIVE: Final = "(expires_at IS NULL OR expires_at > ?)"
_PUT_NEW: Final = (
    "INSERT OR IGNORE INTO records (kind, key, owner, version, written_at, expires_at, value) "
    "VALUES (?, ?, ?, 1, ?, ?, ?)"
)
_PUT: Final = (
    "UPDATE records SET owner = ?, version = version + 1, written_at = ?, expires_at = ?, value = ? "  # noqa: S608
    f"WHERE kind = ? AND key = ? AND version = ? AND {_LIVE}"
)
_REMOVE: Final = f"DELETE FROM records WHERE kind = ? AND key = ? AND version = ? AND {_LIVE}"  # noqa: S608
_EXPECT: Final = f"SELECT 1 FROM records WHERE kind = ? AND key = ? AND version = ? AND {_LIVE}"  # noqa: S608
_READ: Final = (
    f"SELECT kind, key, value, owner, expires_at, version FROM records WHERE kind = ? AND key = ? AND {_LIVE}"  # noqa: S608
)
# In one statement, so that nothing changes in between: a log without entries after that number has one row.
_ENTRIES: Final = (
    "SELECT newest, number, value FROM logs LEFT JOIN entries ON log = id AND number > ? "  # noqa: S608
    f"WHERE kind = ? AND key = ? AND {_LIVE} ORDER BY number LIMIT ?"
)
# What Python or SQLite find wrong with the values of one write.
_BAD_VALUES: Final = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    TypeError,
    ValueError,
)


def write_in_place(
    connection: sqlite3.Connection, files: OwnFiles, batch: Sequence[Sequence[Change]], now: float
) -> list[StoreError | None]:
    """Do what `write_together` does, unless a file is not where it should be."""
    try:
        files.check()
    except StoreError as error:
        return [type(error)(*error.args) for _ in batch]
    return write_together(connection, batch, now)


def drop_in_place(connection: sqlite3.Connection, files: OwnFiles, now: float) -> bool:
    """Do what `drop_expired` does. Raises `StoreError` if a file is not where it should be."""
    files.check()
    return drop_expired(connection, now)


def write_together(
    connection: sqlite3.Connection, batch: Sequence[Sequence[Change]], now: float
) -> list[StoreError | None]:
    """Make several writes in one transaction; return what was wrong with each, None for those that were made.

    If the database itself fails, they are tried one by one, so that one that does not fit does not take the others with it.
    """
    try:
        return _in_transaction(connection, batch, now)
    except sqlite3.Error as error:
        # Each would wait as long for another process.
        if len(batch) == 1 or is_busy(error):
            is_full = exceeds_limit(connection, error)
            return [StoreFull(FULL) if is_full else failure_of(error) for _ in batch]
    failures: list[StoreError | None] = []
    for changes in batch:
        failures += write_together(connection, [changes], now)
    return failures


def _in_transaction(
    connection: sqlite3.Connection, batch: Sequence[Sequence[Change]], now: float
) -> list[StoreError | None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        failures = [_in_savepoint(connection, changes, now) for changes in batch]
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return failures


def _in_savepoint(connection: sqlite3.Connection, changes: Sequence[Change], now: float) -> StoreError | None:
    """Make all changes of one write, or none; return what was wrong with them."""
    failure: StoreError | None = None
    connection.execute("SAVEPOINT one")
    try:
        for change in changes:
            make(connection, change, now)
    except StoreConflict as conflict:
        failure = conflict
    except _BAD_VALUES as error:
        failure = StoreError(f"this cannot be stored: {error}")
    if failure is not None:
        connection.execute("ROLLBACK TO one")
    connection.execute("RELEASE one")
    return failure


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
            if not connection.execute(_REMOVE, (kind, key, version, now)).rowcount:
                raise StoreConflict(f"this {kind} has another version than {version}")
        case Expect(kind, key, version):
            if connection.execute(_EXPECT, (kind, key, version, now)).fetchone() is None:
                raise StoreConflict(f"this {kind} has another version than {version}")
        case Append():
            _append(connection, change, now)
        case Forget(kind, key):
            connection.execute(
                "DELETE FROM entries WHERE log = (SELECT id FROM logs WHERE kind = ? AND key = ?)", (kind, key)
            )
            connection.execute("DELETE FROM logs WHERE kind = ? AND key = ?", (kind, key))


def _put(connection: sqlite3.Connection, record: Record, now: float) -> None:
    kind, key, value, owner, expires_at, version = record
    expiry = stored_expiry(expires_at)
    if version:
        changed = connection.execute(_PUT, (owner, now, expiry, value, kind, key, version, now)).rowcount
    else:
        changed = connection.execute(_PUT_NEW, (kind, key, owner, now, expiry, value)).rowcount
        if not changed:
            # One that has expired is as good as none.
            gone = "DELETE FROM records WHERE kind = ? AND key = ? AND expires_at <= ?"
            if connection.execute(gone, (kind, key, now)).rowcount:
                changed = connection.execute(_PUT_NEW, (kind, key, owner, now, expiry, value)).rowcount
    if not changed:
        raise StoreConflict(f"this {kind} has another version than {version}")


def _append(connection: sqlite3.Connection, change: Append, now: float) -> None:
    kind, key, first, given, expires_at, keep = change
    expiry, newest = stored_expiry(expires_at), first + len(given) - 1
    found = connection.execute(
        "SELECT id, newest, expires_at FROM logs WHERE kind = ? AND key = ?", (kind, key)
    ).fetchone()
    if found is None:
        made = "INSERT INTO logs (kind, key, newest, written_at, expires_at) VALUES (?, ?, ?, ?, ?)"
        log = connection.execute(made, (kind, key, newest, now, expiry)).lastrowid
    else:
        log, before, expired_at = found
        # A log must not have gaps, and expired entries must not come back.
        if before + 1 < first or (expired_at is not None and expired_at <= now):
            connection.execute("DELETE FROM entries WHERE log = ?", (log,))
        elif before >= first:
            connection.execute("DELETE FROM entries WHERE log = ? AND number >= ?", (log, first))
        prolonged = "UPDATE logs SET newest = ?, written_at = ?, expires_at = ? WHERE id = ?"
        connection.execute(prolonged, (newest, now, expiry, log))
    rows = [(log, number, value) for number, value in enumerate(given, first)]
    connection.executemany("INSERT INTO entries (log, number, value) VALUES (?, ?, ?)", rows)
    if keep is not None:
        connection.execute("DELETE FROM entries WHERE log = ? AND number <= ?", (log, newest - keep))


def read(connection: sqlite3.Connection, kind: str, key: str, now: float) -> Record | None:
    """Return a record."""
    row = connection.execute(_READ, (kind, key, now)).fetchone()
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
    rows = connection.execute(_ENTRIES, (min(after, MOST), kind, key, now, limit)).fetchall()
    if not rows:
        raise EventsGone("this log is no longer kept")
    newest, first = rows[0][:2]
    if after > newest:
        raise NoSuchEvent(f"this log has no entry {after}")
    if after == newest:
        return []
    if first != after + 1:
        raise EventsGone(f"the entries after number {after} of this log are no longer kept")
    return [row[2] for row in rows]


def drop_expired(connection: sqlite3.Connection, now: float) -> bool:
    """Delete a slice of what has expired, and give pages back; return whether there is more."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        records = "DELETE FROM records WHERE rowid IN (SELECT rowid FROM records WHERE expires_at <= ? LIMIT ?)"
        more = connection.execute(records, (now, SLICE)).rowcount == SLICE
        more = _drop_logs(connection, now) or more
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute(f"PRAGMA incremental_vacuum({FREE_PAGES})").fetchall()
    return more


def _drop_logs(connection: sqlite3.Connection, now: float) -> bool:
    """Delete a slice of the logs that have expired, a log after its last entry; return whether there may be more."""
    left = SLICE
    expired = connection.execute("SELECT id FROM logs WHERE expires_at <= ? LIMIT ?", (now, SLICE)).fetchall()
    for (log,) in expired:
        some = "DELETE FROM entries WHERE rowid IN (SELECT rowid FROM entries WHERE log = ? LIMIT ?)"
        left -= connection.execute(some, (log, left)).rowcount
        if left <= 0:
            return True
        connection.execute("DELETE FROM logs WHERE id = ?", (log,))
    return len(expired) == SLICE


def record_of(row: tuple[str, str, bytes, str, float | None, int]) -> Record:
    kind, key, value, owner, expires_at, version = row
    return Record(kind, key, value, owner, math.inf if expires_at is None else expires_at, version)


def stored_expiry(expires_at: float) -> float | None:
    return None if expires_at == math.inf else expires_at


def exceeds_limit(connection: sqlite3.Connection, error: sqlite3.Error) -> bool:
    """Return whether a write has failed because the system lets no file of this process grow further (`ulimit -f`).

    SQLite reports that as it does a broken disk. It has then filled a file up to the limit.
    """
    if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_IOERR_WRITE:
        return False
    path = connection.execute("PRAGMA database_list").fetchone()[2]
    return any(has_reached_limit(Path(f"{path}{suffix}")) for suffix in ("", "-wal"))


def failure_of(error: sqlite3.Error) -> StoreError:
    """Return an error of SQLite as a store raises it."""
    code = primary_code(error)
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(FULL)
    if is_busy(error):
        return StoreError(f"another process has kept the database locked for {BUSY_SECONDS:g} seconds")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreError(f"the database is damaged: look at it with `trio-mcp store check` ({error})")
    return StoreError(f"the database failed: {error}")
