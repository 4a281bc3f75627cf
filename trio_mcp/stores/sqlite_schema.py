"""The file of a SQLite store: making it, opening it, its schema, and what is wrong with one. It knows nothing of Trio."""

# records   one row for each record.
# logs      one row for each log, with the number of its newest entry.
# entries   one row for each entry of a log.
#
# All have row ids and an index beside them, because values may be large. `PRAGMA application_id` says that the file is ours,
# `PRAGMA user_version` which schema it has.

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Final

from ..base.logs import peer_logger
from ..base.regular_files import NotRegularFile, check_kind
from ..errors import ConfigurationError

logger = peer_logger("trio_mcp.stores")

APPLICATION_ID: Final = 0x74726D63
"""The letters "trmc"."""
BUSY_SECONDS: Final = 3.0
"""How long a statement waits for another process that writes: less than a `SealedStore` waits, whose error would say less."""
PAUSE: Final = 0.02
"""Seconds between two attempts at what SQLite does not wait for by itself."""
WAL_BYTES: Final = 16 * 1024 * 1024
"""The size that the write-ahead log is cut to after it was larger."""
CHECKED_BYTES: Final = 64 * 1024 * 1024
"""A file up to this size is checked as a whole when it is opened."""
OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
"""The permissions of everybody but the owner."""

_making: Final = threading.Lock()

MIGRATIONS: Final[Sequence[str]] = (
    """
CREATE TABLE records (
    kind TEXT NOT NULL, key TEXT NOT NULL, owner TEXT NOT NULL, version INTEGER NOT NULL, written_at REAL NOT NULL,
    expires_at REAL, value BLOB NOT NULL,
    UNIQUE (kind, key)
);
CREATE INDEX records_by_owner ON records (kind, owner, key);
CREATE INDEX records_by_expiry ON records (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE logs (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, newest INTEGER NOT NULL, written_at REAL NOT NULL,
    expires_at REAL,
    UNIQUE (kind, key)
);
CREATE INDEX logs_by_expiry ON logs (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE entries (
    log INTEGER NOT NULL, number INTEGER NOT NULL, value BLOB NOT NULL,
    UNIQUE (log, number)
)
""",
)
"""What leads from each version of the schema to the next; the first makes it."""


def open_database(path: Path) -> sqlite3.Connection:
    """Open the database, and make it if there is none; only its owner can read it.

    Raises:
        ConfigurationError: it cannot be opened, is damaged, belongs to another program, or is of a newer version. Nothing was
            changed.
    """
    check_files_beside(path)
    try:
        _make_file(path)
        connection = connect(path)
    except (OSError, sqlite3.Error) as error:
        raise ConfigurationError(f"the store {path} cannot be opened: {why_not_opened(path, error)}") from None
    try:
        _prepare(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise unusable(path, error) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _make_file(path: Path) -> None:
    """Make a file that only its owner can read if there is none: SQLite would go by the umask.

    Raises:
        OSError: it cannot be made, may not be written, or is no regular file.
    """
    # One thread at a time, and a file that exists is not opened: closing it would end the locks that all connections of this
    # process hold on it, and another process would then delete its write-ahead log, with what was written later.
    with _making:
        try:
            check_kind(path)
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    if not os.access(path, os.R_OK | os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def check_files_beside(path: Path) -> None:
    """Raise `ConfigurationError` if a file that SQLite keeps beside a database is no regular file: opening a FIFO would block."""
    for beside in files_beside(path):
        try:
            check_kind(beside)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ConfigurationError(
                f"the store {path} cannot be opened: SQLite would open {beside}, and {error.strerror}; move it away"
            ) from None


def files_beside(path: Path) -> list[Path]:
    """Return the paths of the files that SQLite keeps beside a database: beside the file itself, if the path is a link."""
    return [Path(f"{os.path.realpath(path)}{suffix}") for suffix in ("-journal", "-wal", "-shm")]


def connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    """Return a connection to a file that exists, for use in one thread at a time.

    Args:
        mode: "rw", or "ro" for one that cannot write.
    """
    # A URI, because a plain path would make a file that is missing.
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    # By itself, SQLite does that while others write, and up to 3.51.2 what they write may be lost then: see `checkpoint`.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def checkpoint(writer: sqlite3.Connection, path: Path, looking_up: threading.Lock) -> None:
    """Move what is in the write-ahead log into the database, while no process writes. Raises `sqlite3.Error`.

    Args:
        looking_up: held by each look-up of this process. They go on meanwhile, unless the log has become too long: SQLite
            starts the log over only when no look-up needs it, which may never happen while look-ups follow each other.
    """
    writer.execute("BEGIN IMMEDIATE")
    try:
        log = files_beside(path)[1]
        is_long = log.exists() and log.stat().st_size > WAL_BYTES
        # The connection that holds the lock cannot do it.
        with looking_up if is_long else nullcontext(), closing(connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(PASSIVE)")
    finally:
        writer.execute("ROLLBACK")


def reader_of(path: Path) -> sqlite3.Connection:
    """Return a connection for look-ups in a database that `open_database` has opened."""
    connection = connect(path)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    version = checked_version(connection, path)
    if version and path.stat().st_size <= CHECKED_BYTES and (problems := damage(connection, 1)):
        raise damaged(path, problems[0])
    _close_to_others(path)
    if version == 0:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        _use_wal(connection)
    if version < len(MIGRATIONS):
        _migrate(connection)
    # NORMAL: a commit survives the end of the process without a wait for the disk; a machine that dies may lose the last ones.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")


def checked_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the schema, 0 for an empty file.

    Raises:
        ConfigurationError: it is a database of another program, or of a newer version, or lacks a part of the schema.
    """
    # This first: it is the last that a process sets which makes the database meanwhile.
    version = _pragma(connection, "user_version")
    is_empty = version == 0 and _pragma(connection, "schema_version") == 0
    if not is_empty and _pragma(connection, "application_id") != APPLICATION_ID:
        raise ConfigurationError(f"{path} is a database of another program, not a store of trio_mcp: name another file")
    if version < 0:
        raise damaged(path, f"it has the schema {version}")
    if version > len(MIGRATIONS):
        raise ConfigurationError(
            f"the store {path} was written by a newer version of trio_mcp (schema {version}, this one has {len(MIGRATIONS)}). "
            "Nothing was changed: install that version again, or name another file"
        )
    if missing := _missing(connection, version):
        raise damaged(path, f"it lacks {missing}")
    return version


def _missing(connection: sqlite3.Connection, version: int) -> str:
    """Return what a database lacks of this version of the schema; an empty text if nothing."""
    with closing(sqlite3.connect(":memory:")) as whole:
        for migration in MIGRATIONS[:version]:
            whole.executescript(migration)
        lacking = _parts(whole) - _parts(connection)
    return ", ".join(sorted(lacking))


def _parts(connection: sqlite3.Connection) -> set[str]:
    """Return the names of the tables with their columns, and of the indexes."""
    # Not the text of the statements that made them, which may be written in another way in the next release.
    parts = (
        "SELECT made.type || ' ' || made.name || coalesce('.' || columns.name, '') FROM sqlite_master AS made "
        "LEFT JOIN pragma_table_info(made.name) AS columns"
    )
    return {row[0] for row in connection.execute(parts)}


def _close_to_others(path: Path) -> None:
    """Take the permissions of everybody but the owner from the file and those beside it.

    Unlike a private key, the file is not rejected: its secrets are sealed, so that nothing was disclosed. A restored copy, or a
    volume that is mounted for a group, may have such permissions by accident.

    Raises:
        ConfigurationError: they cannot be taken.
    """
    for each in (path, *files_beside(path)):
        try:
            mode = stat.S_IMODE(each.stat().st_mode)
        except FileNotFoundError:
            continue
        if mode & OF_OTHERS:
            try:
                os.chmod(each, mode & ~OF_OTHERS)
            except OSError as error:
                raise ConfigurationError(
                    f"other users may read or write {each}, and that cannot be changed ({error}): make the user of the server "
                    f"its owner, and run `chmod 600 {each}`"
                ) from None
            logger.warning("other users could read or write %s (mode %o); now its owner alone can", each, mode)


def damage(connection: sqlite3.Connection, most: int, *, thorough: bool = False) -> list[str]:
    """Return at most `most` errors that were found in the database; none if it is sound.

    Args:
        thorough: also compare the tables with their indexes, which takes longer.
    """
    check = "integrity_check" if thorough else "quick_check"
    found = [str(row[0]) for row in connection.execute(f"PRAGMA {check}({most})")]
    return [] if found == ["ok"] else found


def _use_wal(connection: sqlite3.Connection) -> None:
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # Another process that makes the same file: SQLite does not wait for it here.
            if not is_busy(error) or time.monotonic() >= until:
                raise
            time.sleep(PAUSE)
        else:
            return


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


def why_not_opened(path: Path, error: OSError | sqlite3.Error) -> str:
    """Return what keeps a file from being opened, and what to do."""
    match error:
        case FileNotFoundError():
            return f"there is no folder {path.parent}; make it first"
        case IsADirectoryError():
            return "it is a folder; name a file in it"
        case NotRegularFile():
            return f"{error.strerror}; name another file"
        case PermissionError():
            return "this user may not write there; name another file, or change its owner or its permissions"
        case _:
            return str(error)


def unusable(path: Path, error: sqlite3.Error) -> ConfigurationError:
    """Return the error for a database that SQLite does not open."""
    if primary_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return damaged(path, str(error))
    if is_busy(error):
        return ConfigurationError(
            f"another process keeps the store {path} locked: try again when it has finished, end it, or name another file"
        )
    return ConfigurationError(f"the store {path} cannot be opened: {error}")


def damaged(path: Path, finding: str) -> ConfigurationError:
    """Return the error for a database that is damaged."""
    return ConfigurationError(
        f"the store {path} is damaged or no SQLite database ({finding}). Nothing was changed. Look at it with `trio-mcp store "
        f"check {path}`, restore a copy, or move it away to start with an empty one"
    )


def primary_code(error: sqlite3.Error) -> int:
    """Return the code of an error without its details; 0 if SQLite itself did not raise it."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another process is in the way."""
    # The last is a lock that SQLite has waited for by itself, for ten seconds.
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
