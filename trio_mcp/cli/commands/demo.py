"""`trio-mcp demo`: a tool that asks questions, over HTTP with a client of each era; and the calls that wait, as a tree."""

from __future__ import annotations

import inspect
import logging
from functools import partial
from typing import Final, Literal, Protocol

import trio
from pydantic import BaseModel

from ...client import Client, ClientOptions, Handlers, accept
from ...protocol.revisions import MODERN, NEWEST_LEGACY
from ...server import Context, Server
from ...session import find_transport
from ...types import CreateMessageRequestParams, ElicitRequestFormParams, ElicitResult, Implementation
from ..command import CommandError, Status, command, run_command, translate_errors
from ..terminal.output import log_to_stderr
from ..terminal.trace import Arrived, Transcript, observed, summary

LIMIT = 20.0
"""Seconds after which the demonstration fails."""
WIDTH: Final = 200
"""Characters of a message that are shown."""

EXAMPLES = """\
examples:
  trio-mcp demo

It needs no arguments. It serves a booking tool over HTTP on a free port of this machine, calls it once with a legacy client
and once with a modern one, and shows every message. Then it lets three clients wait, and shows what the server has to say of
them. The answers are prepared.
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
    flight, seat = choice.content.flight, choice.content.seat
    slogan, weather = await ctx.branch_all(
        partial(advertise, destination),
        partial(forecast, destination),
    )
    sure = await ctx.elicit(f"{slogan} {weather} Book {flight}?", bool)
    if sure.action != "accept" or not sure.content:
        return "Nothing was booked."
    await ctx.progress(2, 2, "booked")
    return f"Booked {flight} to {destination}, {seat} seat."


async def advertise(city: str, ctx: Context) -> str:
    return (await ctx.sample(f"One line about a flight to {city}")).text


async def forecast(city: str, _ctx: Context) -> str:
    await trio.sleep(0.05)
    return f"It is sunny in {city}."


EXPECTED = "Booked TP3 to Lisbon, aisle seat."

ABOUT_LEGACY = """\
Each question is a request of the server. The call waits for the answer, and its request stays open."""
ABOUT_MODERN = """\
A server cannot send requests here. So a question ends the request of the client, and the call is parked, with its local \
variables, until the client comes back with the answer."""
ABOUT_TREE = """\
Three more clients call the tool, and their users and models take their time. What the server says of them now, with \
print(service.tree()):"""


@command("demo", EXAMPLES, {Status.TOOL_ERROR: "it went wrong"})
def command_line(debug: bool) -> int:
    """Watch one tool ask a legacy and a modern client, message by message."""
    log_to_stderr(logging.DEBUG if debug else logging.ERROR)
    return run_command(demonstrate)


async def demonstrate() -> int:
    shown = Transcript()
    # The whole demonstration has a time limit, since everything in it is local: if it takes long, something hangs.
    with trio.move_on_after(LIMIT):
        async with trio.open_nursery() as nursery:
            urls: list[str] = await nursery.start(partial(server.serve, "http", port=0, announce=False, signals=False))
            shown.heading("A tool that asks in the middle of its body")
            shown.code(inspect.getsource(book_flight))
            shown.heading(f"It is called by a legacy client ({NEWEST_LEGACY})")
            shown.paragraph(ABOUT_LEGACY)
            await show_call(shown, urls[0], "legacy")
            shown.heading(f"The same tool, called by a modern client ({MODERN})")
            shown.paragraph(ABOUT_MODERN)
            await show_call(shown, urls[0], MODERN)
            shown.paragraph("Both were asked the same questions by the same lines of code.")
            shown.heading("What the server is doing while calls wait")
            shown.paragraph(ABOUT_TREE)
            await show_tree(shown, urls[0])
            # The server runs until it is cancelled: it has no other client to wait for.
            nursery.cancel_scope.cancel()
        return Status.OK
    raise CommandError(f"the demonstration timed out after {LIMIT:g} seconds", Status.TOOL_ERROR)


async def show_call(shown: Transcript, url: str, mode: str) -> None:
    """Show one call, message by message.

    Raises:
        CommandError: the result is not the expected one.
    """
    peer = DemoPeer(shown)
    connection = observed(find_transport("http").connect(url), peer.on_message)
    with translate_errors():
        async with Client(connection, options_for(peer, mode, "demo")) as client:
            result = await client.call_tool("book_flight", {"destination": "Lisbon"}, on_progress=lambda _report: None)
    # How each client was asked is there to see, and the tests hold it; only the result tells whether the call worked.
    if result.is_error or result.text != EXPECTED:
        raise CommandError(f"the tool answered {result.text!r} instead of {EXPECTED!r}", Status.TOOL_ERROR)
    shown.line()


async def show_tree(shown: Transcript, url: str) -> None:
    """Show the tree of the service while three calls wait."""
    async with trio.open_nursery() as nursery:
        for mode, name, slow in (
            ("legacy", "desktop", "user"),
            ("legacy", "editor", "model"),
            (MODERN, "agent", "model"),
        ):
            await nursery.start(wait_with, url, mode, name, slow)
        (service,) = server.services
        shown.block(str(service.tree()))
        nursery.cancel_scope.cancel()


async def wait_with(
    url: str, mode: str, name: str, slow: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Call the tool with a client whose user, or whose model, never answers; started when that was asked."""
    peer = SlowPeer(slow, task_status)
    connection = find_transport("http").connect(url)
    async with Client(connection, options_for(peer, mode, name)) as client:
        await client.call_tool("book_flight", {"destination": "Porto"})


class Peer(Protocol):
    """Who answers for a client."""

    async def elicit(self, params: ElicitRequestFormParams, /) -> ElicitResult: ...

    async def sample(self, params: CreateMessageRequestParams, /) -> str: ...


def options_for(peer: Peer, mode: str, name: str) -> ClientOptions:
    return ClientOptions(
        handlers=Handlers(on_elicit=peer.elicit, on_sample=peer.sample),
        mode=mode,
        info=Implementation(name=name, version="1.0"),
        # Not the default, which a slow machine may exceed.
        probe_timeout=LIMIT,
    )


class DemoPeer:
    """Shows the messages, and answers the questions."""

    def __init__(self, shown: Transcript) -> None:
        self._shown = shown
        self._answers = iter([accept(flight="TP3", seat="aisle"), accept(value=True)])

    def on_message(self, sender: str, message: Arrived) -> None:
        self._shown.said(sender, summary(message, WIDTH))

    async def elicit(self, _params: ElicitRequestFormParams, /) -> ElicitResult:
        await trio.lowlevel.checkpoint()
        answer = next(self._answers)
        self._shown.said(
            "user", f"answers {' '.join(f'{key}={value}' for key, value in (answer.content or {}).items())}"
        )
        return answer

    async def sample(self, _params: CreateMessageRequestParams, /) -> str:
        await trio.lowlevel.checkpoint()
        self._shown.said("model", "answers 'Lunch in the sun.'")
        return "Lunch in the sun."


class SlowPeer:
    """Answers as `DemoPeer`, until the one is asked that never answers: the user, or the model."""

    def __init__(self, slow: str, asked: trio.TaskStatus[None]) -> None:
        self._slow = slow
        self._asked = asked

    async def elicit(self, _params: ElicitRequestFormParams, /) -> ElicitResult:
        if self._slow == "user":
            await self._wait()
        return accept(flight="TP3", seat="aisle")

    async def sample(self, _params: CreateMessageRequestParams, /) -> str:
        await self._wait()
        return ""

    async def _wait(self) -> None:
        self._asked.started()
        await trio.sleep_forever()
