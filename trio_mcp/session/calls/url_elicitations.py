"""Pages that users were asked to open (URL elicitation): who is notified when the user has finished there.

Accepting such a question only means that the user agreed to open the page (L-ELI-8s). When the user has finished there, the
program that serves the page completes the elicitation by its id. Then the call that waits for it goes on, and a legacy client
gets `notifications/elicitation/complete`, the client that was asked and no other.
"""

# An elicitation is known here
#
#     from        the tool asks                       raises UrlElicitationRequired, or asks with wait=False
#     until       it is completed, or the tool        it is completed, or newer ones need the room
#                 no longer waits
#     then        the call goes on, and its request   the session gets the notice, if it still exists and can be reached now
#                 carries the notice

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import trio

MAX_PAGES: Final = 10_000
"""Elicitations of one service that may be unfinished; the oldest is forgotten first."""


class UrlElicitations:
    """The unfinished URL elicitations of one service, by id. `complete` works in any thread, the rest in Trio's."""

    __slots__ = ("_on_complete", "_token")

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._on_complete: OrderedDict[str, Callable[[], None]] = OrderedDict()

    def add(self, elicitation_id: str, on_complete: Callable[[], None]) -> None:
        """Call `on_complete` when this elicitation is completed.

        Raises:
            ValueError: the id is in use; an id identifies one elicitation of a server.
        """
        if elicitation_id in self._on_complete:
            raise ValueError(f"the elicitation id {elicitation_id[:64]!r} is in use: each elicitation needs a new one")
        self._on_complete[elicitation_id] = on_complete
        if len(self._on_complete) > MAX_PAGES:
            self._on_complete.popitem(last=False)

    def discard(self, elicitation_id: str) -> None:
        """Forget an elicitation; to complete it does nothing from now on."""
        self._on_complete.pop(elicitation_id, None)

    def complete(self, elicitation_id: str) -> bool:
        """Complete an elicitation, soon; return whether it was unfinished. Safe in any thread, also after the service."""
        if elicitation_id not in self._on_complete:
            return False
        try:
            self._token.run_sync_soon(self._complete, elicitation_id)
        except trio.RunFinishedError:
            return False
        return True

    def _complete(self, elicitation_id: str) -> None:
        # Looked up again: two threads may complete the same one.
        on_complete = self._on_complete.pop(elicitation_id, None)
        if on_complete is not None:
            on_complete()

    def __len__(self) -> int:
        return len(self._on_complete)

    def __repr__(self) -> str:
        return f"<UrlElicitations unfinished={len(self)}>"
