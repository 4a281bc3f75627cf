"""What a store has of running calls, so that the next process goes on where this one died."""

from typing import TYPE_CHECKING

from ...base import late

if TYPE_CHECKING:
    from . import claims as claims, key_store as key_store, log as log, settling as settling, snapshot as snapshot
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "claims": "",
            "key_store": "",
            "log": "",
            "settling": "",
            "snapshot": "",
        },
        in_calls="key_store log",
    )
