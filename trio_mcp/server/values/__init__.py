"""What functions take and return: their signatures and schemas, results, content and media."""

from typing import TYPE_CHECKING

from ...base import late

if TYPE_CHECKING:
    from . import (
        media as media,
        parameters_model as parameters_model,
        results as results,
        step_results as step_results,
    )
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "media": "",
            "parameters_model": "",
            "results": "",
            "step_results": "",
        },
        in_calls="results step_results",
    )
