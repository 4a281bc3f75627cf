"""The settings of a login: what is accepted, and what is said about the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey
from oauth_world import URL, World
from refusals import refused

from trio_mcp import Client
from trio_mcp.auth import ClientCredentials, EnterpriseManaged, OAuth, WorkloadIdentity
from trio_mcp.auth.client.dpop import Proofs
from trio_mcp.compose import OAuthClient
from trio_mcp.errors import AuthorizationErrorKind

KEY = json.dumps(ECKey.generate_key("P-256").as_dict(private=True))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: OAuth(client_id=""), ValueError),
        (lambda: OAuth(client_id=5), TypeError),  # type: ignore[arg-type]
        (lambda: OAuth(client_secret="canary"), TypeError),
        (lambda: OAuth(client_id="c", client_secret="canary", private_key="canary"), TypeError),
        (lambda: OAuth(issuer="as.example"), ValueError),
        (lambda: OAuth(issuer="https://as.example?x=canary"), ValueError),
        (lambda: OAuth(metadata_url="http://c.example/c"), ValueError),
        (lambda: OAuth(scopes="a b"), TypeError),
        (lambda: OAuth(scopes=["a b"]), ValueError),
        (lambda: OAuth(scopes=[""]), ValueError),
        (lambda: OAuth(redirect_port=70000), ValueError),
        (lambda: ClientCredentials("c"), TypeError),
        (lambda: ClientCredentials("c", private_key="canary"), ValueError),
        (lambda: ClientCredentials("c", private_key=KEY, algorithm="RS256"), ValueError),
        (lambda: ClientCredentials("c", private_key=KEY, algorithm="HS256"), ValueError),
        (lambda: OAuth(client_id="c", private_key='{"kty": "oct", "k": "canary"}'), ValueError),
        (lambda: ClientCredentials("c", "canary", private_key="canary"), TypeError),
        (lambda: ClientCredentials("", "canary"), ValueError),
        (lambda: ClientCredentials("c", "canary", scopes="a"), TypeError),
        (lambda: WorkloadIdentity("c", "canary", issuer="nonsense"), ValueError),
        (lambda: EnterpriseManaged("c", "canary", idp="nonsense", idp_client_id="c", id_token="canary"), ValueError),
    ],
)
def test_wrong_settings_are_refused_at_once_and_no_secret_is_shown(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        make()
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        OAuth(client_id="c", client_secret="canary"),
        ClientCredentials("c", "canary"),
        WorkloadIdentity("c", "canary"),
        EnterpriseManaged("c", "canary", idp="https://idp.example", idp_client_id="c", id_token="canary"),
        Proofs(),
    ],
)
def test_a_repr_has_no_secret(settings: object) -> None:
    assert "canary" not in repr(settings)
    assert "'d'" not in repr(settings)


@pytest.mark.parametrize(
    ("auth", "error"),
    [
        (OAuth, TypeError),
        ("", ValueError),
        ("canary token", ValueError),
        ("canary\nx: y", ValueError),
        (17, TypeError),
        (["canary"], TypeError),
    ],
)
def test_an_invalid_auth_argument_is_rejected_before_anything_is_opened(auth: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="auth=") as caught:
        Client.connect(URL, auth=auth)
    assert "canary" not in str(caught.value)


def test_a_command_has_no_authentication() -> None:
    with pytest.raises(TypeError, match="auth="):
        Client.connect(["server"], auth=OAuth())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (OAuth(), ("by-hand", "s", ["a"], 8123)),
        (OAuth(client_id="own"), ("own", None, None, 0)),
        (OAuth(scopes=["b"], redirect_port=1), ("by-hand", "s", ["b"], 1)),
    ],
)
def test_the_client_of_a_hosts_file_completes_the_settings(settings: OAuth, expected: tuple[Any, ...]) -> None:
    client = OAuthClient(client_id="by-hand", client_secret="s", scopes=("a",), redirect_port=8123)
    made = settings.for_client(client)
    scopes = None if made.scopes is None else [*made.scopes]
    assert (made.client_id, made.client_secret, scopes, made.redirect_port) == expected


async def test_a_url_that_is_no_resource_is_refused() -> None:
    with pytest.raises(ValueError, match="host"):
        async with World().settings().open("https://"):
            pass


@pytest.mark.parametrize("key", ["nonsense", "{}", "[]", '{"kty": "EC"}'])
def test_a_stored_key_that_is_none_is_refused_without_being_shown(key: str) -> None:
    with refused(AuthorizationErrorKind.STORE) as caught:
        Proofs(key)
    assert "kty" not in str(caught.value)


def test_a_proof_names_the_request_and_the_token_and_is_never_the_same() -> None:
    proofs = Proofs()
    sent = [proofs.proof("POST", f"{URL}?secret=1#x", 5.0, "token") for _ in range(2)]
    key = ECKey.import_key(json.loads(proofs.key))
    first, second = (jwt.decode(each, key, algorithms=["ES256"]) for each in sent)
    assert first.claims["htu"] == URL
    assert first.claims["htm"] == "POST"
    assert first.claims["ath"] == "PEaenWxYddN6Q_NT1PiOYfz4EsZu7jRXRlpAsNpBU-A"
    assert first.claims["jti"] != second.claims["jti"]
    assert first.header["typ"] == "dpop+jwt"
    assert "d" not in first.header["jwk"]


def test_a_nonce_belongs_to_its_origin() -> None:
    proofs = Proofs()
    assert proofs.learn(URL, {"dpop-nonce": "n1"})
    assert not proofs.learn(URL, {"dpop-nonce": "n1"})
    assert not proofs.learn(URL, {})
    assert not proofs.learn(URL, {"dpop-nonce": "x" * 10_000})
    key = ECKey.import_key(json.loads(proofs.key))
    claims = [
        jwt.decode(proofs.proof("GET", url, 5.0), key, algorithms=["ES256"]).claims
        for url in (URL, "https://elsewhere.example/mcp")
    ]
    assert [each.get("nonce") for each in claims] == ["n1", None]
