"""What a proxy knows of the server behind it: whether it asks for authentication, so that no caller gets it without."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, cast
from urllib.parse import unquote_plus, urlsplit

import trio

from ..base.masking import masked
from ..client import Client
from ..client.target import connectable, open_target
from ..errors import ConfigurationError
from ..http.open_access import CURE, Behind
from ..session import as_message_channel

# Which headers and which parts of a URL are credentials, by whole words of their names and by how their values begin.
#
# Masking (`values.py`) asks another question: it may hide too much, while a proxy that sends no credentials is to be
# served.

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


CHECK_SECONDS: Final = 30.0
"""Seconds that a Python file may take to be loaded, for the question whether it asks for authentication."""
LOOK_SECONDS: Final = 0.01
ASKS_NOTHING: Final = 0
ASKS: Final = 4
UNKNOWN: Final = 5
"""The exit statuses with which `trio-mcp run --check-open` says whether the server asks for it; others say that it has failed."""
CHECK: Final = "--check-open"
CHECKED: Final = frozenset({"run", "backfill"})
"""The commands that take it."""
PROGRAM: Final = re.compile(
    r"(.*[/\\])?(trio-mcp(\.exe)?(\[.*\])?([@=<>~!].*)?|trio_mcp[/\\](cli[/\\])?__main__\.py)", re.IGNORECASE
)
"""The program, as a package with a version, too, and the file that is its module."""
MODULE: Final = re.compile(r"-[A-Za-z]*m\s*trio_mcp(\.cli)?(\.__main__)?")
SPLIT: Final = re.compile(r"(?P<flags>-[0iv]*)S(?P<short>.*)|--split-string=?(?P<long>.*)", re.DOTALL)
SHELL: Final = re.compile(r"(.*/)?(ba|da|k|z)?sh")
SCRIPT: Final = re.compile(r"[^;&|<>$`(){}\[\]*?~#!\n\\]*")
"""A line that is only a command for a shell."""


def behind_target(target: object, options: Mapping[str, object]) -> Behind:
    """Return what is known of the server that a target leads to, with the options of its transport."""
    if isinstance(target, Client):
        return behind_target(target.target, target.transport_options)
    found = connectable(target)
    if isinstance(found, str):
        has_login = options.get("auth") is not None
        return Behind(credentials="a login" if has_login else credentials_of(found, options.get("headers")))
    if not isinstance(found, Sequence):
        return Behind(server=found)
    words = [os.fspath(cast("str", word)) for word in found]
    # The words of a file are ours, and it is served by this version.
    is_file = found is not target
    shown = str(target) if is_file else shlex.join(masked(plain_words(words)))
    checked = checked_command(words)
    if checked is None:
        return Behind(command=shown)
    return Behind(command=shown, check=partial(asks_nothing, checked, dict(options), shown, is_file=is_file))


def words_of(target: object) -> tuple[str, ...]:
    """Return where a target leads to, as it was written: a URL without what may be a secret in it, a path, or a command."""
    if isinstance(target, Client):
        return words_of(target.target)
    if isinstance(target, str | os.PathLike):
        text = os.fspath(target)
        parts = urlsplit(text) if "://" in text else None
        # A secret may change, and its proxy stays the same.
        shown = text if parts is None else f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        return (shown,)
    return tuple(os.fspath(cast("str", word)) for word in target) if isinstance(target, Sequence) else ()


def checked_command(words: Sequence[str]) -> list[str] | None:
    """Return the words that let `trio-mcp run` or `backfill` answer with `CHECK`; None if it is another command."""
    words = plain_words(words)
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        if PROGRAM.fullmatch(word) or MODULE.fullmatch(word) or MODULE.fullmatch(f"{before} {word}"):
            end = next((number for number in range(place + 1, len(words)) if words[number][:1] != "-"), len(words))
            if end < len(words) and words[end] in CHECKED:
                return [*words[: end + 1], CHECK, *words[end + 1 :]]
    return None


def plain_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command, also where `env -S` or a shell has them in one text."""
    found, program = [*words], os.path.basename(words[0]) if words else ""
    try:
        if program == "env":
            return env_words(found)
        is_script = SHELL.fullmatch(program) and len(words) > 2 and re.fullmatch("-[a-z]*c", words[1])
        if is_script and SCRIPT.fullmatch(words[2]):
            inner = shlex.split(words[2])
            inner = inner[1:] if inner[:1] == ["exec"] else inner
            # A variable before it is set for it alone, which `env` does too.
            return plain_words(["env", *inner] if inner and "=" in inner[0] else inner)
    except ValueError:
        pass  # quotation marks that do not end
    return found


def env_words(words: list[str]) -> list[str]:
    """Return the words of an `env` without `-S`. Raises `ValueError` if its text cannot be split."""
    for place, word in enumerate(words[1:], 1):
        split = SPLIT.fullmatch(word)
        if split is not None:
            text, rest = split["short"] or split["long"] or "", words[place + 1 :]
            if not text and rest:
                text, rest = rest[0], rest[1:]
            if "$" in text or "\\" in text:
                return words
            flags = [split["flags"]] if split["flags"] not in (None, "-") else []
            return [*words[:place], *flags, *shlex.split(text), *rest]
        if word[:1] != "-" and "=" not in word and words[place - 1] not in ("-u", "-C"):
            break  # what follows is of the program
    return words


async def asks_nothing(command: Sequence[str], options: Mapping[str, object], shown: str, *, is_file: bool) -> bool:
    """Return whether it is known that the server of `trio-mcp run` asks for no authentication.

    Args:
        command: runs it with `CHECK`.
        shown: its name, for errors.
        is_file: it is a Python file, which is never served while that is unknown.

    Raises:
        ConfigurationError: it does ask, or that of a file cannot be found out.
    """
    reason: str | None = None
    with trio.move_on_after(CHECK_SECONDS):
        async with open_target(command, options) as opened:
            channel = as_message_channel(opened)
            # The process ends by itself. The pipe closes before the exit status is known.
            while channel.close_reason is None:
                try:
                    await channel.receive()
                except (trio.EndOfChannel, trio.BrokenResourceError):
                    await trio.sleep(LOOK_SECONDS)
            reason = channel.close_reason
    status = (reason or "").rpartition("exited with status ")[2]
    if status == str(ASKS):
        raise ConfigurationError(
            f"the server of {shown} asks for authentication, or sends its credentials to another server, and would be "
            f"reachable here without authentication. {CURE}"
        )
    if is_file and status not in (str(ASKS_NOTHING), str(UNKNOWN)):
        why = reason or f"it takes more than {CHECK_SECONDS:g} seconds"
        raise ConfigurationError(f"{shown} cannot be loaded to see whether it asks for authentication: {why}")
    return status == str(ASKS_NOTHING)
