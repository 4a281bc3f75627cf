"""What authenticates the calls of an API: chosen for each call, by its caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ..checks import check_str_mapping
from ..client.target import check_headers
from ..session import Caller


@dataclass(frozen=True, slots=True)
class Credentials:
    """What is added to a request. It replaces arguments of the same name.

    Attributes:
        headers: such as `{"Authorization": "Bearer ..."}`.
        query: parameters of the query.
        cookies: cookies by name.

    Raises:
        TypeError: one of these does not map strings to strings.
    """

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    cookies: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name in self.__slots__:
            check_str_mapping(name, getattr(self, name))


CredentialSource: TypeAlias = Callable[
    [Caller | None], Mapping[str, str] | Credentials | Awaitable[Mapping[str, str] | Credentials]
]
"""Returns the headers, or the credentials, for the calls of a caller; None without authentication."""

NONE = Credentials()


async def credentials_for(source: CredentialSource | None, caller: Caller | None) -> Credentials:
    """Return the credentials for a caller.

    Raises:
        TypeError, ValueError: the author's function returned another value, or a header that HTTP cannot send. The error does not
            show it.

    It raises what the function raises, too.
    """
    if source is None:
        return NONE
    found = source(caller)
    if isinstance(found, Awaitable):
        found = await found
    if not isinstance(found, Credentials | Mapping):
        raise TypeError(
            f"the function credentials= returned {type(found).__name__}; return Credentials(...) or a dict of headers"
        )
    returned = "what the function credentials= returned"
    if not isinstance(found, Credentials):
        found = Credentials(headers=check_str_mapping(returned, found))
    check_headers(found.headers, returned)
    return found
