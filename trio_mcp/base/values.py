"""Small values that every floor uses: the type of a JSON value, printable text, and fast named tuples.

Nothing here loads pydantic: `errors` needs these names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"


# Named tuples that are made for each message.

make_tuple: Final = tuple.__new__
"""Make a named tuple of all its fields in order: `make_tuple(Point, (1, 2))`, in a third of the time of `Point(1, 2)`.

The class would call a Python function that calls this. Neither the number of the values nor their types are checked.
"""


# Text of a peer, made safe to show: errors, log records and the terminal use it.

MAX_CHARACTERS: Final = 1_000
"""Characters of a text that is shown in one line."""

# C0 and C1 controls except tab and newline, and the Unicode characters that embed, override or isolate a direction.
# Compiled when they are first used, by `re`, which keeps them.
_UNSAFE = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
_USER = r"(?<=://)[^/?#]*@"
_BREAKS = r"[\n\u2028\u2029]"

SECRET_NAME: Final = (
    r"key|token|secret|pass(?!ive|enger|age)|pwd|auth|credential|cred$|bearer|cookie|signature|dsn|connection.?string"  # noqa: S105
)
"""What the name of an option, a variable or a header says of its value; case does not count."""


def printable(text: str) -> str:
    """Return text that is safe to show on a terminal: without control characters, and without a change of direction."""
    return re.sub(_UNSAFE, "\ufffd", text)


def one_line(text: str) -> str:
    """Return printable text in one line of at most `MAX_CHARACTERS` characters."""
    shown = text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + "..."
    return re.sub(_BREAKS, "\\\\n", printable(shown))


def shown_url(url: str) -> str:
    """Return a URL for an error or a log record: without what may be a secret in it (user, query and fragment)."""
    endpoint, query, _ = re.sub(_USER, "", url).partition("#")[0].partition("?")
    return f"{endpoint}{query and '?...'}"


def is_secret_name(name: str) -> bool:
    """Return whether the name of an option, a variable or a header says that its value is a secret."""
    return re.search(SECRET_NAME, name, re.IGNORECASE) is not None


# Showing the words of a command without what may be a secret in them.

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
