"""Requests of an OAuth client as values. Generators yield them and receive the replies, so the flow does no I/O itself."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

from ...base.values import one_line
from ...errors import AuthorizationError, AuthorizationErrorKind as Kind
from ...types import JsonObject
from ..replies import Reply

MAX_SHOWN: Final = 200
"""Characters of a text of a peer in an error."""

LEAST_SECRET: Final = 8
"""Characters of a value that may be a secret."""

ERROR_CODE: Final = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]{1,64}")
"""An error code that may be shown (RFC 6749, 5.2)."""


@dataclass(frozen=True, slots=True)
class Get:
    """Fetch a document."""

    url: str


@dataclass(frozen=True, slots=True)
class Post:
    """Post a form or a JSON object.

    Attributes:
        proof: add a DPoP proof (RFC 9449, 5).
    """

    url: str
    form: Mapping[str, str] | None = field(default=None, repr=False)
    json: JsonObject | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    proof: bool = False


@dataclass(frozen=True, slots=True)
class Browse:
    """Open an authorization URL in a browser; the reply is the URL to which it redirected.

    Attributes:
        state: what that URL has in its parameter `state`.
    """

    url: str = field(repr=False)
    state: str = field(repr=False)


T = TypeVar("T")

Steps: TypeAlias = Generator[Get | Post | Browse, Reply | str, T]
"""A part of the flow: yields requests, receives a `Reply` for `Get` and `Post` and a URL for `Browse`, and returns its result."""


def fetched(request: Get | Post) -> Steps[Reply]:
    """Return the reply to a request."""
    reply = yield request
    assert isinstance(reply, Reply)
    return reply


def browsed(request: Browse) -> Steps[str]:
    """Return the URL to which the browser was redirected."""
    reply = yield request
    assert isinstance(reply, str)
    return reply


def text_member(document: JsonObject, name: str) -> str | None:
    """Return a member that is a non-empty text; None for any other."""
    value = document.get(name)
    return value if isinstance(value, str) and value else None


def text_list(document: JsonObject, name: str) -> tuple[str, ...] | None:
    """Return the texts in a member that is a list; None for any other."""
    value = document.get(name)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else None


def shown(text: str) -> str:
    """Return a text of a peer for an error: printable, in one line, and short."""
    return one_line(text[:MAX_SHOWN])


def rejection(
    what: str, reply: Reply, kind: Kind = Kind.TOKEN, sent: Mapping[str, str] = MappingProxyType({})
) -> AuthorizationError:
    """Return the error for a request that an authorization server rejected; it shows the code and the description.

    Args:
        sent: what was sent. A description that repeats any of it is not shown.
    """
    try:
        document = reply.document(what)
    except AuthorizationError:
        document = {}
    code, why = text_member(document, "error") or "", text_member(document, "error_description") or ""
    if not ERROR_CODE.fullmatch(code):
        return AuthorizationError(f"{what} was rejected with HTTP {reply.status}", kind=kind)
    if any(len(value) >= LEAST_SECRET and value in why for value in sent.values()):
        why = ""
    return AuthorizationError(f"{what} was rejected: {code}{why and f' ({shown(why)})'}", kind=kind, oauth_error=code)
