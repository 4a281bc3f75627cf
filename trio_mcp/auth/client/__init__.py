"""The client's half of authorization: getting tokens for a server, storing them, and sending them."""

from ...base import late

# With JOSE, which only clients with a private key and DPoP need.
__getattr__, __dir__, __all__ = late.exports(__name__, {"dpop": "", "keyring_tokens": "", "signing": ""})
