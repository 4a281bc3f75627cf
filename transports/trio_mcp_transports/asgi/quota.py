"""How many of something the clients of an HTTP application may hold, in total and each caller of them."""

from __future__ import annotations

from trio_mcp.runtime import Account
from trio_mcp.runtime.quota import Quota

from .access import SHUTTING_DOWN, HttpRejection


class HttpQuota(Quota):
    """A quota whose refusals are responses. Its limit for one caller is for principals; others have their share.

    Attributes:
        draining: nothing more is taken, because the server is shutting down.
    """

    draining: bool = False

    def admit(self, account: Account) -> None:
        """Raise `HttpRejection` (503) unless there is room for one more of the caller of this account."""
        self.check_not_draining()
        rejection = self.rejection(account)
        if rejection is not None:
            raise HttpRejection(503, rejection)

    def check_not_draining(self) -> None:
        """Raise `HttpRejection` (503) if the server is shutting down."""
        if self.draining:
            raise HttpRejection(503, SHUTTING_DOWN)

    def rejection(self, account: Account) -> str | None:
        """Return the reason to reject one more of the caller of this account, or None if there is room."""
        return self.refusal(account.caller, capped=account.principal is not None)
