"""Naming the options of a client: those that declare a capability, those that other libraries call otherwise, and arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ..checks import nearest
from ..errors import PeerError
from ..protocol.jsonrpc import MISSING_CAPABILITY
from ..types import JsonValue

DECLARED_BY: Final[Mapping[str, str]] = {
    "elicitation": "on_elicit=",
    "elicitation.form": "on_elicit=",
    "elicitation.url": "on_elicit_url=",
    "roots": "on_roots=",
    "sampling": "on_sample= or sampling=provider",
    "sampling.context": "sample_context=True and an on_sample= that adds the context of servers",
    "sampling.tools": "sampling=provider, or sample_tools=True and an on_sample= that takes tools",
}
"""What a client passes to declare a capability."""

OTHER_NAMES: Final[Mapping[str, str]] = {
    "elicitation_callback": "on_elicit=",
    "elicitation_handler": "on_elicit=",
    "list_roots_callback": "on_roots=",
    "log_handler": "on_log=",
    "logging_callback": "on_log=",
    "message_handler": "on_change=",
    "progress_handler": "call_tool(..., on_progress=)",
    "roots": "on_roots=",
    "sampling_callback": "on_sample=",
    "sampling_capabilities": "sample_tools= and sample_context=",
    "sampling_handler": "on_sample=",
}
"""The option that has the name of another library's."""


def check_other_names(options: Iterable[str]) -> None:
    """Raise `TypeError` for an option under the name that another library gives it; the message has the one to write."""
    for option in options:
        if option in OTHER_NAMES:
            raise TypeError(f"Client.connect() has no option {option!r}: it is {OTHER_NAMES[option]}")


def check_call_options(method: str, named: object, given: Iterable[str], known: Collection[str]) -> None:
    """Raise `TypeError` for an option that a call does not have; the message shows how its arguments are written.

    Args:
        method: of the client, whose second argument is a mapping.
        named: the tool or prompt.
    """
    unknown = [name for name in given if name not in known]
    if not unknown:
        return
    # Other libraries, and functions, take the arguments of a tool as keyword arguments.
    written = f"{method}({named!r:.80}, {{{', '.join(f'{name!r}: ...' for name in unknown)}}})"
    question = nearest(unknown[0], known)
    advice = f"{question} An argument is written {written}" if question else f"arguments are a mapping: {written}"
    raise TypeError(f"{method}() has no option {unknown[0]!r}: {advice}")


def add_option_note(error: PeerError) -> None:
    """Add a note to the error of a server that misses a capability: which options declare it."""
    data = error.data
    if error.code != MISSING_CAPABILITY or not isinstance(data, dict):
        return
    wanted = [DECLARED_BY[name] for name in missing_names(data.get("requiredCapabilities")) if name in DECLARED_BY]
    if wanted:
        error.add_note(f"Client.connect() declares it with {'; and '.join(wanted)}")


def missing_names(required: JsonValue) -> list[str]:
    """Return the names of missing capabilities, such as "sampling.tools"; of a capability without details, its own."""
    if not isinstance(required, dict):
        return []
    return [
        name
        for capability, details in required.items()
        for name in (
            [f"{capability}.{detail}" for detail in details] if isinstance(details, dict) and details else [capability]
        )
    ]
