"""Providers with which users log in through an `OAuthProxy`, as values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from ...base.checks import check_sequence, check_str, check_str_mapping, mistake
from ...session.envelope import check_scopes
from ..server.verifier import check_endpoint

_TENANT: Final = re.compile(r"[A-Za-z0-9.-]++")


@dataclass(frozen=True, slots=True)
class OAuthProvider:
    """A provider of OAuth 2.0 with which an `OAuthProxy` logs users in.

        GITEA = OAuthProvider(
            "Gitea",
            authorize_url="https://gitea.example.com/login/oauth/authorize",
            token_url="https://gitea.example.com/login/oauth/access_token",
            user_url="https://gitea.example.com/login/oauth/userinfo",
            scopes=["openid", "email"],
        )

    Attributes:
        name: for people.
        authorize_url: the page where users log in.
        token_url: where codes and refresh tokens are redeemed.
        user_url: answers a GET with an access token with a JSON object about the user.
        scopes: what is requested of the provider, such as what `user_url` needs.
        principal: the member of that object that identifies the user; it must never be given to another user.
        claims: further members, which tools find in `ctx.caller.claims`.
        revoke_url: where tokens are revoked (RFC 7009); None if the provider does not do that.
        parameters: further ones of the authorization request.
        basic: whether the secret is sent in the header `Authorization` in place of the form.

    Raises:
        TypeError, ValueError: a value is invalid.
    """

    name: str
    authorize_url: str = field(kw_only=True)
    token_url: str = field(kw_only=True)
    user_url: str = field(kw_only=True)
    scopes: Sequence[str] = field(default=(), kw_only=True)
    principal: str = field(default="sub", kw_only=True)
    claims: Sequence[str] = field(default=("name", "email"), kw_only=True)
    revoke_url: str | None = field(default=None, kw_only=True)
    parameters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), kw_only=True)
    basic: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        check_str("name", self.name)
        for url in ("authorize_url", "token_url", "user_url"):
            check_endpoint(url, getattr(self, url))
        if self.revoke_url is not None:
            check_endpoint("revoke_url", self.revoke_url)
        check_scopes("scopes", self.scopes)
        check_str("principal", self.principal)
        check_sequence("claims", self.claims, str, 'a list, such as ["name"]', "the name of a claim")
        check_str_mapping("parameters", self.parameters)


GITHUB: Final = OAuthProvider(
    "GitHub",
    authorize_url="https://github.com/login/oauth/authorize",
    token_url="https://github.com/login/oauth/access_token",  # noqa: S106  a URL
    user_url="https://api.github.com/user",
    # A login can be given to another user after a rename.
    principal="id",
    claims=("login", "name", "email"),
)
"""GitHub. Without scopes, a token of GitHub reads what is public of the user."""

GOOGLE: Final = OAuthProvider(
    "Google",
    authorize_url="https://accounts.google.com/o/oauth2/v2/auth",
    token_url="https://oauth2.googleapis.com/token",  # noqa: S106  a URL
    user_url="https://openidconnect.googleapis.com/v1/userinfo",
    scopes=("openid", "email", "profile"),
    claims=("name", "email", "email_verified", "hd"),
    revoke_url="https://oauth2.googleapis.com/revoke",
    # Without both, only the first login of a user brings a refresh token.
    parameters=MappingProxyType({"access_type": "offline", "prompt": "consent"}),
)
"""Google."""


def ENTRA(tenant: str) -> OAuthProvider:  # noqa: N802  one of the providers, which are constants
    """Return Microsoft Entra, for the users of a tenant. Raises `TypeError`, `ValueError`.

    Args:
        tenant: its id or its domain, such as "example.onmicrosoft.com".
    """
    if not _TENANT.fullmatch(check_str("tenant", tenant)):
        raise ValueError(mistake("tenant", "the id or the domain of a tenant", tenant))
    return OAuthProvider(
        "Microsoft",
        authorize_url=f"https://login.microsoftonline.com/{tenant}/oauth2/v2.0/authorize",
        token_url=f"https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token",
        user_url="https://graph.microsoft.com/oidc/userinfo",
        scopes=("openid", "email", "profile", "offline_access"),
    )
