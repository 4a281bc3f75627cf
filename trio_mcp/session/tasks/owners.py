"""Who may ask for a task: the owner, as a text that another process works out in the same way."""

from __future__ import annotations

from ..calls.facts import RequestFacts

ANYBODY = ""
"""The owner of a task whose id is all that protects it."""


def owner_of(facts: RequestFacts) -> str:
    """Return the owner of the tasks that a request creates.

    It is the authenticated principal; without one the session, and for a request that belongs to no session whoever holds the id.
    """
    if facts.principal is not None:
        return f"principal {facts.principal}"
    return ANYBODY if facts.session is None else f"session {facts.session.owner}"


def may_see(facts: RequestFacts, owner: str) -> bool:
    """Return whether a request may ask for a task of this owner, whose id it has."""
    return owner in (ANYBODY, owner_of(facts))
