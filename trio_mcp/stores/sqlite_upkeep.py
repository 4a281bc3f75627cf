"""What an operator may want of the file of a SQLite store, with or without a server that uses it."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from ..base.named_tuples import NamedTuple
from ..errors import ConfigurationError
from ..protocol.sealing.at_rest import Vault
from . import sqlite_schema
from .sealed import entry_place, record_place
from .sqlite_file import drop_expired
from .upkeep import KindSummary, Sealings, sealings_of

MOST_FINDINGS: Final = 20
LOCKED_SECONDS: Final = 5.0
"""How long a file is waited for that other processes lock again and again."""
LEAST_WAIT: Final = 0.2
"""Seconds that each statement waits after that: a server that is busy locks the file for milliseconds."""


@contextmanager
def open_file(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the database of a store that exists.

    Raises:
        ConfigurationError: it is none of this version, or what the block does with it fails.
    """
    if not path.is_file():
        raise ConfigurationError(f"there is no file {path}")
    sqlite_schema.check_files_beside(path)
    try:
        with closing(sqlite_schema.connect(path)) as connection:
            if sqlite_schema.checked_version(connection, path) == 0:
                raise ConfigurationError(f"{path} is empty, and no store")
            yield connection
    except sqlite3.Error as error:
        raise sqlite_schema.unusable(path, error) from None


def summaries(path: Path, now: float) -> list[KindSummary]:
    """Return what a store has of each kind. Raises `ConfigurationError`."""
    # Cast, because SQLite keeps values of any type in any column, and another program may have written them.
    with open_file(path) as connection:
        records = connection.execute(
            "SELECT CAST(kind AS TEXT), 'records', count(*), NULL, sum(coalesce(expires_at <= ?, 0)), sum(length(value)), "
            "CAST(min(written_at) AS REAL), CAST(max(written_at) AS REAL) FROM records GROUP BY kind ORDER BY kind",
            (now,),
        ).fetchall()
        # The entries of each log are added up first: a log without any counts, too.
        logs = connection.execute(
            "SELECT CAST(kind AS TEXT), 'logs', count(*), sum(number), sum(coalesce(expires_at <= ?, 0)), sum(size), "
            "CAST(min(written_at) AS REAL), CAST(max(written_at) AS REAL) "
            "FROM (SELECT logs.*, count(number) AS number, coalesce(sum(length(value)), 0) AS size FROM logs "
            "LEFT JOIN entries ON log = id GROUP BY id) GROUP BY kind ORDER BY kind",
            (now,),
        ).fetchall()
    return sorted(KindSummary(*row) for row in (*records, *logs))


def findings(path: Path) -> list[str]:
    """Return what is wrong with the file; nothing if it is sound.

    Raises:
        ConfigurationError: it is not a store of this version, or cannot be read at all.
    """
    with open_file(path) as connection:
        return sqlite_schema.damage(connection, MOST_FINDINGS, thorough=True)


def sealings(path: Path, vault: Vault) -> Sealings:
    """Open every value with the keys of a vault; return how many there are. Raises `ConfigurationError`."""
    with open_file(path) as connection:
        return sealings_of(_values(connection), vault)


def _values(connection: sqlite3.Connection) -> Iterator[tuple[bytes, object]]:
    """Yield each sealed value, bytes unless the file is damaged, after the place that it was sealed for."""
    for kind, key, value in connection.execute("SELECT kind, key, value FROM records"):
        yield record_place(kind, key), value
    entries = "SELECT kind, key, number, value FROM entries JOIN logs ON log = id"
    for kind, key, number, value in connection.execute(entries):
        yield entry_place(kind, key, number), value


class Vacuumed(NamedTuple):
    """The bytes of a file before and after it was rewritten.

    Attributes:
        is_read: another process reads the file, which becomes smaller when that has ended.
    """

    before: int
    after: int
    is_read: bool


def vacuum(path: Path, now: float, clock: Callable[[], float] = time.monotonic) -> Vacuumed:
    """Delete expired records and rewrite the file.

    Args:
        clock: measures how long this has waited for other processes that write.

    Raises:
        ConfigurationError: it is not a store of this version, other processes keep it locked, or there is no room. Nothing is
            lost.
    """
    with open_file(path) as connection:
        until = clock() + LOCKED_SECONDS
        before = size_of(path)
        while drop_expired(connection, now):
            # A process that locks the file again and again must not be waited for at each slice.
            wait_at_most(connection, until - clock())
        connection.execute("VACUUM")
        wait_at_most(connection, until - clock())
        ((is_busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return Vacuumed(before, size_of(path), bool(is_busy))


def wait_at_most(connection: sqlite3.Connection, seconds: float) -> None:
    """Let each statement wait that long for other processes: at least `LEAST_WAIT`, and at most as long as by default."""
    seconds = min(max(seconds, LEAST_WAIT), sqlite_schema.BUSY_SECONDS)
    connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}").fetchall()


def size_of(path: Path) -> int:
    """Return the bytes of a database and its write-ahead log."""
    log = Path(f"{path}-wal")
    return path.stat().st_size + (os.stat(log).st_size if log.exists() else 0)
