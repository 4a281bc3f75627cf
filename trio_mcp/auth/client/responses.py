"""What a response means to a client that sends tokens: a table, without I/O."""

# What a response means. `next_action` is this table; `Attempts` in `authorizer.py` carries it out.
#
#   response                    state                                            action
#   ------------------------    ---------------------------------------------    ------------------------------------------------
#   401 with a new nonce        bound tokens, not tried for this request         PROVE: the same token with another proof
#   401                         the store has other tokens by now                ADOPT: try again with those
#   401                         a refresh token, not tried for this request      REFRESH, then try again
#   401                         fewer than 2 logins for this request             LOG_IN: discover again, since the issuer may
#                                                                                have moved; then try again
#   401                         else                                             REFUSE: `AuthorizationError`
#   403 insufficient_scope      fewer than 2 step-ups for this request, and      STEP_UP: log in with more scopes, try again
#                               for these scopes in this channel
#   any other                                                                    RETURN: the response is the caller's

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from ..challenges import Challenge, parse_challenges
from .grants import BEARER, DPOP, Tokens

MAX_LOGINS: Final = 2
MAX_STEP_UPS: Final = 2
MAX_ADOPTIONS: Final = 3
NO_CHALLENGE: Final = Challenge("", {})
SCHEMES: Final = {BEARER: "Bearer", DPOP: "DPoP"}


class Action(Enum):
    """What is done about a response."""

    RETURN = auto()
    PROVE = auto()
    ADOPT = auto()
    REFRESH = auto()
    LOG_IN = auto()
    STEP_UP = auto()
    REFUSE = auto()


@dataclass(slots=True)
class Tries:
    """What was done for one request so far."""

    proofs: int = 0
    adoptions: int = 0
    refreshes: int = 0
    logins: int = 0
    step_ups: int = 0


def next_action(
    status: int, error: str, sent: Tokens | None, stored: Tokens | None, tries: Tries, *, is_new_nonce: bool = False
) -> Action:
    """Return what to do about a response.

    Args:
        error: the code in its challenge.
        sent: the tokens that the request had.
        stored: the tokens in the store now.
        is_new_nonce: the response has a nonce that was not known.
    """
    if status == 403 and error == "insufficient_scope" and tries.step_ups < MAX_STEP_UPS:
        return Action.STEP_UP
    if status != 401:
        return Action.RETURN
    if sent is not None and sent.kind == DPOP and is_new_nonce and not tries.proofs:
        return Action.PROVE
    if stored is not None and (sent is None or stored.access != sent.access) and tries.adoptions < MAX_ADOPTIONS:
        return Action.ADOPT
    if stored is not None and stored.refresh is not None and not tries.refreshes:
        return Action.REFRESH
    return Action.LOG_IN if tries.logins < MAX_LOGINS else Action.REFUSE


def challenge_in(header: str) -> Challenge:
    """Return the challenge that says most, of those that ask for a token."""
    found = [each for each in parse_challenges(header) if each.scheme in SCHEMES]
    telling = (each for each in found if each.error or each.resource_metadata or each.scope)
    return next(telling, NO_CHALLENGE)
