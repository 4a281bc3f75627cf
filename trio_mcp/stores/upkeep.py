"""What an operator may want to know of any durable store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from ..base.checks import nearest_name
from ..base.named_tuples import NamedTuple
from ..errors import ConfigurationError
from ..protocol.sealing.at_rest import Unsealable, Vault

MOST_NAMED: Final = 20
"""Namespaces that an error names."""


class KindSummary(NamedTuple):
    """What a store has of one kind.

    Attributes:
        form: what they are.
        number: how many there are.
        entries: how many entries the logs have; None of records.
        expired: how many of them have expired, and will be deleted.
        size: bytes of their values.
        oldest, newest: when the first and the last of them were written, in Unix seconds; a record and a log count as written
            when they last changed. None where the store does not know.
    """

    kind: str
    form: Literal["records", "logs"]
    number: int
    entries: int | None
    expired: int
    size: int
    oldest: float | None
    newest: float | None


class Sealings(NamedTuple):
    """How many values there are, and how many of them the keys do not open."""

    values: int
    closed: int


def sealings_of(values: Iterable[tuple[bytes, object]], vault: Vault) -> Sealings:
    """Open every value with the keys of a vault; return how many there are.

    Args:
        values: each after the place that it was sealed for; bytes, unless the store is damaged.
    """
    number = closed = 0
    for place, value in values:
        number += 1
        try:
            vault.open(value if isinstance(value, bytes) else b"", place)
        except Unsealable:
            closed += 1
    return Sealings(number, closed)


def chosen_namespace(given: str | None, found: Callable[[], Sequence[str]], name: str) -> str:
    """Return the namespace that is given, or the only one that is found. Raises `ConfigurationError`."""
    if given is not None:
        return given
    spaces = sorted(found())
    if len(spaces) == 1:
        return spaces[0]
    if not spaces:
        raise ConfigurationError(f"{name} has no store")
    raise ConfigurationError(f"{name} has several stores: add ?namespace= and one of {', '.join(map(repr, spaces))}")


def check_known(given: str, found: Callable[[], Sequence[str]], name: str) -> None:
    """Raise `ConfigurationError` if a namespace that has nothing is not one of those that are found."""
    spaces = sorted(found())
    if spaces and given not in spaces:
        likely = nearest_name(given, spaces)
        spaces = spaces if likely is None else [likely, *(each for each in spaces if each != likely)]
        known = ", ".join(map(repr, spaces[:MOST_NAMED]))
        more = f" and {len(spaces) - MOST_NAMED} more" if len(spaces) > MOST_NAMED else ""
        raise ConfigurationError(f"{name} has nothing in the namespace {given!r}; it has {known}{more}")
