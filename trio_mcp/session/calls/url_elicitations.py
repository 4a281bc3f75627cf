"""Pages that users were asked to open (URL elicitation): who is notified when the user has finished there.

Accepting such a question only means that the user agreed to open the page (L-ELI-8s). When the user has finished there, the
program that serves the page completes the elicitation by its id. Then the call that waits for it goes on, and a legacy client
gets `notifications/elicitation/complete`, the client that was asked and no other.
"""

# An elicitation is known here
#
#     from        the tool asks, and its call waits   raises UrlElicitationRequired, or asks with wait=False
#     until       it is completed, or the tool        it is completed, its session ends, or newer ones need the room
#                 no longer waits
#     then        the call goes on, and its request   the session gets the notice, if it can be reached now
#                 carries the notice
#     too many    the new one is rejected             the oldest is forgotten

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

import trio

from ...base.shared_limits import AWAITED_PAGES, LEFT_PAGES
from ...runtime import Account
from ...runtime.oldest_first import Kept, OldestFirst
from ...runtime.quota import Quota
from ..envelope import PAGE_SIZE

MAX_SESSION_PAGES: Final = 100
"""Elicitations of one session that nothing waits for; the oldest is forgotten first."""


class UrlElicitations:
    """The unfinished URL elicitations of one service, by id. `complete` works in any thread, the rest in Trio's."""

    __slots__ = ("_expected", "_quota", "_token", "_waited")

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._waited: dict[str, tuple[Callable[[], None], Hashable | None]] = {}
        self._quota = Quota(AWAITED_PAGES)
        self._expected: OldestFirst[str, SessionPages] = OldestFirst(Quota(LEFT_PAGES), None, _release)

    def add(self, elicitation_id: str, on_complete: Callable[[], None], caller: Hashable | None = None) -> None:
        """Call `on_complete` when this elicitation, which a call waits for, is completed.

        Args:
            caller: whose call it is, for the limits that callers share; see `Account`.

        Raises:
            ValueError: the id is in use; an id identifies one elicitation of a server.
            LimitExceeded: calls wait for as many as they may.
        """
        self.check_new(elicitation_id)
        self._quota.take(caller)
        self._waited[elicitation_id] = on_complete, caller

    def expect(self, elicitation_id: str, pages: SessionPages) -> None:
        """Notify a session when this elicitation, which nothing waits for, is completed. Raises `ValueError` as `add` does."""
        self.check_new(elicitation_id)
        self._expected.add(elicitation_id, pages, pages.caller)

    def check_new(self, elicitation_id: str) -> None:
        """Raise `ValueError` if the id is in use; an id identifies one elicitation of a server."""
        if elicitation_id in self._waited or elicitation_id in self._expected:
            raise ValueError(f"the elicitation id {elicitation_id[:64]!r} is in use: each elicitation needs a new one")

    def discard(self, elicitation_id: str) -> None:
        """Forget an elicitation; to complete it does nothing from now on."""
        self._take(elicitation_id)
        self._expected.pop(elicitation_id)

    def _take(self, elicitation_id: str) -> Callable[[], None] | None:
        """Remove an elicitation that a call waits for, if there is one of this id; return what its completion calls."""
        waited = self._waited.pop(elicitation_id, None)
        if waited is None:
            return None
        on_complete, caller = waited
        self._quota.give_back(caller)
        return on_complete

    def complete(self, elicitation_id: str) -> bool:
        """Complete an elicitation, soon; return whether it was unfinished. Safe in any thread, also after the service."""
        if elicitation_id not in self._waited and elicitation_id not in self._expected:
            return False
        try:
            self._token.run_sync_soon(self._complete, elicitation_id)
        except trio.RunFinishedError:
            return False
        return True

    def _complete(self, elicitation_id: str) -> None:
        # Looked up again: two threads may complete the same one.
        on_complete, expected = self._take(elicitation_id), self._expected.pop(elicitation_id)
        if on_complete is not None:
            on_complete()
        elif expected is not None:
            expected[0].completed(elicitation_id)

    def __len__(self) -> int:
        return len(self._waited) + len(self._expected)

    def __repr__(self) -> str:
        return f"<UrlElicitations unfinished={len(self)}>"


def _release(elicitation_id: str, kept: Kept[SessionPages]) -> None:
    kept[0].release(elicitation_id)


class SessionPages:
    """The elicitations of one session that nothing waits for. They end with it.

    Args:
        account: of the session; each draws `PAGE_SIZE`. None counts nothing.
        notify: tells the client that its user has finished at a page.
    """

    __slots__ = ("_account", "_elicitations", "_names", "_notify")

    def __init__(self, elicitations: UrlElicitations, account: Account | None, notify: Callable[[str], None]) -> None:
        self._elicitations = elicitations
        self._account = account
        self._notify = notify
        self._names: dict[str, None] = {}

    @property
    def caller(self) -> Hashable | None:
        """Whose session it is, for the limits that callers share; see `Account`."""
        return None if self._account is None else self._account.caller

    def add(self, elicitation_id: str) -> None:
        """Notify the client when this elicitation is completed.

        Raises:
            ValueError: the id is in use.
            LimitExceeded: the memory budget has no room.
        """
        if self._account is not None:
            self._account.check(PAGE_SIZE)
        # First: there may be no room for it, and then it is released at once.
        self._elicitations.check_new(elicitation_id)
        self._names[elicitation_id] = None
        if self._account is not None:
            self._account.draw(PAGE_SIZE)
        self._elicitations.expect(elicitation_id, self)
        if len(self._names) > MAX_SESSION_PAGES:
            self._discard(next(iter(self._names)))

    def completed(self, elicitation_id: str) -> None:
        """Notify the client."""
        self.release(elicitation_id)
        self._notify(elicitation_id)

    def release(self, elicitation_id: str) -> None:
        """Give back what an elicitation drew that is no longer known."""
        del self._names[elicitation_id]
        if self._account is not None:
            self._account.give_back(PAGE_SIZE)

    def close(self) -> None:
        """Forget them all: the session has ended."""
        while self._names:
            self._discard(next(iter(self._names)))

    def _discard(self, elicitation_id: str) -> None:
        self._elicitations.discard(elicitation_id)
        self.release(elicitation_id)

    def __repr__(self) -> str:
        return f"<SessionPages {len(self._names)}>"
