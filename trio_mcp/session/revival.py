"""Running a call again whose parked actor is gone: after a restart, or in another process that has the same keys."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from ..errors import CallLost, RemoteProtocolError
from ..protocol.jsonrpc import INVALID_PARAMS
from ..protocol.sealing.request_state import Claims
from ..types import InputResponseRequestParams, JsonObject, Model
from .call import Call
from .leg import Leg
from .replay import Recollection, Resume, entries_from_json
from .service import Plan, Service


@dataclass(frozen=True, slots=True)
class Revival:
    """What is needed to run a call again."""

    service: Service
    plan: Plan
    claims: Claims
    recollection: Recollection
    params: InputResponseRequestParams
    leg: Leg

    def start(self) -> Call:
        """Start the call on its next leg; its body runs again, and what it had learned returns at once.

        A call that must not be replayed, or has lost its journal, ends with an error that says so; nothing of it runs.

        Raises:
            RemoteProtocolError: an answer is malformed.
            LimitExceeded: the server runs too many calls.
        """
        answers = self._answers(self.params.input_responses or {})
        lost = self._lost()
        plan = self.plan if lost is None else self.plan._replace(run=raising(lost))
        call = Call(self.service, plan, self.leg, self.claims.digest)
        call.start_rounds(self.claims.call_id, self.claims.leg + 1, self.recollection.journal(answers))
        self.service.directory.adopt(self.claims.call_id, call, self.recollection.node, self.claims.leg)
        return call

    async def fetched(self) -> Revival:
        """The same with its journal out of the store."""
        store, reference = self.service.options.store, self.recollection.reference
        data = None if store is None or reference is None else await store.get(reference)
        if data is None:
            return replace(self, recollection=replace(self.recollection, reference=None, dropped=1))
        entries = entries_from_json(json.loads(data))
        return replace(self, recollection=replace(self.recollection, reference=None, entries=entries))

    def _lost(self) -> CallLost | None:
        start_again = (
            "Nothing more of it was run; what it did before it asked stays done. Start it again if that is safe."
        )
        if self.plan.resume is Resume.PARKED and not self.service.options.always_replay:
            return CallLost(
                "This call was lost while it waited for an answer: the server was restarted, or the answer reached another "
                f"process. {start_again}"
            )
        if self.recollection.dropped:
            return CallLost(
                f"This call was lost while it waited for an answer, and what it had learned is not to be had. {start_again}"
            )
        return None

    def _answers(self, given: Mapping[str, JsonObject]) -> dict[str, JsonObject]:
        """The answers to what was asked, as their models write them; others were never asked."""
        answers: dict[str, JsonObject] = {}
        for key, asked in self.recollection.asked.items():
            if key not in given:
                continue
            try:
                answers[key] = self.leg.codec.decode_input_response(asked.method, given[key]).wire()
            except RemoteProtocolError as error:
                raise RemoteProtocolError(f"inputResponses.{key}: {error}", code=INVALID_PARAMS) from None
        return answers


def raising(error: CallLost) -> Callable[[Call], Awaitable[Model]]:
    """A body that only tells what happened."""

    async def body(_call: Call) -> Model:
        raise error

    return body
