"""`ctx.elicit_url`: asks the user to open a page, and waits until the user has finished there."""

from __future__ import annotations

import inspect
import logging
import math
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import trio

from ...base.checks import check_callable, check_str
from ...base.named_tuples import NamedTuple
from ...errors import BranchElicitNotAllowed, CapabilityError, RequestTimeout
from ...protocol.uri.uris import is_uri
from ...runtime import Lane
from ...session import Call, Question
from ...types import ElicitRequestURLParams, ElicitResult
from ..branching import BranchTerms
from ..options import AskTimeout
from .exchanges import Declined, Dismissed, UrlAccepted, UrlElicited

logger = logging.getLogger("trio_mcp.elicitation")

SPECIFICATION: Final = "https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation"
POLL_INTERVAL: Final = 1.0
"""Seconds between two calls of `done`."""
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
MAX_ID: Final = 256
"""Characters of the id of an elicitation."""

Url: TypeAlias = str | Callable[[str], str]
"""A URL, or a function that returns it for the id of the elicitation."""
Done: TypeAlias = Callable[[], bool | Awaitable[bool]]
"""A function, plain or async, that returns whether the user has finished at the page."""


class Page(NamedTuple):
    """A page that the user is asked to open; see `Context.elicit_url`."""

    message: str
    url: Url
    elicitation_id: str | None
    done: Done | None
    wait: bool

    def check(self) -> None:
        """Raise `TypeError` or `ValueError` if a member is wrong."""
        check_str("message", self.message)
        if isinstance(self.url, str):
            check_url(self.url)
        else:
            check_callable("url", self.url, "a URL, or a function that returns one for the id of the elicitation")
        if self.elicitation_id is not None and not 0 < len(check_str("elicitation_id", self.elicitation_id)) <= MAX_ID:
            raise ValueError(f"elicitation_id must have 1 to {MAX_ID} characters")
        if self.done is not None:
            check_callable("done", self.done, "a function that returns whether the user has finished")
            if not self.wait:
                raise TypeError("done= is asked while elicit_url() waits: leave it out, or leave out wait=False")


def check_url(url: str) -> None:
    """Raise unless a user may be asked to open a URL (L-ELI-7s).

    Raises:
        ValueError: it is not an http or https URL, has no host, or holds a user name or a password.
    """
    parts = urlsplit(url) if is_uri(url) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"elicit_url() needs a URL such as https://example.com/connect, not {url!r:.80}")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"elicit_url(): the URL of {parts.hostname} must not hold a user name or a password")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        logger.warning("a user is asked to open http://%s: use https outside of development", parts.hostname[:128])


def made_url(make: Callable[[str], str], elicitation_id: str) -> str:
    url = make(elicitation_id)
    check_url(url)
    return url


def elicit_url(
    call: Call, lane: Lane, terms: BranchTerms, page: Page, timeout: float
) -> Coroutine[object, object, UrlElicited]:
    """Ask the user to open a page; see `Context.elicit_url`. Raises for wrong arguments before it is awaited."""
    if not terms.allow_elicit:
        raise BranchElicitNotAllowed("this branch may not ask the user: it was started with allow_elicit=False")
    page.check()
    return _elicit_url(call, lane, page, None if timeout == math.inf else AskTimeout(timeout))


async def _elicit_url(call: Call, lane: Lane, page: Page, limit: AskTimeout | None) -> UrlElicited:
    name = page.elicitation_id or _new_id(call, lane)
    url = page.url if isinstance(page.url, str) else made_url(page.url, name)
    params = ElicitRequestURLParams(message=page.message, url=url, elicitation_id=name)
    question = Question("elicit", "elicitation/create", params, ElicitResult, ("elicitation.url",))
    elicitations, finished = call.services.url_elicitations, trio.Event()
    # Before the question is sent: the user may have finished before the client says that the user agreed.
    elicitations.add(name, partial(_complete, call, name, finished), call.actor.caller)
    try:
        answer = await _ask(call, lane, question, limit)
        if answer.action == "decline":
            return Declined()
        if answer.action == "cancel":
            return Dismissed()
        if page.wait:
            await _wait_finished(page.done, finished, limit)
    finally:
        elicitations.discard(name)
    if not page.wait and not finished.is_set():
        call.expect_completion([name])
    return UrlAccepted(name)


def _new_id(call: Call, lane: Lane) -> str:
    """Return an id that no one can guess, the same in a replay."""
    if call.memory is None:
        return secrets.token_urlsafe(16)
    key = f"url{lane.coming_key}"  # no step has this name: theirs have a colon
    known = call.memory.recall_step(key)
    if known is not None:
        return str(known.value)
    name = secrets.token_urlsafe(16)
    call.memory.record_step(key, name)
    return name


def _complete(call: Call, name: str, finished: trio.Event) -> None:
    finished.set()
    call.notify_completed(name)


async def _ask(call: Call, lane: Lane, question: Question[ElicitResult], limit: AskTimeout | None) -> ElicitResult:
    try:
        return await (call.ask(lane, question) if limit is None else limit.ask(call, lane, question))
    except CapabilityError as error:
        text = (
            f"{error}. To open a page needs elicitation.url; a form (ctx.elicit) needs form mode only: {SPECIFICATION}"
        )
        raise CapabilityError(text, error.required) from None


async def _wait_finished(done: Done | None, finished: trio.Event, limit: AskTimeout | None) -> None:
    """Wait until the user has finished at the page.

    Raises:
        RequestTimeout: the user has not finished in time.
    """
    with trio.CancelScope(deadline=math.inf if limit is None else limit.deadline):
        while done is not None:
            answer = done()
            if await answer if inspect.isawaitable(answer) else answer:
                return
            with trio.move_on_after(POLL_INTERVAL):
                await finished.wait()
                return
        await finished.wait()
        return
    assert limit is not None
    raise RequestTimeout(f"the user did not finish at the page within {limit.seconds:g} seconds")
