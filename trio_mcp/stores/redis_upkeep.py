"""What an operator may want to know of a store in Redis, with or without a server that uses it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from typing import Final, Literal, cast

from ..base.named_tuples import NamedTuple
from ..errors import ConfigurationError
from ..protocol.sealing.at_rest import Vault
from ..storage import StoreError
from .redis import address_of, information, problems_of
from .redis_connection import Argument, RedisConnection
from .sealed import entry_place, record_place
from .upkeep import KindSummary, Sealings, check_known, chosen_namespace, sealings_of

PAGE: Final = 1000
"""Keys that are looked for at once."""
FAILED: Final = {"rdb_last_bgsave_status": "a snapshot", "aof_last_write_status": "the append-only file"}


class Content(NamedTuple):
    """A record or a log: the values in it, from the number of the first on."""

    form: Literal["records", "logs"]
    kind: str
    key: str
    first: int
    values: list[bytes]


class Inspection:
    """A connection that looks at a store. Raises `ConfigurationError`."""

    def __init__(self, target: str) -> None:
        self.address = address_of(target)
        self._connection = RedisConnection(self.address)
        given = self.address.namespace if self.address.has_namespace else None
        try:
            self.address.namespace = chosen_namespace(given, self._namespaces, self.address.name)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def information(self) -> dict[str, str]:
        """Return what the server says of itself."""
        return information(cast("bytes", self._ask(b"INFO")))

    def contents(self) -> Iterator[Content]:
        """Yield the records and logs, in any order."""
        prefix = self.address.prefix
        form = re.compile(rb"([rl])(\d+):(.*)", re.DOTALL)
        for name in self._names(prefix):
            if found := form.fullmatch(name[len(prefix) :]):
                letter, length, rest = found[1], int(found[2]), found[3]
                content = self._content(letter, name, rest[:length].decode(), rest[length + 1 :].decode())
                if content is not None:
                    yield content

    def _content(self, letter: bytes, name: bytes, kind: str, key: str) -> Content | None:
        """Return a record or a log; None if it has expired meanwhile."""
        if letter == b"r":
            value = cast("bytes | None", self._ask(b"HGET", name, b"d"))
            return None if value is None else Content("records", kind, key, 0, [value])
        entries = cast("list[bytes]", self._ask(b"LRANGE", name, 0, -1))
        return Content("logs", kind, key, int(entries[0]), entries[1:]) if entries else None

    def check_known(self) -> None:
        """Raise `ConfigurationError` if the server has other namespaces than this one, which has nothing."""
        check_known(self.address.namespace, self._namespaces, self.address.name)

    def _namespaces(self) -> list[str]:
        names = [re.fullmatch(rb"\{trio_mcp:(.*)\}:born", name, re.DOTALL) for name in self._names(b"{trio_mcp:")]
        return [found[1].decode() for found in names if found]

    def _names(self, prefix: bytes) -> Iterator[bytes]:
        """Yield the names of keys, each once."""
        pattern = re.sub(rb"([\[\]*?^\\])", rb"\\\1", prefix) + b"*"
        cursor, seen = b"0", set[bytes]()
        while True:
            cursor, names = cast(
                "tuple[bytes, list[bytes]]", self._ask(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", PAGE)
            )
            yield from {*names} - seen
            seen.update(names)
            if cursor == b"0":
                return

    def _ask(self, *command: Argument) -> object:
        try:
            (answer,) = self._connection.exchange([command])
        except StoreError as error:
            raise ConfigurationError(str(error)) from None
        if isinstance(answer, StoreError):
            raise ConfigurationError(str(answer))
        return answer


def summaries(target: str, _now: float) -> list[KindSummary]:
    """Return what a store has of each kind. Raises `ConfigurationError`."""
    sizes: dict[tuple[str, Literal["records", "logs"]], list[list[int]]] = defaultdict(list)
    with closing(Inspection(target)) as inspection:
        for content in inspection.contents():
            sizes[content.kind, content.form].append([len(value) for value in content.values])
        if not sizes:
            inspection.check_known()
    return [
        KindSummary(
            kind, form, len(each), sum(map(len, each)) if form == "logs" else None, 0, sum(map(sum, each)), None, None
        )
        for (kind, form), each in sorted(sizes.items())
    ]


def findings(target: str) -> list[str]:
    """Return what may lose data; nothing if all is well. Raises `ConfigurationError`."""
    with closing(Inspection(target)) as inspection:
        info = inspection.information()
        failed = [f"the server could not write {what}" for name, what in FAILED.items() if info.get(name) == "err"]
        return [*problems_of(info, inspection.address.name), *failed]


def sealings(target: str, vault: Vault) -> Sealings:
    """Open every value with the keys of a vault; return how many there are. Raises `ConfigurationError`."""
    with closing(Inspection(target)) as inspection:
        return sealings_of(values_of(inspection.contents()), vault)


def values_of(contents: Iterator[Content]) -> Iterator[tuple[bytes, bytes]]:
    for form, kind, key, first, values in contents:
        for number, value in enumerate(values, first):
            yield record_place(kind, key) if form == "records" else entry_place(kind, key, number), value
