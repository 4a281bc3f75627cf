"""Calls: how a request runs as an actor, how it asks its client, and what is stored of it between two requests."""

from typing import TYPE_CHECKING

from ... import late

if TYPE_CHECKING:
    from . import asks_rounds as asks_rounds
    from . import claims as claims
    from . import client_tasks as client_tasks
    from . import earlier as earlier
    from . import legs as legs
    from . import log as log
    from . import memory as memory
    from . import pending_asks as pending_asks
    from . import repeats as repeats
    from . import retries as retries
    from . import settling as settling
    from . import stored_keys as stored_keys
    from . import url_elicitations as url_elicitations
else:
    __getattr__, __dir__ = late.exports(
        __name__,
        {
            "asks_rounds": "",
            "claims": "",
            "client_tasks": "",
            "earlier": "",
            "legs": "",
            "log": "",
            "memory": "",
            "pending_asks": "",
            "repeats": "",
            "retries": "",
            "settling": "",
            "stored_keys": "",
            "url_elicitations": "",
        },
    )
