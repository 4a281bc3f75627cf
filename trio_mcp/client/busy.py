"""Waiting for a server that is too busy: HTTP 429 and 503."""

from __future__ import annotations

import math
from itertools import count
from typing import Unpack

import trio

from ..errors import ServerBusy
from ..session import ClientSession
from ..session.client import RequestOptions
from ..types import Model, RequestParams
from .requester import BACKOFF


class WaitingSession(ClientSession):
    """A session whose requests are sent again, after a wait, if the server was too busy for them.

    Attributes:
        wait_if_busy: seconds that one request waits in all.
    """

    wait_if_busy: float

    async def request(self, method: str, params: RequestParams, **options: Unpack[RequestOptions]) -> Model:
        """Send a request as `ClientSession.request` does, again and again; all within its `timeout`.

        Raises:
            ServerBusy: the server asks for a longer wait than is left.
        """
        deadline, left = trio.current_time() + options.get("timeout", math.inf), self.wait_if_busy
        for attempt in count():
            options["timeout"] = max(0.0, deadline - trio.current_time())
            try:
                return await super().request(method, params, **options)
            except ServerBusy as busy:
                asked = BACKOFF.delay(attempt) if busy.retry_after is None else max(busy.retry_after, BACKOFF.first)
                if asked > min(left, deadline - trio.current_time()):
                    raise
            left -= asked
            await trio.sleep(asked)
        raise AssertionError
