"""What a store has of running calls, so that the next process goes on where this one died."""

from typing import TYPE_CHECKING

from ...base import late

if TYPE_CHECKING:
    from . import (
        claims as claims,
        key_store as key_store,
        processes as processes,
        session_record as session_record,
        settling as settling,
        stored_journal as stored_journal,
    )
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "claims": "",
            "key_store": "",
            "processes": "",
            "stored_journal": "",
            "settling": "",
            "session_record": "",
        },
        in_calls="key_store stored_journal",
    )
