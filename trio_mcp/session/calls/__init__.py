"""Calls: how a request runs as an actor, how it asks its client, and what is stored of it between two requests."""

from typing import TYPE_CHECKING

from ...base import late

if TYPE_CHECKING:
    from . import (
        asks_rounds as asks_rounds,
        client_tasks as client_tasks,
        legs as legs,
        memory as memory,
        next_leg as next_leg,
        pending_asks as pending_asks,
        previous_run as previous_run,
        url_elicitations as url_elicitations,
    )
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "asks_rounds": "",
            "client_tasks": "",
            "previous_run": "",
            "legs": "",
            "memory": "",
            "pending_asks": "",
            "next_leg": "",
            "url_elicitations": "",
        },
        in_calls="asks_requests asks_rounds client_tasks memory next_leg previous_run url_elicitations",
    )
