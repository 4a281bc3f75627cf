"""What authenticates the callers of a served file, by the options of the command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .. import auth as authorization
from ..base.regular_files import MAX_CONFIGURATION, read_regular
from .command import CommandError, Status

if TYPE_CHECKING:
    from ..auth.server.verifier import Verifier
    from ..http.authenticator import Authenticator


def resource_of(
    resource: str | None, verifier: Verifier | None, required: Sequence[str] = (), scopes: Sequence[str] = ()
) -> Authenticator | None:
    """Return what authenticates the callers, if there is such an option.

    Args:
        scopes: those that clients may ask for; "all" alone for those of all tools, resources and prompts.

    Raises:
        CommandError: the resource or the verifier is missing.
        TypeError, ValueError: see `ProtectedResource`.
    """
    if resource is None and verifier is None:
        if required or scopes:
            raise CommandError("--required-scope and --scope are of access tokens: give --resource and --auth, too")
        return None
    if resource is None or verifier is None:
        raise CommandError(
            "--resource needs --auth or --oauth-proxy, and each of them needs --resource: the URL of this server, and what "
            "issues its tokens"
        )
    offered: Sequence[str] | Literal["all"] = "all" if [*scopes] == ["all"] else scopes
    return authorization.ProtectedResource(resource, verifier, scopes=offered, required=required)


def verifier_of(
    auth: str | None, provider: str | None, client_id: str | None, secret_file: Path | None
) -> Verifier | None:
    """Return what verifies access tokens, if there is such an option.

    Args:
        auth: the kind and the issuer of JWTs.
        provider: where an OAuth proxy logs users in.
        client_id: of the server at the provider.
        secret_file: the file with its secret.

    Raises:
        CommandError: an option is of an unknown kind, or lacks another one.
        TypeError, ValueError: see `jwt` and `OAuthProxy`.
    """
    if provider is None:
        if client_id is not None or secret_file is not None:
            raise CommandError("--client-id and --client-secret-file are those of --oauth-proxy: give that, too")
        return None if auth is None else jwt_of(auth)
    if auth is not None:
        raise CommandError("--auth and --oauth-proxy are two ways to get tokens: give one of them")
    if client_id is None or secret_file is None:
        raise CommandError(
            "--oauth-proxy needs --client-id and --client-secret-file: register this server at the provider"
        )
    return authorization.OAuthProxy(provider_of(provider), client_id=client_id, client_secret=secret_in(secret_file))


def jwt_of(auth: str) -> Verifier:
    """Return the verifier that --auth names. Raises `CommandError`, and what `jwt` raises."""
    kind, _, issuer = auth.partition(":")
    if kind != "jwt":
        raise CommandError(
            f"--auth {kind!r:.40} is unknown: write --auth jwt:https://login.example.com, or write a file for more"
        )
    return authorization.jwt(issuer)


def provider_of(text: str) -> authorization.OAuthProvider:
    """Return the provider that --oauth-proxy names. Raises `CommandError`."""
    kind, _, tenant = text.partition(":")
    if kind == "entra" and tenant:
        return authorization.ENTRA(tenant)
    known = {"github": authorization.GITHUB, "google": authorization.GOOGLE}
    if text not in known:
        raise CommandError(
            f"--oauth-proxy {text!r:.40} is unknown: write github, google or entra:TENANT, or write a file for another provider"
        )
    return known[text]


def check_one_resource(resource: str | None) -> None:
    """Raise `CommandError` if several servers are given one resource."""
    if resource is not None:
        raise CommandError(
            "--resource is the URL of one server: give each of several its own in its file, as "
            "HttpOptions(authenticate=ProtectedResource(...))"
        )


def secret_in(path: Path) -> str:
    """Return the secret in a file. Raises `CommandError`."""
    try:
        secret = read_regular(path, MAX_CONFIGURATION).decode("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} cannot be read: {error}", Status.UNREACHABLE) from error
    if not secret:
        raise CommandError(f"{path} is empty")
    return secret
