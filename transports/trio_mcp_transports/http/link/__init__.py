"""Links between the processes that serve as one."""

from typing import TYPE_CHECKING

from trio_mcp.base import late

if TYPE_CHECKING:
    from . import elsewhere as elsewhere
else:
    __getattr__, __dir__, __all__ = late.exports(__name__, {"elsewhere": ""})
