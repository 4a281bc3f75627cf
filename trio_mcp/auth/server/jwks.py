"""The keys of an issuer (RFC 7517): when they are fetched, how long they count, and which one a token was signed with.

| state | a token with a known key | with an unknown `kid` |
|---|---|---|
| never fetched | waits for the one fetch that runs | the same |
| fresh | is verified at once | waits for one refresh, at most one in 30 seconds |
| to be refreshed (1 hour, or `max-age`, or a server starts) | the first waits for the refresh, others do not | as fresh |
| refreshing fails | is verified with the old keys, for a day | is refused |
| no keys, or a day old | `CannotVerify`; one attempt after 1, 2, 4 ... 60 seconds | the same |
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import trio
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey, import_key

from ...base.logs import peer_logger
from ...http.authenticator import CannotVerify
from ...types import JsonObject
from ..addresses import Reach
from ..fetching import fetch
from .metadata import SharedRefresh, issuer_endpoint

logger = peer_logger("trio_mcp.auth")

MAX_KEYS: Final = 64
FRESH_SECONDS: Final = 3_600.0
MIN_FRESH: Final = 300.0
MAX_FRESH: Final = 86_400.0
KEPT_SECONDS: Final = 86_400.0
"""How long keys count that cannot be fetched again."""
UNKNOWN_SECONDS: Final = 30.0
"""Between two refreshes for a `kid` that is not known: anyone can write one into a token."""
MIN_RSA_BITS: Final = 2_048  # RFC 7518, 3.3

Key = RSAKey | ECKey | OKPKey

_KINDS: Final[dict[str, str]] = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""Types of keys, by how the name of an algorithm begins."""


class KeySet:
    """Public keys for signatures.

    Args:
        document: a JWK set (RFC 7517, 5). What is not a public key for signatures, or cannot be read, is left out.
    """

    def __init__(self, document: JsonObject) -> None:
        listed = document.get("keys")
        if not isinstance(listed, list):
            raise CannotVerify("the key set has no list of keys")
        self.document = document
        read = [key for each in listed[:MAX_KEYS] if isinstance(each, dict) and (key := read_key(each)) is not None]
        self._by_id = {key.kid: key for key in reversed(read) if key.kid is not None}
        self._all = read

    def __len__(self) -> int:
        return len(self._all)

    def find(self, kid: str | None, algorithm: str) -> Key | None:
        """Return the key of that id; without an id, the only one that fits the algorithm; None if there is none."""
        if kid is not None:
            return self._by_id.get(kid)
        fitting = [key for key in self._all if key.key_type == _KINDS[algorithm[:2]] and key.alg in (None, algorithm)]
        return fitting[0] if len(fitting) == 1 else None


def read_key(jwk: JsonObject) -> Key | None:
    """Return a public key for signatures; None if a JWK is none: symmetric, for encryption, weak or malformed."""
    if jwk.get("kty") not in _KINDS.values() or jwk.get("use", "sig") != "sig" or _is_weak(jwk):
        return None
    # Without private parts: a signature needs none of them, and nothing here has to hold one.
    public = {name: value for name, value in jwk.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "oth", "x5u")}
    try:
        key = import_key(public)  # type: ignore[arg-type]  # what it cannot read is an error of it
    except (JoseError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return key if isinstance(key, Key) and isinstance(key.kid, str | None) else None


def _is_weak(jwk: JsonObject) -> bool:
    modulus = jwk.get("n")
    return jwk["kty"] == "RSA" and isinstance(modulus, str) and len(modulus.rstrip("=")) * 6 < MIN_RSA_BITS


class IssuerKeys:
    """The keys of an issuer, fetched when they are needed.

    Args:
        issuer: whose metadata names the key set.
        url: of the key set; None if the metadata has to be asked.
        on_change: called when the keys are others than before.
    """

    def __init__(self, issuer: str, url: str | None, on_change: Callable[[], None]) -> None:
        self._issuer, self._url, self._on_change = issuer, url, on_change
        self._keys: KeySet | None = None
        self._fetched = self._fresh_until = self._unknown_at = -math.inf
        self._refresh = SharedRefresh(self._load)

    async def find(self, kid: str | None, algorithm: str) -> Key | None:
        """Return the key of a token; None if the issuer has none for it.

        A cancel does not end a fetch that others wait for; see `SharedRefresh`.

        Raises:
            CannotVerify: there are no keys, and they cannot be fetched.
        """
        usable = self._usable
        # Who has keys does not wait for others to refresh them.
        if usable is None or (trio.current_time() >= self._fresh_until and not self._refresh.is_running):
            await self._refresh.run()
            usable = self._usable
        if usable is None:
            raise CannotVerify(
                f"the keys of {self._issuer!r} cannot be fetched: {self._refresh.failure}", self._refresh.retry_after
            )
        return usable.find(kid, algorithm) or await self._find_new(kid, algorithm)

    def background(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager whose block runs the fetches; see `SharedRefresh.background`.

        Keys that are there are to be refreshed: an earlier Trio run may have fetched them, whose clock began somewhere else.
        """
        self._fetched, self._fresh_until, self._unknown_at = trio.current_time(), -math.inf, -math.inf
        return self._refresh.background()

    async def prepare(self) -> None:
        """Fetch the keys if there are none. A failure is logged: until it is mended, no token can be verified."""
        if self._keys is None:
            await self._refresh.run()
        if self._keys is None:
            logger.warning(
                "no token can be verified now: the keys of %r cannot be fetched: %s",
                self._issuer,
                self._refresh.failure,
            )

    async def _find_new(self, kid: str | None, algorithm: str) -> Key | None:
        now = trio.current_time()
        if now - self._unknown_at >= UNKNOWN_SECONDS:
            self._unknown_at = now
        elif not self._refresh.is_running:
            return None
        await self._refresh.run()
        return None if self._usable is None else self._usable.find(kid, algorithm)

    @property
    def _usable(self) -> KeySet | None:
        return self._keys if trio.current_time() - self._fetched < KEPT_SECONDS else None

    async def _load(self) -> None:
        url = self._url
        if url is None:
            url = await issuer_endpoint(self._issuer, "jwks_uri")
        reply = await fetch(url, Reach.CONFIGURED)
        if reply.status != 200:
            raise CannotVerify(f"{url} answered HTTP {reply.status}")
        keys = KeySet(reply.document(f"the key set at {url}"))
        self._fetched = trio.current_time()
        self._fresh_until = self._fetched + fresh_seconds(reply.headers.get("cache-control", ""))
        changed = self._keys is None or self._keys.document != keys.document
        if changed:
            self._keys = keys
            self._on_change()


def fresh_seconds(cache_control: str) -> float:
    """Return how long keys are fresh that came with this header."""
    found = re.search(r"(?:^|[,\s])max-age=(\d{1,9})", cache_control, re.IGNORECASE)
    return FRESH_SECONDS if found is None else min(MAX_FRESH, max(MIN_FRESH, float(found[1])))
