"""Asking the user: forms, URLs, and the answers."""

from typing import TYPE_CHECKING

from ...base import late

if TYPE_CHECKING:
    from . import elicitation as elicitation, elicits as elicits, forms as forms, url as url
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "elicitation": "",
            "elicits": "",
            "forms": "",
            "url": "",
        },
        in_calls="elicitation elicits exchanges url",
    )
