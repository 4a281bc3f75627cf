"""A child process: an actor computes without end, and a real Ctrl-C must end the main task all the same."""

from __future__ import annotations

import signal
import sys

import trio

from trio_mcp.runtime import Actor, Outcome, Supervisor, open_supervisor


async def computes(_actor: Actor) -> None:
    print("running", flush=True)
    while True:
        for _ in range(10_000):
            pass
        await trio.lowlevel.checkpoint()


def show(_actor: Actor, outcome: Outcome) -> None:
    print(f"actor: {type(outcome).__name__}", flush=True)


async def supervise(supervisor: Supervisor) -> None:
    supervisor.start(computes, show)
    await trio.sleep_forever()


async def main() -> None:
    async with open_supervisor() as supervisor:
        await supervise(supervisor)


# A shell starts background jobs with SIGINT ignored, which children inherit: no Ctrl-C would ever arrive.
signal.signal(signal.SIGINT, signal.default_int_handler)

try:
    trio.run(main)
except KeyboardInterrupt:
    print("main: KeyboardInterrupt", flush=True)
    sys.exit(130)
except BaseExceptionGroup as group:
    print(f"main: {[type(error).__name__ for error in group.exceptions]}", flush=True)
    sys.exit(130 if group.subgroup(KeyboardInterrupt) else 1)
