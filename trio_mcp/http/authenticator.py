"""What authenticates the callers of a server if it is more than a function: it has challenges, documents and checks at the start.

The objects of `trio_mcp.auth` are such hooks. Any hook for `authenticate=` may raise `CredentialsRejected` and `CannotVerify`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, Literal, TypeAlias

import trio

from ..session import Caller
from ..session.envelope import check_scopes
from .routes import HttpRoute

RETRY_AFTER: Final = 5
"""Seconds after which credentials that could not be verified may be sent again."""


class CredentialsRejected(Exception):
    """The credentials of a request are rejected (RFC 6750, 3.1).

    Args:
        status: of HTTP: 400 for a malformed header, 401 for a token that is not accepted, 403 for one that lacks scopes.
        error: the code in the challenge, such as "invalid_token".
        reason: for the log only; the caller gets the same response for every reason.
        scopes: what the request needs, if it is known.

    Raises:
        ValueError: there is no such status, or a challenge cannot have the code or a scope.
    """

    def __init__(self, status: Literal[400, 401, 403], error: str, reason: str, scopes: Collection[str] = ()) -> None:
        super().__init__(reason)
        if status not in (400, 401, 403):
            raise ValueError(f"status must be 400, 401 or 403, not {status!r:.40}; raise CannotVerify for 503")
        self.status = status
        (self.error,) = check_scopes("error", [error]) if error else ("",)
        self.scopes = check_scopes("scopes", scopes)


class CannotVerify(Exception):
    """Credentials cannot be verified now, because the authorization server does not answer.

    Args:
        reason: for the log only.
        retry_after: seconds after which the request may be sent again.
    """

    def __init__(self, reason: str, retry_after: float = RETRY_AFTER) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


Authenticate: TypeAlias = Callable[[Mapping[str, str]], Awaitable[str | Caller | None]]
"""An async function from the headers of a request (names in lower case) to its principal or `Caller`, or None to reject it."""


Move: TypeAlias = Callable[[Callable[..., object]], Callable[..., object]]
"""Returns a function of the author as it is to be called, such as on asyncio."""


class Authenticator(ABC):
    """A hook for `authenticate=` that also says how to authenticate."""

    @property
    def hides_credentials(self) -> bool:
        """Whether tools do not see the header `Authorization`: a token is for this server alone (L-AUTH-8s)."""
        return True

    @property
    def public_url(self) -> str | None:
        """The URL to which clients connect; None if it is not known."""
        return None

    @property
    def required(self) -> frozenset[str]:
        """The scopes that every request needs."""
        return frozenset()

    def admitted(self, caller: Caller) -> Caller:
        """Return a caller with the scopes that its own imply. Raises `CredentialsRejected` if it lacks one that is required."""
        return caller

    @abstractmethod
    async def __call__(self, headers: Mapping[str, str]) -> str | Caller | None:
        """Return the caller of a request; None if it has no credentials.

        Args:
            headers: of the request, names in lower case.

        Raises:
            CredentialsRejected: its credentials are not accepted.
            CannotVerify: whether they are good cannot be found out now.
        """

    def known(self, headers: Mapping[str, str]) -> Caller | None:  # noqa: ARG002  for those that remember
        """Return the caller of a request whose credentials were verified a moment ago; None for any other, which is awaited.

        An asyncio host calls it outside of Trio, so that most requests need no task there. By default there is none.
        """
        return None

    def with_functions(self, move: Move) -> Authenticator:  # noqa: ARG002  most have none
        """Return this hook with the functions of the author in it as `move` returns them."""
        return self

    def check(self) -> None:  # noqa: B027  most have nothing to check
        """Raise `ValueError` if the settings are incomplete; called by `HttpOptions`."""

    def check_endpoints(self, endpoints: Collection[str], scopes: Collection[str], root: str = "") -> None:  # noqa: B027  see above
        """Raise `ValueError` if the settings do not fit the server; called when it starts.

        Args:
            endpoints: the paths at which it is served.
            scopes: those that its tools, resources and prompts need.
            root: the path prefix under which a proxy publishes it; "" if that is not known.
        """

    async def prepare(self) -> None:  # noqa: B027  see above
        """Get what the first request needs, such as keys; called by `run`, and may fail."""

    def background(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager whose block runs what several requests wait for, such as a fetch of keys.

        So a request that is cancelled ends at once, and the others get what they wait for. By default nothing is run.
        """
        return nullcontext()

    async def run(self) -> None:
        """Prepare, and stay in the background until it is cancelled; a task of the server runs it."""
        async with self.background():
            await self.prepare()
            await trio.sleep_forever()

    def challenge(
        self,
        error: str = "",
        scopes: Collection[str] = (),
        root: str = "",  # noqa: ARG002  for those with documents
    ) -> Mapping[str, str]:
        """Return the parameters of the challenge `Bearer` (RFC 6750, 3).

        Args:
            error: its code; empty for a request without credentials.
            scopes: what the request needs.
            root: the path prefix under which the server is published.
        """
        parameters = {"error": error} if error else {}
        return {**parameters, "scope": " ".join(sorted(scopes))} if scopes else parameters

    def documents(self, scopes: Collection[str]) -> Mapping[str, bytes]:  # noqa: ARG002  there are none here
        """Return public JSON documents by their paths at the origin, first the one that belongs to the path of the server.

        Args:
            scopes: those that the tools, resources and prompts of the server need.
        """
        return {}

    def routes(
        self,
        endpoints: Collection[str],  # noqa: ARG002  for those that issue tokens
        scopes: Callable[[], Collection[str]],  # noqa: ARG002
    ) -> Sequence[HttpRoute]:
        """Return the routes that are served with the server, such as those of an authorization server.

        Args:
            endpoints: the paths at which the server is served, below the prefix of several servers.
            scopes: returns those that the tools, resources and prompts of the server need.
        """
        return ()


class PlainAuthenticator(Authenticator):
    """A hook that is a function; tools see what it sees."""

    def __init__(self, hook: Authenticate) -> None:
        self._hook = hook

    @property
    def hides_credentials(self) -> bool:
        """The function is the author's, and so is what tools do with the header."""
        return False

    async def __call__(self, headers: Mapping[str, str]) -> str | Caller | None:
        """Return what the function returns."""
        return await self._hook(headers)


def as_authenticator(hook: Authenticate) -> Authenticator:
    """Return a hook as an `Authenticator`."""
    return hook if isinstance(hook, Authenticator) else PlainAuthenticator(hook)
