"""What an operator may want to know of a store in PostgreSQL, with or without a server that uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

from ..errors import ConfigurationError
from ..protocol.sealing.at_rest import Vault
from ..storage import StoreError
from .postgres import address_of
from .postgres_connection import Address, DriverError, Rows, connect, one_line, query, version_of
from .sealed import entry_place, record_place
from .upkeep import KindSummary, Sealings, check_known, chosen_namespace, sealings_of

INSPECT_SECONDS: Final = 600.0

_RECORDS: Final = """
select kind, 'records', count(*), null, count(*) filter (where expires_at <= trio_mcp.now()),
  sum(length(value))::bigint, min(written_at), max(written_at)
from trio_mcp.records where space = %s group by kind order by kind
"""
_LOGS: Final = """
select kind, 'logs', count(*), sum(number)::bigint, count(*) filter (where expires_at <= trio_mcp.now()),
  sum(size)::bigint, min(written_at), max(written_at)
from (
  select logs.*, count(number) as number, coalesce(sum(length(value)), 0) as size
  from trio_mcp.logs left join trio_mcp.entries on log = id where space = %s group by id
) as each_log group by kind order by kind
"""
_SPACES: Final = "select space from trio_mcp.spaces"
_RECORD_VALUES: Final = "select kind, key, value from trio_mcp.records where space = %s"
_ENTRY_VALUES: Final = (
    "select kind, key, number, value from trio_mcp.entries join trio_mcp.logs on log = id where space = %s"
)


@contextmanager
def inspected(address: Address) -> Iterator[Callable[[str, Sequence[object]], Rows]]:
    """Open a connection that changes nothing; yield a function from a statement to its rows. Raises `StoreError`."""
    with closing(connect(address)) as connection:
        connection.limit = INSPECT_SECONDS
        try:
            if not version_of(connection):
                raise StoreError(f"{address.name} has no store")
            yield lambda statement, arguments: connection.execute(query(statement), arguments).fetchall()
        except DriverError as error:
            raise StoreError(f"the store {address.name} cannot be read: {one_line(error)}") from None


@contextmanager
def inspection(target: str) -> Iterator[Callable[[str], Rows]]:
    """Open a connection that looks at a store. Raises `ConfigurationError`."""
    address = address_of(target)
    try:
        with inspected(address) as rows_of:
            given = address.namespace if address.has_namespace else None
            spaces = [row[0] for row in rows_of(_SPACES, ())]
            space = chosen_namespace(given, lambda: spaces, address.name)
            check_known(space, lambda: spaces, address.name)
            yield lambda statement: rows_of(statement, (space,))
    except StoreError as error:
        raise ConfigurationError(str(error)) from None


def summaries(target: str, _now: float) -> list[KindSummary]:
    """Return what a store has of each kind. Raises `ConfigurationError`."""
    with inspection(target) as rows_of:
        return sorted((KindSummary(*row) for row in (*rows_of(_RECORDS), *rows_of(_LOGS))), key=lambda each: each[:2])


def findings(target: str) -> list[str]:
    """Return nothing if a store can be used, and raise `ConfigurationError` otherwise: the database checks itself."""
    with inspection(target):
        return []


def sealings(target: str, vault: Vault) -> Sealings:
    """Open every value with the keys of a vault; return how many there are. Raises `ConfigurationError`."""
    with inspection(target) as rows_of:
        records = ((record_place(kind, key), value) for kind, key, value in rows_of(_RECORD_VALUES))
        entries = ((entry_place(kind, key, number), value) for kind, key, number, value in rows_of(_ENTRY_VALUES))
        return sealings_of((value for values in (records, entries) for value in values), vault)
