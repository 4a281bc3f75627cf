"""`trio-mcp demo`: one tool that asks in the middle of its body, called over HTTP by a client of each era."""

from __future__ import annotations

import inspect
import logging
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from typing import Literal

import trio
from pydantic import BaseModel

from ..client import Client, ClientOptions, Handlers, accept
from ..protocol.jsonrpc import Request, Response, decoded
from ..protocol.revisions import MODERN, NEWEST_LEGACY
from ..server import Context, Server
from ..session import find_transport
from ..types import CallToolResult, CreateMessageRequestParams, ElicitRequestFormParams, ElicitResult, Implementation
from .failure import Failed, Status, as_failures
from .interrupts import run_command
from .showing import clean
from .wire import Arrived, observed, summary

LIMIT = 20.0
"""Seconds after which the demonstration has gone wrong."""

EXAMPLES = """\
It needs no arguments: it serves a booking tool over HTTP on a free port of this machine, calls it once with a client of
the handshake era and once with one of the modern era, and shows every message that passes. The answers are prepared.
"""

server = Server("travel", version="1.0")


class Seat(BaseModel):
    flight: Literal["TP1", "TP3"]
    seat: Literal["window", "aisle"]


@server.tool
async def book_flight(destination: str, ctx: Context) -> str:
    """Book a flight, after asking which one."""
    await ctx.progress(1, 2, "2 flights found")
    choice = await ctx.elicit(f"2 flights to {destination}. Which one?", Seat)
    if choice.action != "accept":
        return "Nothing was booked."
    slogan, weather = await ctx.branch_all(
        lambda branch: branch.sample(f"One line about a flight to {destination}"),
        lambda _branch: forecast(destination),
    )
    sure = await ctx.elicit(f"{slogan.text} {weather} Book {choice.content.flight}?", bool)
    if sure.action != "accept" or not sure.content:
        return "Nothing was booked."
    await ctx.progress(2, 2, "booked")
    return f"Booked {choice.content.flight} to {destination}, {choice.content.seat} seat."


async def forecast(city: str) -> str:
    await trio.sleep(0.05)
    return f"It is sunny in {city}."


EXPECTED = "Booked TP3 to Lisbon, aisle seat."


def describe(parser: ArgumentParser) -> None:
    parser.epilog = EXAMPLES


def execute(options: Namespace) -> int:
    logging.basicConfig(level=logging.DEBUG if options.debug else logging.ERROR)
    return run_command(demonstrate)


async def demonstrate() -> int:
    with trio.move_on_after(LIMIT):
        async with trio.open_nursery() as nursery:
            urls: list[str] = await nursery.start(partial(server.serve, "http", port=0, announce=False, signals=False))
            show(f"This tool is served at {urls[0]}:\n\n{inspect.getsource(book_flight)}")
            await show_call(urls[0], "legacy", f"A client of the handshake era, {NEWEST_LEGACY}", asks_live)
            await show_call(urls[0], MODERN, f"A client of the modern era, {MODERN}", asks_in_rounds)
            nursery.cancel_scope.cancel()
        show("Both were asked the same questions by the same lines of code.")
        return Status.OK
    raise Failed(f"the demonstration was not done within {LIMIT:g} seconds", Status.TOOL_ERROR)


async def show_call(url: str, mode: str, title: str, asks_as_expected: Callable[[list[Arrived]], bool]) -> None:
    """One call, message by message.

    Raises:
        Failed: the tool answered something else than it should, or asked in the other era's way.
    """
    show(f"{title}\n{'=' * len(title)}\n")
    conversation = Conversation()
    options = ClientOptions(
        handlers=Handlers(on_elicit=conversation.elicit, on_sample=conversation.sample),
        mode=mode,
        info=Implementation(name="demo", version="1.0"),
        probe_timeout=LIMIT,
    )
    client = Client(observed(find_transport("http").connect(url), conversation.on_message), options)
    with as_failures():
        async with client:
            result = await client.call_tool("book_flight", {"destination": "Lisbon"}, on_progress=lambda _report: None)
    check(result, asks_as_expected(conversation.received))
    show(f"\n  The tool's result: {result.text}\n")


class Conversation:
    """Shows what passes, answers what is asked, and remembers what the server sent."""

    def __init__(self) -> None:
        self.received: list[Arrived] = []
        self._answers = iter([accept(flight="TP3", seat="aisle"), accept(value=True)])

    def on_message(self, sender: str, message: Arrived) -> None:
        show(f"  {sender} -> {summary(message)}")
        if sender == "server":
            self.received.append(message)

    def elicit(self, params: ElicitRequestFormParams) -> ElicitResult:
        answer = next(self._answers)
        said = " ".join(f"{key}={value}" for key, value in (answer.content or {}).items())
        show(f"           | the user is asked: {params.message}\n           | and answers: {said}")
        return answer

    def sample(self, _params: CreateMessageRequestParams) -> str:
        show("           | the model is asked, and answers: Lunch in the sun.")
        return "Lunch in the sun."


def asks_live(received: list[Arrived]) -> bool:
    """Questions are requests of the server, sent while the call runs."""
    methods = [message.method for message in received if isinstance(message, Request)]
    return methods == ["elicitation/create", "sampling/createMessage", "elicitation/create"]


def asks_in_rounds(received: list[Arrived]) -> bool:
    """Questions are results of the call, which is sent again with the answers; the server sends no request."""
    results = [decoded(message.result) for message in received if isinstance(message, Response)]
    rounds = [result for result in results if result.get("resultType") == "input_required"]
    return len(rounds) == 3 and not any(isinstance(message, Request) for message in received)


def check(result: CallToolResult, asked_as_expected: bool) -> None:
    if result.is_error or result.text != EXPECTED:
        raise Failed(f"the tool answered {result.text!r} instead of {EXPECTED!r}", Status.TOOL_ERROR)
    if not asked_as_expected:
        raise Failed("the tool did not ask in the way of its client's era", Status.TOOL_ERROR)


def show(text: str) -> None:
    sys.stdout.write(f"{clean(text)}\n")
    sys.stdout.flush()
