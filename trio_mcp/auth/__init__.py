"""Authorization with OAuth 2.1: verifying the tokens of callers at a server, and getting tokens for a client.

What a program does not use is not loaded: neither the library for JOSE nor one for HTTP.
"""

from typing import TYPE_CHECKING

from ..base import late

if TYPE_CHECKING:
    from ..errors import AuthorizationError as AuthorizationError
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "trio_mcp.errors": "AuthorizationError",
        },
    )
