"""The contract is strict: a transport that is broken in one way fails the rule that is about it, and in no other way."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
import trio
from makers import MemoryEndpoint, MemoryMaker
from peer import json_of, message_of

from trio_mcp.session import Envelope
from trio_mcp.testing.contract import Case, Stage
from trio_mcp.testing.contract.rules import _RULES

LIVE, ROUNDS = "2025-11-25", "2026-07-28"


class Wire(trio.abc.Channel[Envelope]):
    """The client's end of a connection, which passes everything on as it is."""

    def __init__(self, channel: trio.abc.Channel[Envelope]) -> None:
        self.channel = channel
        self.ready: list[Envelope] = []

    def outgoing(self, envelope: Envelope) -> Iterator[Envelope]:
        yield envelope

    def incoming(self, envelope: Envelope) -> Iterator[Envelope]:
        yield envelope

    async def send(self, value: Envelope) -> None:
        for envelope in self.outgoing(value):
            await self.channel.send(envelope)

    async def receive(self) -> Envelope:
        while not self.ready:
            self.ready.extend(self.incoming(await self.channel.receive()))
        return self.ready.pop(0)

    async def aclose(self) -> None:
        await self.channel.aclose()


class SwallowsCancellations(Wire):
    def outgoing(self, envelope: Envelope) -> Iterator[Envelope]:
        if method_of(envelope) != "notifications/cancelled":
            yield envelope


class SwallowsWithdrawals(Wire):
    def incoming(self, envelope: Envelope) -> Iterator[Envelope]:
        if method_of(envelope) != "notifications/cancelled":
            yield envelope


class RepeatsReplies(Wire):
    def incoming(self, envelope: Envelope) -> Iterator[Envelope]:
        yield envelope
        if "result" in json_of(envelope.message):
            yield envelope


class RepeatsRequests(Wire):
    """Every call arrives twice, under two ids; one of the two is answered."""

    def outgoing(self, envelope: Envelope) -> Iterator[Envelope]:
        yield envelope
        if method_of(envelope) == "tools/call":
            yield envelope._replace(message=envelope.message._replace(id=f"again {envelope.message.id}"))


class LosesReplies(Wire):
    def incoming(self, envelope: Envelope) -> Iterator[Envelope]:
        message = json_of(envelope.message)
        if "result" not in message or message["id"] == 1:
            yield envelope


class LosesErrors(Wire):
    def incoming(self, envelope: Envelope) -> Iterator[Envelope]:
        if "error" not in json_of(envelope.message):
            yield envelope


class HoldsReportsBack(Wire):
    """What is said on the way comes after the reply."""

    def __init__(self, channel: trio.abc.Channel[Envelope]) -> None:
        super().__init__(channel)
        self.held: list[Envelope] = []

    def incoming(self, envelope: Envelope) -> Iterator[Envelope]:
        if method_of(envelope) in ("notifications/progress", "notifications/message"):
            self.held.append(envelope)
            return
        yield envelope
        yield from self.held
        self.held.clear()


class ChangesIds(Wire):
    """Digits come back as a number."""

    def incoming(self, envelope: Envelope) -> Iterator[Envelope]:
        message = json_of(envelope.message)
        if "result" in message and str(message["id"]).isdigit():
            envelope = Envelope(envelope.message._replace(id=int(message["id"])))
        yield envelope


class AnswersWhatWasCancelled(Wire):
    def outgoing(self, envelope: Envelope) -> Iterator[Envelope]:
        yield envelope
        if method_of(envelope) == "notifications/cancelled" and envelope.about is not None:
            self.ready.append(Envelope(message_of({"id": envelope.about, "result": {}})))


def method_of(envelope: Envelope) -> str:
    return str(json_of(envelope.message).get("method"))


class Broken(MemoryMaker):
    """The memory transport with another wire, another way to serve, or another way to lose a connection."""

    def __init__(
        self,
        wire: type[Wire] = Wire,
        spill: Callable[[], None] = lambda: None,
        endpoint: type[MemoryEndpoint] = MemoryEndpoint,
    ) -> None:
        self._wire = wire
        self._spill = spill
        self.endpoint = endpoint

    @asynccontextmanager
    async def serve(self, stage: Stage, *, grace: float) -> AsyncIterator[MemoryEndpoint]:
        async with super().serve(stage, grace=grace) as endpoint:
            self._spill()
            connect = endpoint.connect

            @asynccontextmanager
            async def broken() -> AsyncIterator[Any]:
                async with connect() as channel:
                    yield self._wire(channel)

            endpoint.connect = broken  # type: ignore[method-assign]
            yield endpoint


class NoticesNoEnd(MemoryEndpoint):
    async def cut(self) -> None:
        await trio.lowlevel.checkpoint()


class StopsAtOnce(MemoryEndpoint):
    """Its shutdown waits for no call."""

    async def stop(self, seconds: float) -> None:
        await super().stop(0)


class StopsNothing(MemoryEndpoint):
    async def stop(self, seconds: float) -> None:
        await trio.lowlevel.checkpoint()


SPILT: list[Any] = []


def spill_task() -> None:
    trio.lowlevel.spawn_system_task(trio.sleep_forever, name="the spilt task")


def spill_socket() -> None:
    SPILT.append(socket.socket())


def spill_thread() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="the spilt thread", daemon=True)
    thread.start()
    SPILT.append(over)


def spill_child() -> None:
    SPILT.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))


class Flaw(NamedTuple):
    """How a transport is broken, and the rule that must fail for it."""

    maker: Broken
    rule: str
    revision: str = LIVE
    says: str = ""


FLAWS = {
    "it swallows cancellations": Flaw(
        Broken(SwallowsCancellations), "a_cancelled_sleep_ends_and_is_not_answered", says="TooSlowError"
    ),
    "it swallows cancellations of rounds": Flaw(
        Broken(SwallowsCancellations), "a_cancelled_sleep_ends_and_is_not_answered", ROUNDS, "TooSlowError"
    ),
    "it swallows withdrawn questions": Flaw(
        Broken(SwallowsWithdrawals), "a_cancelled_sample_is_withdrawn_and_not_answered", says="TooSlowError"
    ),
    "it repeats replies": Flaw(Broken(RepeatsReplies), "a_request_is_answered_once", says="came twice"),
    "it repeats requests": Flaw(Broken(RepeatsRequests), "a_request_runs_once", says="AssertionError"),
    "it loses replies": Flaw(Broken(LosesReplies), "a_request_is_answered_once", says="TooSlowError"),
    "it loses errors": Flaw(Broken(LosesErrors), "an_unknown_method_is_rejected_by_name", says="TooSlowError"),
    "it tells of progress after the reply": Flaw(
        Broken(HoldsReportsBack), "progress_names_the_token_of_its_request_and_rises_and_ends_with_the_reply"
    ),
    "it passes log messages on after the reply": Flaw(
        Broken(HoldsReportsBack), "a_request_receives_logs_of_its_level_and_above", ROUNDS
    ),
    "it changes ids": Flaw(Broken(ChangesIds), "an_id_is_returned_unchanged", says="TooSlowError"),
    "it answers what was cancelled": Flaw(
        Broken(AnswersWhatWasCancelled), "a_cancelled_sleep_ends_and_is_not_answered", says="should be silent"
    ),
    "it does not notice the end of a connection": Flaw(
        Broken(endpoint=NoticesNoEnd), "a_call_ends_when_its_connection_is_lost", says="TooSlowError"
    ),
    "it does not notice it in the middle of a question": Flaw(
        Broken(endpoint=NoticesNoEnd), "a_call_that_samples_ends_when_its_connection_is_lost", says="TooSlowError"
    ),
    "its shutdown waits for no call": Flaw(
        Broken(endpoint=StopsAtOnce), "a_shutdown_waits_for_calls_and_rejects_new_ones"
    ),
    "its shutdown ends nothing": Flaw(
        Broken(endpoint=StopsNothing),
        "a_shutdown_cancels_calls_that_do_not_end_and_answers_their_callers",
        says="TooSlowError",
    ),
    "it leaves a task": Flaw(Broken(spill=spill_task), "a_tool_is_called", says="the spilt task"),
    "it leaves a socket": Flaw(Broken(spill=spill_socket), "a_tool_is_called", says="the descriptor"),
    "it leaves a thread": Flaw(Broken(spill=spill_thread), "a_tool_is_called", says="the spilt thread"),
    "it leaves a child": Flaw(Broken(spill=spill_child), "a_tool_is_called", says="the child process"),
}


@pytest.fixture(autouse=True)
def mopped_up() -> Iterator[None]:
    yield
    for spilt in SPILT:
        match spilt:
            case threading.Event():
                spilt.set()
            case subprocess.Popen():
                spilt.communicate(b"\n")
            case _:
                spilt.close()
    SPILT.clear()


@pytest.mark.parametrize("flaw", FLAWS.values(), ids=FLAWS)
def test_a_broken_transport_fails_the_rule_that_is_about_it(flaw: Flaw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp.testing.contract.leaks.THREAD_GRACE", 0.05)
    said = failure_of(Case(_RULES[flaw.rule], flaw.maker, flaw.revision))
    assert said is not None, "nothing was noticed"
    assert flaw.says in said


@pytest.mark.parametrize("name", sorted({(flaw.rule, flaw.revision) for flaw in FLAWS.values()}), ids="-".join)
def test_the_same_transport_keeps_the_rule_when_it_is_not_broken(name: tuple[str, str]) -> None:
    assert failure_of(Case(_RULES[name[0]], Broken(), name[1])) is None


def failure_of(case: Case) -> str | None:
    """What became of a case that failed, down to the last of its errors."""
    try:
        case.run()
    except BaseException as error:  # noqa: BLE001  whatever it is, it is what the case says
        return " ".join(f"{type(each).__name__}: {each}" for each in leaves(error))
    return None


def leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error
