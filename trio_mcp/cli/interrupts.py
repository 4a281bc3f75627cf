"""Running a command so that Ctrl-C ends it cleanly: calls are cancelled at the server, connections are closed."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable

import trio

from ..groups import single_exception

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_command(command: Callable[[], Awaitable[int]]) -> int:
    """Run a command in a Trio loop and return its exit status, or 128 plus the number of the signal that ended it.

    The first signal cancels the command; a second one ends the process immediately.
    """
    return trio.run(watched, command)


async def watched(command: Callable[[], Awaitable[int]]) -> int:
    outcome: int | Exception = 0

    async def watch(signals: AsyncIterator[int]) -> None:
        nonlocal outcome
        outcome = 128 + await anext(signals)
        # The clean-up may hang on a server that does not answer, and the user must still be able to end it.
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        nursery.cancel_scope.cancel()

    with trio.open_signal_receiver(*SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            # A task and not a handler that raises KeyboardInterrupt: that could strike anywhere, also inside the clean-up.
            nursery.start_soon(watch, signals)
            try:
                outcome = await command()
            except Exception as error:  # noqa: BLE001  raised below, not wrapped in a group
                outcome = single_exception(error)
            nursery.cancel_scope.cancel()
    # Outside the nursery, which would wrap it in a group.
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
