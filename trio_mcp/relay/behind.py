"""What a proxy knows of the server behind it: whether that asks for authentication, so that nobody gets it without."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, cast
from urllib.parse import urlsplit

import trio

from ..client import Client
from ..client.target import connectable, open_target
from ..errors import ConfigurationError
from ..http.open_access import CURE, Behind
from ..session import as_message_channel
from .credentials import credentials_of

CHECK_SECONDS: Final = 30.0
"""Seconds that a Python file may take to be loaded, for the question whether it asks for authentication."""
LOOK_SECONDS: Final = 0.01
ASKS_NOTHING: Final = 0
ASKS: Final = 4
UNKNOWN: Final = 5
"""The exit statuses with which `trio-mcp run --check-open` says whether the server asks for it; others say that it has failed."""
CHECK: Final = "--check-open"
PROGRAM: Final = "trio-mcp"


def behind_target(target: object, options: Mapping[str, object]) -> Behind:
    """Return what is known of the server that a target leads to, with the options of its transport."""
    if isinstance(target, Client):
        return behind_target(target.target, target.transport_options)
    found = connectable(target)
    if isinstance(found, str):
        return Behind(credentials=credentials_of(found, options.get("headers")))
    if not isinstance(found, Sequence):
        return Behind(server=found)
    words = [os.fspath(cast("str", word)) for word in found]
    place = place_of_run(words)
    # The words of a file are ours, and it is served by this version.
    is_file = found is not target
    shown = str(target) if is_file else shlex.join(words)
    if place is None:
        return Behind(command=shown)
    checked = [*words[:place], CHECK, *words[place:]]
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


def place_of_run(words: Sequence[str]) -> int | None:
    """Return where the words begin that a command gives to `trio-mcp run`; None if it is another command."""
    for place, word in enumerate(words[:-1]):
        is_program = os.path.basename(word) == PROGRAM or (word == "trio_mcp" and words[max(place - 1, 0)] == "-m")
        if is_program and words[place + 1] == "run":
            return place + 2
    return None


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
            # The process ends by itself. The end of a pipe comes before the news how.
            while channel.close_reason is None:
                try:
                    await channel.receive()
                except (trio.EndOfChannel, trio.BrokenResourceError):
                    await trio.sleep(LOOK_SECONDS)
            reason = channel.close_reason
    status = (reason or "").rpartition("exited with status ")[2]
    if status == str(ASKS):
        raise ConfigurationError(
            f"the server of {shown} asks for authentication, and would be served here to everybody. {CURE}"
        )
    if is_file and status not in (str(ASKS_NOTHING), str(UNKNOWN)):
        why = reason or f"it takes more than {CHECK_SECONDS:g} seconds"
        raise ConfigurationError(f"{shown} cannot be loaded to see whether it asks for authentication: {why}")
    return status == str(ASKS_NOTHING)
