"""Authorization with OAuth 2.1: verifying the tokens of callers at a server, and getting tokens for a client.

The libraries for JOSE and HTTP are loaded only by programs that use them.
"""

from typing import TYPE_CHECKING

from ..base import late

if TYPE_CHECKING:
    from ..errors import AuthorizationError as AuthorizationError
    from ..http.authenticator import CannotVerify as CannotVerify, CredentialsRejected as CredentialsRejected
    from .client.keyring_tokens import KeyringTokens as KeyringTokens
    from .client.options import (
        ClientCredentials as ClientCredentials,
        EnterpriseManaged as EnterpriseManaged,
        OAuth as OAuth,
        WorkloadIdentity as WorkloadIdentity,
    )
    from .client.stored import Login as Login, TokenStore as TokenStore
    from .client.token_files import MemoryTokens as MemoryTokens, TokenFiles as TokenFiles
    from .proxy.providers import (
        ENTRA as ENTRA,
        GITHUB as GITHUB,
        GOOGLE as GOOGLE,
        OAuthProvider as OAuthProvider,
    )
    from .proxy.proxy import OAuthProxy as OAuthProxy
    from .server.any_of import any_of as any_of
    from .server.introspection import introspection as introspection
    from .server.jwt import jwt as jwt
    from .server.resource import ProtectedResource as ProtectedResource
    from .server.static import static as static
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "client.options": "ClientCredentials EnterpriseManaged OAuth WorkloadIdentity",
            "client.keyring_tokens": "KeyringTokens",
            "client.stored": "Login TokenStore",
            "client.token_files": "MemoryTokens TokenFiles",
            "trio_mcp.errors": "AuthorizationError",
            "trio_mcp.http.authenticator": "CannotVerify CredentialsRejected",
            "proxy.providers": "ENTRA GITHUB GOOGLE OAuthProvider",
            "proxy.proxy": "OAuthProxy",
            "server.any_of": "any_of",
            "server.introspection": "introspection",
            "server.jwt": "jwt",
            "server.resource": "ProtectedResource",
            "server.static": "static",
        },
    )
