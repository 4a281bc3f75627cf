"""Who may ask for a task: the owner, as a text that another process works out in the same way."""

from __future__ import annotations

from ..calls.facts import RequestFacts, SessionFacts

PRINCIPAL = "principal "
"""What the owner begins with that is a principal."""
ANYBODY = ""
"""The owner of a task whose id is all that protects it."""


def owner_of(facts: RequestFacts) -> str:
    """Return the owner of the tasks that a request creates.

    It is the authenticated principal; without one the session, and for a request that belongs to no session whoever holds the id.
    """
    if facts.principal is not None:
        return PRINCIPAL + facts.principal
    return ANYBODY if facts.session is None else session_owner(facts.session.facts)


def principal_of(owner: str) -> str | None:
    """Return the principal that is an owner; None for a session or an anonymous owner."""
    return owner.removeprefix(PRINCIPAL) if owner.startswith(PRINCIPAL) else None


def session_owner(session: SessionFacts) -> str:
    """Return the owner of what only a session can ask for."""
    return f"session {session.owner}"


def may_see(facts: RequestFacts, owner: str) -> bool:
    """Return whether a request may ask for a task of this owner, whose id it has."""
    return owner in (ANYBODY, owner_of(facts))
