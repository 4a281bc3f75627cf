"""What a host can answer, and what the proxy answers in its place.

Everything here works on JSON as it passes: a capability that neither side of this code knows stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import trio

from ..base.named_tuples import NamedTuple
from ..protocol.jsonrpc import Encoded, ErrorDetail, Request, RequestId, decoded
from ..runtime import CancelReason
from ..runtime.quota import Quota
from ..session import ReplyTarget, ServerSession
from ..session.envelope import CALL_SIZE
from ..session.replies import OpenRequests
from ..types import JsonObject, JsonValue, ProgressToken

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

    def added_to(self, capabilities: JsonValue) -> JsonObject | None:
        """Return a host's capabilities with those of the proxy; None if the host has all of them."""
        host = host_of(capabilities)
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


# A request of the host on its way through the proxy.

NOTHING: Final = Host()
REQUEST_SIZE: Final = CALL_SIZE // 2
"""A request on its way, with its stream, besides its message."""

STRAY_SECONDS: Final = 30.0
"""How long a server may send something about a cancelled request that does not name it, and so could be for another host."""


@dataclass(slots=True, eq=False)
class HostRequest:
    """One request of the host; it is `ReplyTarget.work` until it has its reply.

    Args:
        on_withdrawn: called when the host no longer wants the reply, unless its connection has ended.

    Attributes:
        host: what the host can answer during a modern request.
        stateless: it states its own terms, and belongs to no session.
        sent_as: its id at the server now; None while it has no request there.
        params: those that the server gets, for a retry with answers; None if it is never sent again.
        token: the host's progress token, if the server got another.
        scope: cancels what the proxy does for it; None while it does nothing.
        rounds: how many rounds the proxy has answered alone.
        size: bytes of memory that its message takes.
    """

    message: Request
    target: ReplyTarget
    on_withdrawn: Callable[[HostRequest, CancelReason], None]
    headers: Mapping[str, str]
    principal: str | None
    host: Host = NOTHING
    stateless: bool = False
    sent_as: RequestId | None = None
    params: JsonObject | None = None
    token: ProgressToken | None = None
    sent_token: ProgressToken | None = None
    scope: trio.CancelScope | None = field(default=None, init=False)
    rounds: int = field(default=0, init=False)
    size: int = field(default=0, init=False)
    _drawn: int = field(default=0, init=False)

    def draw(self, size: int) -> None:
        """Count the request in the memory budget.

        Args:
            size: bytes that its message takes.

        Raises:
            LimitExceeded: there is no room for it.
        """
        self.size = size
        account = self.target.outbox.account
        if account is not None:
            account.check(size + REQUEST_SIZE)
            self._drawn = size + REQUEST_SIZE
            account.draw(self._drawn)

    def give_back(self) -> None:
        """Count the request no longer; doing it again does nothing."""
        drawn, self._drawn = self._drawn, 0
        if drawn and self.target.outbox.account is not None:
            self.target.outbox.account.give_back(drawn)

    @property
    def method(self) -> str:
        """The method of the request."""
        return self.message.method

    @property
    def own_params(self) -> JsonObject:
        """The params as the host sent them."""
        return decoded(self.message.params)

    def withdraw(self, target: ReplyTarget, reason: CancelReason) -> None:
        """Stop working for the request; it gets no reply."""
        self.on_withdrawn(self, reason)
        target.finish(None)

    def disconnect(self, target: ReplyTarget) -> None:  # noqa: ARG002
        """Stop working for the request, whose reply cannot be delivered any more."""
        self.on_withdrawn(self, CancelReason.DISCONNECT)

    def finish(self, outcome: Encoded | ErrorDetail) -> None:
        """Send a reply of the proxy's own making."""
        self.target.finish(outcome)


class CountedRequests(OpenRequests):
    """The requests of one host that wait for a reply. Each counts as a call of its caller that runs, with those of all hosts."""

    __slots__ = ("_running",)

    def __init__(self, ids_in_use: set[RequestId], running: Quota) -> None:
        super().__init__(ids_in_use)
        self._running = running

    def add(self, target: ReplyTarget) -> None:
        """Add one for which `Quota.check` has found room."""
        super().add(target)
        self._running.add(target.caller)

    def discard(self, target: ReplyTarget) -> None:
        """Remove one that is over; every request comes here, however it ends. Doing it again does nothing."""
        count = self.count
        super().discard(target)
        if self.count < count:
            self._running.give_back(target.caller)


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
