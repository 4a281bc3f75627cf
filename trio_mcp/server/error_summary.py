"""The errors of a validation in one line, for a log, a model or a user."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from .. import server

MAX_PROBLEMS = 5
"""How many problems the line about a wrong value names."""


def error_summary(error: ValidationError, *steps: str, known: Collection[str] = ()) -> str:
    """Return a validation error in one line: `flight: Input should be a valid string; ...`.

    Args:
        steps: where the value is that was validated, if it is a member of another one.
        known: the names that its members may have, to suggest one for another.
    """
    # Bounded, because names and texts come from the peer, and the line goes into a log and into a model's context.
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        f"{error_path((*steps, *problem['loc']))}: {problem['msg'][:200]}{meant_member(problem, known)}"
        for problem in problems[:MAX_PROBLEMS]
    )


def meant_member(problem: ErrorDetails, known: Collection[str]) -> str:
    """Return a question with the known name of a member that is unknown; empty for other problems, and if none is near."""
    if problem["type"] != "extra_forbidden" or len(problem["loc"]) != 1:
        return ""
    return server.meant_names.meant(str(problem["loc"][0]), known)


def error_path(steps: tuple[int | str, ...]) -> str:
    """Return where a problem is, with dots between the steps; the names are the peer's, so they are cut."""
    return ".".join(str(step)[:64] for step in steps)[:256] or "value"
