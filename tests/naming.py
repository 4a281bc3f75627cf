"""What an error has to name. Tests hold the kind of an error and the names in it; its wording is free."""

from __future__ import annotations

import re


def naming(*names: object) -> str:
    """Return a pattern for `match=`: every name is in the text as a whole word, in any order."""
    return "(?s)" + "".join(f"(?=.*{whole(str(name))})" for name in names)


def unnamed(text: str, *names: object) -> list[str]:
    """Return those of the names that are not in the text, so that a failing assertion shows them."""
    return [str(name) for name in names if re.search(whole(str(name)), text) is None]


def whole(name: str) -> str:
    """Return a pattern for a name that no letter or digit continues."""
    before = r"(?<!\w)" if name[:1].isalnum() else ""
    after = r"(?!\w)" if name[-1:].isalnum() else ""
    return before + re.escape(name) + after
