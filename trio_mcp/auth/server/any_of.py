"""Several ways to verify tokens: `any_of` makes one verifier of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from typing_extensions import override

from ...http import HttpRoute
from ...http.authenticator import CannotVerify, CredentialsRejected, Move
from ...session import Caller
from .jwt import issuer_in
from .verifier import Complete, Verifier, check_verifier, refused


def any_of(*verifiers: Verifier) -> Verifier:
    """Return a verifier that accepts what one of these accepts.

        any_of(jwt("https://a.example"), jwt("https://b.example", realm="b"), static({...}))

    A token is only shown to those that it can belong to: a JWT to the verifier of its issuer. So an issuer that cannot be reached
    affects its own callers only.

    Raises:
        TypeError, ValueError: there is no verifier, or two issuers have the same realm.
    """
    for verifier in verifiers:
        check_verifier("each argument of any_of", verifier)
    if not verifiers:
        raise ValueError("any_of needs a verifier, such as any_of(jwt(...), static({...}))")
    members = [member for each in verifiers for member in (each.members if isinstance(each, AnyOf) else (each,))]
    issuers: dict[str, str] = {}
    for verifier in members:
        if verifier.issuer and issuers.setdefault(verifier.realm, verifier.issuer) != verifier.issuer:
            raise ValueError(
                f"any_of: {issuers[verifier.realm]} and {verifier.issuer} may give two people the same name: "
                'write realm= for one of them, as in jwt(..., realm="partner")'
            )
    return AnyOf(members)


class AnyOf(Verifier):
    """Verifies tokens in several ways; `any_of` makes one.

    Attributes:
        members: the ways.
    """

    def __init__(self, members: Sequence[Verifier]) -> None:
        self.members = members
        self._realms = tuple(f"{each.realm}:" for each in members if each.realm)
        self.audience = None if any(each.audience is None for each in members) else ""

    @property
    def issuers(self) -> Collection[str]:
        """Those of all verifiers, in their order."""
        return list(dict.fromkeys(issuer for each in self.members for issuer in each.issuers))

    def bound(self, audience: str, complete: Complete) -> Verifier:
        """See `Verifier`."""
        return AnyOf([each.bound(audience, complete) for each in self.members])

    def with_functions(self, move: Move) -> Verifier:
        """See `Authenticator`."""
        return AnyOf([each.with_functions(move) for each in self.members])

    @override
    def authorization_routes(
        self, endpoint: str, offered: Callable[[], Collection[str]], required: Collection[str]
    ) -> Sequence[HttpRoute]:
        """Return those of the verifier that has any. Raises `ValueError` if several have: their routes would collide."""
        having = [routes for each in self.members if (routes := each.authorization_routes(endpoint, offered, required))]
        if len(having) > 1:
            raise ValueError("any_of: only one OAuthProxy can serve its routes at a resource")
        return having[0] if having else ()

    @override
    def documents(self, scopes: Collection[str]) -> Mapping[str, bytes]:
        """Return those of all verifiers."""
        return {place: document for each in self.members for place, document in each.documents(scopes).items()}

    def owns(self, token: str, issuer: str | None) -> bool | None:
        """Whether one of the verifiers does."""
        return True if self._owners(token, issuer) else None

    async def prepare(self) -> None:
        """Prepare all of them, one after another: each may take some seconds, in the background."""
        for each in self.members:
            await each.prepare()

    @asynccontextmanager
    async def background(self) -> AsyncGenerator[None]:
        """See `Authenticator`."""
        async with AsyncExitStack() as stack:
            for each in self.members:
                await stack.enter_async_context(each.background())
            yield

    def cached(self, token: str) -> Caller | None:
        """See `Verifier`."""
        for verifier in self.members:
            caller = verifier.cached(token)
            if caller is not None:
                return self._in_its_realm(verifier, caller)
        return None

    async def caller_of(self, token: str) -> Caller:
        """See `Verifier`. If one issuer cannot be asked and the others reject the token, it may be good."""
        failure: CannotVerify | CredentialsRejected = refused("it belongs to none of the issuers")
        for verifier in self._owners(token, issuer_in(token)):
            try:
                return self._in_its_realm(verifier, await verifier.caller_of(token))
            except CannotVerify as error:
                failure = error
            except CredentialsRejected as error:
                failure = failure if isinstance(failure, CannotVerify) else error
        raise failure

    def _owners(self, token: str, issuer: str | None) -> Sequence[Verifier]:
        owners = [each for each in self.members if each.owns(token, issuer)]
        return owners or [each for each in self.members if each.owns(token, issuer) is None]

    def _in_its_realm(self, verifier: Verifier, caller: Caller) -> Caller:
        # An issuer without a realm could name its user "partner:alice".
        if not verifier.realm and verifier.issuer and caller.principal.startswith(self._realms):
            raise refused("the principal begins with the realm of another issuer")
        return caller
