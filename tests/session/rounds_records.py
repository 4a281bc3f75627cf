"""What a machine of rounds keeps of the requests that it sent and the calls behind them, and what each reply has to say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import trio
from peer import text_of
from rounds_model import Case, Effects, Json, View
from talk import DECLINE, Talk, accept
from wire_terms import INTERNAL_ERROR, INVALID_PARAMS

from trio_mcp.errors import InvalidRequestState
from trio_mcp.session import Service
from trio_mcp.types import RequestId

STATE_ERROR = {"code": INVALID_PARAMS, "message": InvalidRequestState.TEXT}

Check = Callable[[Json], None]


@dataclass(eq=False)
class Sent:
    """A request, and the reply it has had."""

    talk: Talk
    id: RequestId
    reply: Json | None = None
    settled: bool = False
    """The model says that it has had its reply, or gets none."""


@dataclass(eq=False)
class State:
    """A `requestState` that was handed out, and what was true when it was sealed."""

    case: Case
    text: str
    origin: Process
    leg: int
    issued: float
    asked: dict[str, str]
    answers: dict[str, Json]
    steps: frozenset[str]


@dataclass(eq=False)
class Retry:
    """A carried-on request that was sent, so that it can be sent again."""

    state: State
    answers: Json | None


@dataclass(eq=False)
class Record:
    """A call in one process, as the model knows it."""

    case: Case
    process: Process
    run: int
    """Which run of its body in this process it is; -1 for one that never runs."""
    number: int = 1
    answers: dict[str, Json] = field(default_factory=dict)
    steps: frozenset[str] = frozenset()
    """Those it knows from an earlier run."""
    listeners: list[Sent] = field(default_factory=list)
    outcomes: dict[int, Json | None] = field(default_factory=dict)
    status: str = "running"
    named: bool = False
    cancelled: bool = False
    settle_at: float = 0.0
    until: float = 0.0
    """When it expires while it is parked, or is forgotten when it is done."""
    frozen: Effects | None = None


@dataclass(eq=False)
class Process:
    """One life of one of the two server processes."""

    slot: int
    life: int
    keys: int
    service: Service
    stop: trio.Event = field(default_factory=trio.Event)
    stopped: trio.Event = field(default_factory=trio.Event)
    talks: dict[str | None, Talk] = field(default_factory=dict)
    records: dict[int, Record] = field(default_factory=dict)
    spent: set[State] = field(default_factory=set)
    actors: dict[str, Any] = field(default_factory=dict)

    def talk(self, principal: str | None) -> Talk:
        if principal not in self.talks:
            self.talks[principal] = Talk(self.service, principal=principal)
        return self.talks[principal]


@dataclass
class Fetch:
    """A carried-on request that waits for its journal to come out of the stalled store."""

    process: Process
    state: State
    answers: Json
    sent: Sent


def made_answers(state: State, mode: int) -> Json | None:
    """Answers of a client: all, some, none, too many, malformed, against the schema, or a refusal."""
    all_ = {key: accept(value=10 + place) for place, key in enumerate(state.asked)}
    first = next(iter(state.asked))
    match mode % 12:
        case 0:
            return dict(list(all_.items())[::2])
        case 1:
            return dict(list(all_.items())[1:])
        case 2:
            return None
        case 3:
            return {**all_, **{f"elicit-{number}": accept(value=666) for number in range(9)}, **all_, "none": {"x": 1}}
        case 4:
            return {**all_, first: {"action": "maybe"}}
        case 5:
            return {**all_, first: accept(value="no number")}
        case 6:
            return {**all_, first: DECLINE}
        case _:
            return all_


# what a reply says


def refused(reply: Json) -> None:
    assert reply.get("error") == STATE_ERROR, reply


def same(outcome: Json | None) -> Check:
    def check(reply: Json) -> None:
        if outcome is None:
            assert reply["error"]["code"] == INTERNAL_ERROR, reply
            assert "was cancelled" in reply["error"]["message"], reply
        else:
            assert reply == outcome, reply

    return check


def malformed_reply(keys: list[str]) -> Check:
    def check(reply: Json) -> None:
        assert reply["error"]["code"] == INVALID_PARAMS, reply
        assert any(f"inputResponses.{key}" in reply["error"]["message"] for key in keys), reply

    return check


def check_final(reply: Json, view: View) -> None:
    result = reply["result"]
    assert result["resultType"] == "complete", result
    assert bool(result.get("isError")) == view.failed, result
    if view.failed:
        assert str(view.final) in text_of(result), result
    else:
        assert text_of(result) == view.final, result


def check_round(reply: Json, view: View) -> None:
    result = reply["result"]
    assert result["resultType"] == "input_required", result
    asked = {key: question["params"]["message"].split("\n")[0] for key, question in result["inputRequests"].items()}
    assert list(asked.items()) == list(view.open.items()), (asked, view)
