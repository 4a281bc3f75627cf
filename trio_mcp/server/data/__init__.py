"""What a server offers besides tools: resources, prompts and completions."""

from typing import TYPE_CHECKING

from ...base import late

if TYPE_CHECKING:
    from . import completion as completion, prompts as prompts, resources as resources
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "completion": "",
            "prompts": "",
            "resources": "",
        },
    )
