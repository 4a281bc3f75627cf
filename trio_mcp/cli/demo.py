"""`trio-mcp demo`: call one tool, which asks questions, over HTTP with a client of each era."""

from __future__ import annotations

import inspect
import logging
import sys
from functools import partial
from typing import Literal

import trio
from pydantic import BaseModel

from ..client import Client, ClientOptions, Handlers, accept
from ..printable import printable
from ..protocol.revisions import MODERN, NEWEST_LEGACY
from ..server import Context, Server
from ..session import find_transport
from ..types import CreateMessageRequestParams, ElicitRequestFormParams, ElicitResult, Implementation
from .command import command
from .errors import CommandError, Status, translate_errors
from .interrupts import run_command
from .output import log_to_stderr
from .trace import Arrived, observed, summary

LIMIT = 20.0
"""Seconds after which the demonstration fails."""

EXAMPLES = """\
examples:
  trio-mcp demo

It needs no arguments. It serves a booking tool over HTTP on a free port of this machine, calls it once with a legacy client
and once with a modern one, and shows every message. The answers are prepared.
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
        lambda branch: branch.sample(f"One line about a flight to {destination}"), lambda _branch: forecast(destination)
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


@command("demo", EXAMPLES, {Status.TOOL_ERROR: "it went wrong"})
def command_line(debug: bool) -> int:
    """Watch one tool ask a legacy and a modern client, message by message."""
    log_to_stderr(logging.DEBUG if debug else logging.ERROR)
    return run_command(demonstrate)


async def demonstrate() -> int:
    # The whole demonstration has a time limit, since everything in it is local: if it takes long, something hangs.
    with trio.move_on_after(LIMIT):
        async with trio.open_nursery() as nursery:
            urls: list[str] = await nursery.start(partial(server.serve, "http", port=0, announce=False, signals=False))
            show(f"This tool is served at {urls[0]}:\n\n{inspect.getsource(book_flight)}")
            await show_call(urls[0], "legacy", f"A legacy client, {NEWEST_LEGACY}")
            await show_call(urls[0], MODERN, f"A modern client, {MODERN}")
            # The server runs until it is cancelled: it has no other client to wait for.
            nursery.cancel_scope.cancel()
        show("Both were asked the same questions by the same lines of code.")
        return Status.OK
    raise CommandError(f"the demonstration timed out after {LIMIT:g} seconds", Status.TOOL_ERROR)


async def show_call(url: str, mode: str, title: str) -> None:
    """Show one call, message by message.

    Raises:
        CommandError: the result is not the expected one.
    """
    show(f"{title}\n{'=' * len(title)}\n")
    peer = DemoPeer()
    options = ClientOptions(
        handlers=Handlers(on_elicit=peer.elicit, on_sample=peer.sample),
        mode=mode,
        info=Implementation(name="demo", version="1.0"),
        # Not the default, which a slow machine may exceed.
        probe_timeout=LIMIT,
    )
    client = Client(observed(find_transport("http").connect(url), peer.on_message), options)
    with translate_errors():
        async with client:
            result = await client.call_tool("book_flight", {"destination": "Lisbon"}, on_progress=lambda _report: None)
    # How each client was asked is there to see, and the tests hold it; only the result tells whether the call worked.
    if result.is_error or result.text != EXPECTED:
        raise CommandError(f"the tool answered {result.text!r} instead of {EXPECTED!r}", Status.TOOL_ERROR)
    show(f"\n  The tool's result: {result.text}\n")


class DemoPeer:
    """Shows the messages, and answers the questions."""

    def __init__(self) -> None:
        self._answers = iter([accept(flight="TP3", seat="aisle"), accept(value=True)])

    def on_message(self, sender: str, message: Arrived) -> None:
        show(f"  {sender} -> {summary(message)}")

    def elicit(self, params: ElicitRequestFormParams) -> ElicitResult:
        answer = next(self._answers)
        said = " ".join(f"{key}={value}" for key, value in (answer.content or {}).items())
        show(f"           | the user is asked: {params.message}\n           | and answers: {said}")
        return answer

    def sample(self, _params: CreateMessageRequestParams) -> str:
        show("           | the model is asked, and answers: Lunch in the sun.")
        return "Lunch in the sun."


def show(text: str) -> None:
    sys.stdout.write(f"{printable(text)}\n")
    sys.stdout.flush()
