"""Showing the words of a command, and URLs, without what may be a secret in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from .values import shown_url

SECRET_NAME: Final = (
    r"key|token|secret|pass(?!ive|enger|age)|pwd|auth|credential|cred$|bearer|cookie|signature|dsn|connection.?string"  # noqa: S105
)
"""What the name of an option, a variable or a header says of its value; case does not count."""


MASK: Final = "***"
PAIRS: Final = frozenset({"--header", "--env", "--environment", "-H", "-e"})
"""Options whose value is a name with a value."""
USERS: Final = frozenset({"--user", "-u"})
"""Options whose value may be a user with a password."""
IS_URL: Final = re.compile(r"[A-Za-z][\w+.-]*://\S*$")
PAIR: Final = re.compile(r"(?P<name>[A-Za-z_][\w.-]*)(?P<sign>=|:\s*)(?P<value>.*)", re.DOTALL)
INSIDE: Final = re.compile(
    rf"(?:{SECRET_NAME})[\w.-]*\\?[\"']?\s*(?:=\s*|:\s*(?!/))(?=\S)|://[^/@\s]*:(?=[^/@\s]*@)|-H\s*[\w-]+:\s*(?=\S)"
    rf"|--?[\w-]*(?:{SECRET_NAME})[\w-]*\s+(?=[^\s-])",
    re.IGNORECASE,
)
"""What comes before a secret in a longer text, such as JSON, a connection string or the line of a shell."""
USER: Final = re.compile(r"(//|--user=|^)(?P<name>[\w.-]+):[^\s:/@]+(?P<host>@[\w.-].*)", re.DOTALL)
"""A user with a password at a host, without the scheme of a URL."""
PREFIXES: Final = re.compile(
    r"(sk|pk|rk|whsec|ghp|gho|ghu|ghs|ghr|github_pat|glpat|xox[a-z]|npm|pypi|hf|AKIA|ASIA|AIza|eyJ|ya29|Bearer|Basic)[-_. ]?\w"
)
"""How keys of many services begin."""
RANDOM: Final = re.compile(r"[\w+/=~-]{20,}")
HEX: Final = re.compile(r"[0-9a-f-]{32,}", re.IGNORECASE)


def masked(words: Sequence[str]) -> list[str]:
    """Return the words of a command, with a mask in place of what looks like a secret.

    What follows an option such as `--api-key` is masked, the values of headers and variables, whatever looks random or begins as
    the keys of known services do, and in URLs the user and the query.
    """
    shown: list[str] = []
    before = ""
    for word in words:
        if before in PAIRS or (before in USERS and ":" in word):
            shown.append(shown_value(word))
        else:
            shown.append(MASK if is_named(before, word) else shown_word(word))
        before = word
    return shown


def is_named(option: str, word: str) -> bool:
    """Return whether an option says that the word after it is a secret."""
    # A secret may begin with a dash, and two of them are another option.
    is_option = word.startswith("--") or (word.startswith("-") and len(word) == 2)
    return option.startswith("-") and "=" not in option and not is_option and is_secret_name(option)


def shown_value(word: str) -> str:
    """Return a name with a value, `NAME=VALUE` or `NAME: VALUE`, without the value."""
    found = PAIR.fullmatch(word)
    return MASK if found is None else f"{found['name']}{found['sign']}{MASK}"


def shown_word(word: str) -> str:
    option, sign, value = word.partition("=")
    if sign and option.startswith("-"):
        if option in PAIRS:
            return f"{option}={shown_value(value)}"
        return f"{option}={MASK if is_secret_name(option) else shown_word(value)}"
    if IS_URL.match(word):
        return masked_url(word)
    found = PAIR.fullmatch(word)
    if found is not None and (is_secret_name(found["name"]) or looks_secret(found["value"])):
        return f"{found['name']}{found['sign']}{MASK}"
    inside = INSIDE.search(word)
    if inside is not None:
        # What follows may have spaces and quotation marks in it, or none.
        return f"{word[: inside.end()]}{MASK}"
    if "://" in word:
        return shown_url(word)
    user = USER.fullmatch(word)
    if user is not None:
        return f"{user[1]}{user['name']}:{MASK}{user['host']}"
    return MASK if looks_secret(word) else word


def masked_url(url: str) -> str:
    """Return a URL without its user and its query, and with a mask in place of a part of its path that looks like a secret."""
    start, *path = re.split(r"(?<!/)/(?!/)", shown_url(url))
    return "/".join([start, *(MASK if looks_secret(part) else part for part in path)])


def looks_secret(word: str) -> bool:
    """Return whether a word looks random, or begins as the keys of known services do."""
    if len(word) >= 16 and PREFIXES.match(word):
        return True
    if HEX.fullmatch(word):
        return True
    # The paths of files and the names of packages have words in them, and not all three kinds of characters in a row.
    kinds = (str.isupper, str.islower, str.isdigit)
    return RANDOM.fullmatch(word) is not None and word.count("/") < 2 and all(any(map(kind, word)) for kind in kinds)


def is_secret_name(name: str) -> bool:
    """Return whether the name of an option, a variable or a header says that its value is a secret."""
    return re.search(SECRET_NAME, name, re.IGNORECASE) is not None
