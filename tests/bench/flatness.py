"""Whether a call costs the same however much the server holds: `python -m bench.flatness`.

For each kind of thing one server runs, which holds more of it before each figure: connections that call, open sessions, parked
calls, tools. Prints CPU time of the server for a call in µs, the least of a few turns: on a busy machine a turn may cost more.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import trio

from . import messages
from .calls import Calls, Lists, Questions
from .generator import Load, build
from .http_client import connected, open_session
from .messages import NUMBER, Era
from .running import Cores, Settings, serving
from .targets import OURS, TARGETS, Installed
from .workload import Server
from .workloads import LEGACY, MODERN

TURNS = 3
LOAD = Load(duration=0.5, warmup=0.2)
OF_ONE_CONNECTION = 2000
"""Calls that one connection parks: one that is not alone may have a quarter of all that a server parks."""
Hold = Callable[[Server, int, int], Awaitable[None]]
"""Lets a server hold more of something: how many it has, and how many it shall have."""


@dataclass(frozen=True)
class Series:
    """Figures of one workload.

    Attributes:
        name: Of the thing of which there are more and more.
        sizes: How many.
        at: The workload with that number of them.
        hold: Makes a server hold more; None if the workload does that, or another server has to be started.
    """

    name: str
    sizes: Sequence[int]
    at: Callable[[int], Calls]
    hold: Hold | None = None


async def open_sessions(server: Server, present: int, wanted: int) -> None:
    for _ in range(wanted - present):
        await open_session(server.port)


async def park_calls(server: Server, present: int, wanted: int) -> None:
    head, body = messages.headers(server.port, MODERN, "tools/call", "ask"), messages.call("ask", {}, MODERN)
    for first in range(present, wanted, OF_ONE_CONNECTION):
        async with connected(server.port) as connection:
            for number in range(first, min(first + OF_ONE_CONNECTION, wanted)):
                await connection.post(head, body.replace(NUMBER, str(number)))


def calls(era: Era, connections: int) -> Calls:
    return Calls(name="flatness", what="", era=era, connections=connections)


def with_tools(count: int, workload: Calls) -> Calls:
    return replace(workload, variables={"BENCH_TOOLS": str(count)})


LISTS = Lists(name="flatness", what="", era=MODERN, connections=4, expect="echo")
QUESTIONS = Questions(name="flatness", what="", era=MODERN, connections=16)
MANY, MANY_HELD = (1, 16, 64, 256, 1000), (0, 1000, 9900)
SERIES = (
    Series("connections, legacy", MANY, partial(calls, LEGACY)),
    Series("connections, modern", MANY, partial(calls, MODERN)),
    Series("open sessions, legacy call", MANY_HELD, lambda _: calls(LEGACY, 16), open_sessions),
    Series("parked calls, modern call", MANY_HELD, lambda _: calls(MODERN, 16), park_calls),
    Series("parked calls, modern question", MANY_HELD, lambda _: QUESTIONS, park_calls),
    Series("tools, modern call", (0, 100, 1000), lambda count: with_tools(count, calls(MODERN, 16))),
    Series("tools, modern list", (0, 100, 1000), lambda count: with_tools(count, LISTS)),
)


async def figures(series: Series, installed: Installed, settings: Settings) -> list[float]:
    """Return the figure of each size."""
    if series.hold is None:
        found = []
        for size in series.sizes:
            async with serving(installed, series.at(size), settings) as server:
                found.append(await least(series.at(size), server))
        return found
    async with serving(installed, series.at(0), settings) as server:
        found = [await least(series.at(0), server)]
        for present, wanted in pairwise(series.sizes):
            await series.hold(server, present, wanted)
            found.append(await least(series.at(wanted), server))
    return found


async def least(workload: Calls, server: Server) -> float:
    return min([await workload.measure(server, LOAD) for _ in range(TURNS)])


async def main(names: Sequence[str]) -> None:
    """Print the figures of the series whose names begin so; of all without names."""
    await build()
    target = TARGETS[OURS]
    installed = Installed(target, await target.environment.prepare())
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        settings = Settings(TURNS, LOAD, Cores.allowed(), Path(scratch))
        for series in SERIES:
            if not names or series.name.startswith(tuple(names)):
                found = await figures(series, installed, settings)
                each = "  ".join(f"{size:,}: {cost:.0f} µs" for size, cost in zip(series.sizes, found, strict=True))
                print(f"{series.name:32}{each}", flush=True)


if __name__ == "__main__":
    trio.run(main, sys.argv[1:])
