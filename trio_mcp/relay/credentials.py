"""Which headers and which parts of a URL are credentials, by whole words of their names and by how their values begin.

Masking (`printable.py`) asks another question: it may hide too much, while a proxy that sends no credentials is to be served.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Final
from urllib.parse import unquote_plus, urlsplit

SECRET: Final = re.compile(
    r"(access|api|auth|private|secret|subscription)(key|token)|auth(entication|orization)?|assertion|basic|bearer|cookies?"
    r"|credentials?|csrf|xsrf|dpop|dsn|hmac|(j|php)?sess(ion)?(id|token)?|sid|jwt|oauth|t?otp|pass(code|phrase|wd|word)?|pwd|pin"
    r"|secret|sig|signature|ticket|token"
)
"""A word that says that the value is a credential, wherever it stands in the name."""
KEY: Final = re.compile(
    r"access|account|admin|api|app|auth|client|consumer|functions|license|master|private|secret|service|shared|subscription"
)
"""A word before `key` that makes it one: a key to sort or to route by is none."""
VALUE: Final = re.compile(r"(?:bearer|basic|digest|dpop|negotiate)\s|eyJ(?=[\w-])", re.IGNORECASE)
"""How credentials begin: with their scheme (RFC 9110, 11.4), or as a token in JSON (RFC 7519)."""
CAMEL: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
PLAIN: Final = re.compile(r"[a-z0-9]+")


def credentials_of(url: str, headers: object) -> str:
    """Return where in a URL or in headers there are credentials; "" if there are none."""
    if callable(headers):
        return "headers of a function"
    for name, value in headers.items() if isinstance(headers, Mapping) else ():
        if names_credential(str(name)) or VALUE.match(str(value)):
            return f"the header {str(name).lower()}"
    parts = urlsplit(url)
    if "@" in parts.netloc:
        return "the user in its URL"
    # Some servers also take a semicolon between parameters.
    for each in re.split("[&;]", parts.query):
        name, _, value = map(unquote_plus, each.partition("="))
        if names_credential(name) or name.lower() == "code" or VALUE.match(value):
            return f"{name!r:.80} in its URL"
    return ""


def names_credential(name: str) -> bool:
    """Return whether the name of a header or of a parameter says that its value is a credential."""
    for words in ([word.lower() for word in CAMEL.findall(name)], PLAIN.findall(name.lower())):
        if any(SECRET.fullmatch(word) for word in words):
            return True
        if any(word == "key" and KEY.fullmatch(before) for before, word in pairwise(words)):
            return True
        if [word for word in words if word != "x"] == ["key"]:
            return True
    return False
