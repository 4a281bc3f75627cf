"""Runs the steps of the flow: sends their requests, and opens their pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ...errors import AuthorizationError, AuthorizationErrorKind as Kind
from ..addresses import Reach, check_url
from ..fetching import fetch
from ..replies import Reply
from ..uris import origin
from .steps import Browse, Get, Post, Steps

if TYPE_CHECKING:
    from .dpop import Proofs

T = TypeVar("T")

BrowserFunction: TypeAlias = Callable[[Browse], Awaitable[str]]


async def no_browser(_request: Browse) -> str:
    """Stand for the browser of a grant that needs none."""
    raise AuthorizationError("this grant opens no browser", kind=Kind.LOGIN_REQUIRED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """What the requests of a flow are sent with.

    Attributes:
        reach: where they may go.
        named: the origins of authorization servers that the program names: they may be at private addresses. What the MCP server
            names may not.
        clock: returns the time, in seconds since 1970.
        browse: opens an authorization URL, and returns the URL to which the browser was redirected.
        proofs: makes DPoP proofs; None if the flow has none.
    """

    reach: Reach
    clock: Callable[[], float]
    browse: BrowserFunction = no_browser
    proofs: Proofs | None = None
    named: frozenset[str] = frozenset()

    async def run(self, steps: Steps[T]) -> T:
        """Run a flow to its end, and return its result.

        Raises:
            AuthorizationError: a request failed, or the flow did.

        A cancel ends it; a request that was sent may have arrived.
        """
        reply: Reply | str | None = None
        try:
            while True:
                request = steps.send(reply)  # type: ignore[arg-type]  # None starts a generator
                reply = await self._reply_to(request)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()

    async def _reply_to(self, request: Get | Post | Browse) -> Reply | str:
        match request:
            case Get(url):
                return await fetch(url, self._reach_of(url))
            case Post():
                return await self._post(request)
            case Browse():
                return await self.browse(request)

    def _reach_of(self, url: str) -> Reach:
        """Return where a request may go. Raises `AuthorizationError` (kind `ADDRESS`) for a URL of no use."""
        check_url(url, Reach.CONFIGURED)
        return Reach.CONFIGURED if self.named and origin(url) in self.named else self.reach

    async def _post(self, request: Post) -> Reply:
        """Post a request; once more if the server wants a nonce in the proof (RFC 9449, 8)."""
        reply = await self._post_once(request)
        is_new = request.proof and self.proofs is not None and self.proofs.learn(request.url, reply.headers)
        if is_new and reply.status in (400, 401) and b"use_dpop_nonce" in reply.body:
            reply = await self._post_once(request)
        return reply

    async def _post_once(self, request: Post) -> Reply:
        reach, proof = self._reach_of(request.url), {}
        if request.proof and self.proofs is not None:
            proof = {"dpop": self.proofs.proof("POST", request.url, self.clock())}
        headers = {**request.headers, **proof}
        return await fetch(request.url, reach, form=request.form, json=request.json, headers=headers)
