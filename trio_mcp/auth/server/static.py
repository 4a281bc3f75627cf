"""Tokens that a program lists: `static` makes their verifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from typing_extensions import override

from ...base.checks import check_str
from ...http.authenticator import CredentialsRejected
from ...session import Caller
from .verifier import Complete, Verifier, bearer_token, digest, refused

MIN_TOKEN: Final = 16
"""Characters of a token: a shorter one can be guessed."""


def static(tokens: Mapping[str, Caller | str]) -> Verifier:
    """Return a verifier of these tokens, for `authenticate=`; `secrets.token_urlsafe(32)` makes one.

        server = Server("notes", http=HttpOptions(authenticate=static({os.environ["TOKEN"]: "ci"})))

    Args:
        tokens: the caller of each token; text stands for `Caller(text)`.

    Raises:
        TypeError, ValueError: a token is too short or cannot be in a header, or a caller is invalid. The error shows no token.
    """
    given: object = tokens
    if not isinstance(given, Mapping) or not given:
        raise TypeError('static takes a mapping of tokens to callers, such as {os.environ["TOKEN"]: "ci"}')
    return StaticVerifier({digest(_checked(token)): _caller(caller) for token, caller in tokens.items()})


def _checked(token: object) -> str:
    # The errors name no value: it is a secret.
    if not isinstance(token, str) or len(token) < MIN_TOKEN:
        raise ValueError(f"static: a token is text of at least {MIN_TOKEN} characters; write secrets.token_urlsafe(32)")
    try:
        return bearer_token({"authorization": f"Bearer {token}"}) or ""
    except CredentialsRejected as error:
        raise ValueError(f"static: a token cannot be sent as it is: {error}") from None


def _caller(caller: object) -> Caller:
    return caller if isinstance(caller, Caller) else Caller(check_str("each caller of static", caller))


class StaticVerifier(Verifier):
    """Verifies tokens that are known beforehand; `static` makes one.

    Args:
        callers: by the digests of their tokens.
    """

    def __init__(self, callers: Mapping[bytes, Caller]) -> None:
        self._callers = callers

    @override
    def bound(self, audience: str, complete: Complete) -> Verifier:
        """See `Verifier`."""
        return StaticVerifier({key: complete(caller) for key, caller in self._callers.items()})

    @override
    def owns(self, token: str, issuer: str | None) -> bool | None:
        """Whether it is one of the tokens."""
        return digest(token) in self._callers

    def cached(self, token: str) -> Caller | None:
        """See `Verifier`."""
        return self._callers.get(digest(token))

    async def caller_of(self, token: str) -> Caller:
        """See `Verifier`."""
        caller = self.cached(token)
        if caller is None:
            raise refused("not one of the listed tokens")
        return caller
