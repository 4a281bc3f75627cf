"""Who makes a request: the author's hook is asked, and whatever goes wrong with it, nobody gets in (reliability row 101)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import trio

from trio_mcp.groups import split_group

from .access import RETRY_LATER, HttpRefusal

logger = logging.getLogger("trio_mcp.http")

Authenticate: TypeAlias = Callable[[Mapping[str, str]], Awaitable[str | None]]
"""From the headers of a request, names in lower case, to the principal who makes it; None refuses."""

AUTHENTICATION_SECONDS: Final = 10.0
"""How long the hook may take for one request."""

MAX_PRINCIPAL: Final = 1024
"""Characters of a principal: sessions, calls and their states carry it along."""

CHALLENGE = (b"www-authenticate", b"Bearer")
"""A 401 says how to do better (RFC 9110, 11.6.1)."""


def check_hook(authenticate: object) -> None:
    """Refuse what cannot be asked.

    Raises:
        TypeError: it is no function.
    """
    if authenticate is not None and not callable(authenticate):
        raise TypeError(
            f"authenticate: an async function from headers to a principal or None, not {authenticate!r:.80}"
        )


async def identified(authenticate: Authenticate, headers: Mapping[str, str]) -> str:
    """The principal who sent these headers, as the hook says.

    Raises:
        HttpRefusal: 401, the hook knows nobody by them; 503, it took longer than `AUTHENTICATION_SECONDS`; 500, it failed
            or returned something else. What was wrong with the hook is for the log only.
    """
    principal: str | None = None
    with trio.move_on_after(AUTHENTICATION_SECONDS) as asking:
        principal = await asked(authenticate, headers)
    if asking.cancelled_caught:
        logger.error("authenticate did not answer within %g seconds; the request was refused", AUTHENTICATION_SECONDS)
        raise HttpRefusal(503, "Who you are cannot be checked now. Try again in a moment.", [RETRY_LATER])
    if not principal:
        raise HttpRefusal(
            401, "This server must know who calls: send an Authorization header that it accepts.", [CHALLENGE]
        )
    return principal


async def asked(authenticate: Authenticate, headers: Mapping[str, str]) -> str | None:
    """What the hook says; what is no answer is a failure, since a guess would let somebody in."""
    try:
        answer: object = authenticate(MappingProxyType(headers))
        if not isinstance(answer, Awaitable):
            raise TypeError(
                f"authenticate is an async function: write `async def`; this one returned {type(answer).__name__}"
            )
        said: object = await answer
    except BaseException as error:  # noqa: ASYNC103  a hook that wants to exit ends nothing but its request
        cancelled, failure = split_group(error, trio.Cancelled)
        if failure is not None:
            logger.error("authenticate failed; the request was refused", exc_info=failure)
        if cancelled is not None:
            raise cancelled from None  # noqa: ASYNC104
        raise HttpRefusal(500, FAILED) from None  # noqa: ASYNC104
    if said is None or (isinstance(said, str) and len(said) <= MAX_PRINCIPAL and is_unicode(said)):
        return said
    what = f"{len(said)} characters" if isinstance(said, str) else type(said).__name__
    logger.error(
        "authenticate returned %s, not a principal of at most %d characters of Unicode, nor None; the request was refused",
        what,
        MAX_PRINCIPAL,
    )
    raise HttpRefusal(500, FAILED)


def is_unicode(text: str) -> bool:
    """Whether it can be written down: halves of surrogate pairs cannot, and what binds things to a principal writes it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


FAILED = "Who you are cannot be checked: something is wrong at the server."
