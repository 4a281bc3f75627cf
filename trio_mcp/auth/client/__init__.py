"""The client's half of authorization: getting tokens for a server, storing them, and sending them."""

from typing import TYPE_CHECKING

from ...base import late

if TYPE_CHECKING:
    from . import dpop as dpop, keyring_tokens as keyring_tokens, signing as signing
else:
    # JOSE is only for clients with a private key, and for DPoP.
    __getattr__, __dir__, __all__ = late.exports(__name__, {"dpop": "", "keyring_tokens": "", "signing": ""})
