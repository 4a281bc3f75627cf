"""Splitting a round of a modern server between proxy and host, and joining the answers of both.

The host gets its questions with a `requestState` of the proxy, which holds the server's state and the answers of the proxy. It is
sealed and bound to the request: the host can neither read nor change it, nor use it with another request. The proxy itself
remembers nothing between the two requests.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

from ..base.named_tuples import NamedTuple
from ..errors import InvalidRequestState
from ..protocol.sealing.request_state import MAX_STATE, KeyRing, Sealer, digest
from ..types import JsonObject, JsonValue
from .offers import Host, Offers

PREFIX: Final = "trio-mcp-relay."
"""What the states of a proxy begin with."""

AUDIENCE: Final = "trio-mcp relay "
"""What the audience of its states begins with: a server may have the same name."""

ASKING: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The requests that a server may answer with questions (M-MRTR-1s)."""

INTERIM: Final = "input_required"
"""The type of a result that asks."""

MAX_ROUNDS: Final = 100
"""Rounds in a row that the proxy answers alone."""

STATE_SECONDS: Final = 600.0
"""How long a host may take to answer its part of a round."""
PASSED_SECONDS: Final = 24 * 60 * 60.0
"""How long a state is good that has nothing of the proxy in it: the server has a time limit for its own."""
MAX_SEALED: Final = 4 * MAX_STATE
"""Characters of such a state. It holds that of the server, which may be a proxy that seals that of another one."""

RETRY_MEMBERS: Final = frozenset({"inputResponses", "requestState"})


class Round(NamedTuple):
    """The questions of an interim result.

    Attributes:
        ours: those that the proxy answers.
        theirs: all others, for the host.
        state: the server's `requestState`; None if it sent none.
    """

    ours: JsonObject
    theirs: JsonObject
    state: str | None


def read_round(offers: Offers, host: Host, result: JsonObject) -> Round | None:
    """Return the questions of a result; None if the proxy answers none of them, and the result passes as it is."""
    if result.get("resultType") != INTERIM:
        return None
    asked, state = result.get("inputRequests"), result.get("requestState")
    ours: JsonObject = {}
    theirs: JsonObject = {}
    for key, question in asked.items() if isinstance(asked, dict) else ():
        mine = isinstance(question, dict) and offers.answers(host, question.get("method"), question.get("params"))
        (ours if mine else theirs)[key] = question
    state = state if isinstance(state, str) else None
    # The state of another proxy behind this one looks like ours when it comes back, so it is wrapped as well.
    if not ours and (state is None or not state.startswith(PREFIX)):
        return None
    return Round(ours, theirs, state)


def retried(params: JsonObject, responses: JsonObject, state: str | None) -> JsonObject:
    """Return the params of a request that is sent again with answers (M-MRTR-8c)."""
    again = {name: value for name, value in params.items() if name not in RETRY_MEMBERS}
    if responses:
        again["inputResponses"] = responses
    if state is not None:
        again["requestState"] = state
    return again


class RoundStates:
    """Seals and opens the states of split rounds, and those of the server for one of several principals.

    Args:
        ring: the keys.
        audience: that of the proxy.
    """

    def __init__(self, ring: KeyRing, audience: str) -> None:
        self._ring = ring
        self._audience = AUDIENCE + audience

    def split(self, principal: str | None, method: str, params: JsonObject, asked: Round, answers: JsonObject) -> str:
        """Return the state for the host's part of a round.

        Raises:
            LimitExceeded: the answers and the server's state are too large for a state.
        """
        journal: JsonObject = {"state": asked.state, "answers": answers}
        sealer = self._rounds if answers else self._passed
        return PREFIX + sealer.seal(principal, method, request_digest(params), "", 0, journal)

    def joined(self, principal: str | None, method: str, params: JsonObject) -> JsonObject:
        """Return the params of a host's request as the server gets them: a retry with a state of ours gets our answers.

        Raises:
            InvalidRequestState: the state is not of this proxy, or not for this request, or has expired.
        """
        state = params.get("requestState")
        if not isinstance(state, str) or not state.startswith(PREFIX):
            if principal is not None and isinstance(state, str):
                raise InvalidRequestState("not of this proxy, whose principals are one caller to the server")
            return params
        claims = self._passed.open(state.removeprefix(PREFIX), principal, method, request_digest(params))
        match claims.journal:
            case {"state": str() | None as inner, "answers": dict() as answers}:
                if inner is not None and not answers:
                    return {**params, "requestState": inner}
                given = params.get("inputResponses")
                # Ours last: a host cannot replace them.
                return retried(params, {**(given if isinstance(given, dict) else {}), **answers}, inner)
            case _:
                raise InvalidRequestState("no round inside")

    @cached_property
    def _rounds(self) -> Sealer:
        return Sealer(self._ring, self._audience, STATE_SECONDS)

    @cached_property
    def _passed(self) -> Sealer:
        return Sealer(self._ring, self._audience, PASSED_SECONDS, max_state=MAX_SEALED)


def request_digest(params: JsonObject) -> str:
    """Return the digest of what a request asks for, which a retry may not change."""
    target, arguments = params.get("name", params.get("uri")), params.get("arguments")
    return digest(target if isinstance(target, str) else "", arguments if isinstance(arguments, dict) else {})


def as_object(value: JsonValue) -> JsonObject:
    """Return a JSON object as it is, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}
