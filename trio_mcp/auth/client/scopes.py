"""Choosing the scopes to request (L-AUTH-9c, M-AUTH-5c)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

OFFLINE: Final = "offline_access"
"""The scope that asks for a refresh token."""


def choose_scopes(
    chosen: Sequence[str] | None,
    challenged: str | None,
    supported: Sequence[str] | None,
    before: Sequence[str] = (),
    *,
    is_step_up: bool = False,
    offered: Sequence[str] = (),
    wants_refresh: bool = True,
) -> str | None:
    """Return the scopes to request, with spaces between them; None for the server's default.

    Args:
        chosen: those of the program; they win over the next two.
        challenged: those in the challenge of the server.
        supported: those in its metadata.
        before: what was requested and granted before; for a step-up.
        is_step_up: the tokens lacked scopes, so those of the challenge are added.
        offered: those in the metadata of the authorization server.
        wants_refresh: whether the grant may bring a refresh token.
    """
    from_challenge = challenged.split() if challenged else []
    wanted = [*before, *(chosen if chosen is not None else from_challenge or supported or ())]
    if is_step_up:
        wanted += from_challenge
    # Asked for alone, it would replace the default scopes of the server.
    unique = [scope for scope in dict.fromkeys(wanted) if scope != OFFLINE]
    if OFFLINE in offered and wants_refresh and unique:
        unique.append(OFFLINE)
    return " ".join(unique) or None
