"""What a server offers, as a service uses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from ..protocol.jsonrpc import Request
from ..runtime import ThreadLimiter
from ..types import ServerCapabilities
from .caller import Caller
from .calls.call import Call, RequestCheck, Route
from .calls.services import CallServices
from .envelope import MessageMiddleware
from .subscriptions import Follower

MissingScopes: TypeAlias = Callable[[Request, Callable[[], Caller | None]], frozenset[str]]
"""Returns the scopes that a request needs, if its caller, which the function returns, lacks one of them."""

NO_CHECKS: Mapping[str, RequestCheck] = MappingProxyType({})


def no_scopes(_request: Request, _caller: Callable[[], Caller | None]) -> frozenset[str]:
    return frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """All that another version of a server may replace in a running service, in one step: `Service.replace_offers`.

    Attributes:
        routes: serve the requests, by method.
        capabilities: to declare.
        instructions: how a model should use the server.
        request_checks: checks of requests that continue a call, by method.
        threads: where plain functions run, for the statistics.
        missing_scopes: for a transport that can reject a request before it is served.
        state: what the lifespan yielded.
        message_middleware: sees each message of a client.
        followers: of the resources that have subscribers.
        equip: gives their calls the model, the tools and the mounted servers.
    """

    routes: Mapping[str, Route]
    capabilities: ServerCapabilities
    instructions: str | None
    request_checks: Mapping[str, RequestCheck]
    threads: Sequence[ThreadLimiter]
    missing_scopes: MissingScopes
    state: object
    message_middleware: Sequence[MessageMiddleware]
    followers: Sequence[Follower]
    equip: Callable[[CallServices[Call]], None]
