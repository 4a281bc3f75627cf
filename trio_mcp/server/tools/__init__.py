"""Tools: how one is made from a function, called, found and handed over."""

from typing import TYPE_CHECKING

from ...base import late

if TYPE_CHECKING:
    from . import builder as builder, handoff as handoff, own_tools as own_tools, search as search
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "builder": "",
            "handoff": "",
            "own_tools": "",
            "search": "",
        },
    )
