"""What a host can answer, and what the proxy answers in its place.

Everything here works on JSON as it passes: a capability that neither side of this code knows stays where it is.
"""

from __future__ import annotations

from typing import Final

from ..base.named_tuples import NamedTuple
from ..runtime import CancelReason
from ..session import ReplyTarget, ServerSession
from ..types import JsonObject, JsonValue

SAMPLE: Final = "sampling/createMessage"
ELICIT: Final = "elicitation/create"


class Host(NamedTuple):
    """What a host declared, for a session (legacy) or for one request (modern).

    Attributes:
        samples: it has a model.
        samples_with_tools: its model can use tools.
        shows_forms: it can show a form to its user.
    """

    samples: bool = False
    samples_with_tools: bool = False
    shows_forms: bool = False


def host_of(capabilities: JsonValue) -> Host:
    """Return what a client declares with these capabilities."""
    declared = capabilities if isinstance(capabilities, dict) else {}
    sampling, elicitation = declared.get("sampling"), declared.get("elicitation")
    return Host(
        samples=isinstance(sampling, dict),
        samples_with_tools=isinstance(sampling, dict) and isinstance(sampling.get("tools"), dict),
        # An empty object means forms (L-ELI-1c).
        shows_forms=isinstance(elicitation, dict) and ("form" in elicitation or "url" not in elicitation),
    )


class Offers(NamedTuple):
    """What the proxy answers for a host that cannot.

    Attributes:
        samples: it asks a provider.
        forms: it shows forms.
    """

    samples: bool = True
    forms: bool = False

    def added_to(self, capabilities: JsonValue, host: Host) -> JsonObject | None:
        """Return a host's capabilities with those of the proxy; None if the host has all of them."""
        added = dict(capabilities) if isinstance(capabilities, dict) else {}
        if self.samples and not host.samples_with_tools:
            added["sampling"] = _with_member(added.get("sampling"), "tools")
        if self.forms and not host.shows_forms:
            added["elicitation"] = _with_member(added.get("elicitation"), "form")
        return None if added == capabilities else added

    def answers(self, host: Host, method: JsonValue, params: JsonValue) -> bool:
        """Return whether the proxy answers a question of the server, and not the host."""
        if method == SAMPLE and self.samples:
            needs_tools = isinstance(params, dict) and ("tools" in params or "toolChoice" in params)
            return not (host.samples_with_tools if needs_tools else host.samples)
        if method == ELICIT and self.forms and not host.shows_forms:
            return not isinstance(params, dict) or params.get("mode", "form") == "form"
        return False


def _with_member(capability: JsonValue, member: str) -> JsonObject:
    return {**(capability if isinstance(capability, dict) else {}), member: {}}


NOTHING: Final = Host()

STRAY_SECONDS: Final = 30.0
"""How long a server may send something about a cancelled request that does not name it, and so could be for another host."""


class HandedOver:
    """The work of a target whose request another session serves."""

    method = ""

    def __init__(self, session: ServerSession, target: ReplyTarget) -> None:
        self._session, self._target = session, target

    def withdraw(self, target: ReplyTarget, reason: CancelReason) -> None:  # noqa: ARG002
        """Stop working for the request."""
        self.disconnect(target)

    def disconnect(self, target: ReplyTarget) -> None:  # noqa: ARG002
        """Stop working for the request."""
        if not self._target.finished:
            self._session.disconnect(self._target)
