"""The checks of an access token that is a JWT: one row for each, and what a verifier cannot be made with."""

from __future__ import annotations

import json
import warnings
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from joserfc import jws
from joserfc.jwk import ECKey, OctKey, RSAKey

from trio_mcp import Caller
from trio_mcp.auth import CredentialsRejected, jwt
from trio_mcp.auth.server.verifier import Verifier
from trio_mcp.testing import TestIssuer

AUDIENCE = "https://mcp.example.com/mcp"
ISSUER = TestIssuer()
VERIFIER = jwt(ISSUER.url, keys=ISSUER.jwks, audience=AUDIENCE)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def token(audience: Any = AUDIENCE, **options: Any) -> str:
    return ISSUER.token("alice", audience=audience, **options)


async def rejected(verifier: Verifier, token: str) -> str:
    with pytest.raises(CredentialsRejected) as caught:
        await verifier(bearer(token))
    assert (caught.value.status, caught.value.error) == (401, "invalid_token")
    assert token not in str(caught.value)
    return str(caught.value)


async def test_a_good_token_has_its_principal_scopes_and_claims() -> None:
    caller = await VERIFIER(bearer(token(scopes=["a", "b"], claims={"team": "blue"})))
    assert (caller.principal, caller.scopes, caller.claims["team"]) == ("alice", {"a", "b"}, "blue")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("typ", {"header": {"typ": "dpop+jwt"}}),
        ("typ", {"header": {"typ": "logout+jwt"}}),
        ("typ", {"header": {"typ": "id_token+jwt"}}),
        ("kid", {"header": {"kid": "other"}}),
        ("iss", {"claims": {"iss": "https://issuer.test/"}}),
        ("iss", {"claims": {"iss": "https://ISSUER.test"}}),
        ("iss", {"claims": {"iss": None}}),
        ("aud", {"audience": "https://other.example/mcp"}),
        ("aud", {"audience": "https://mcp.example.com/mcp/"}),
        ("aud", {"audience": "https://mcp.example.com"}),
        ("aud", {"audience": ["https://mcp.example.com/mcp/x"]}),
        ("aud", {"claims": {"aud": None}}),
        ("aud", {"claims": {"aud": {"a": AUDIENCE}}}),
        ("exp", {"expires_in": -60}),
        ("exp", {"claims": {"exp": None}}),
        ("exp", {"claims": {"exp": "9999999999"}}),
        ("exp", {"claims": {"exp": True}}),
        ("exp", {"claims": {"exp": 10**310}}),
        ("nbf", {"claims": {"nbf": 9_999_999_999}}),
        ("nbf", {"claims": {"nbf": "0"}}),
        ("nbf", {"claims": {"nbf": -(10**310)}}),
        ("principal", {"claims": {"sub": None}}),
        ("principal", {"claims": {"sub": ""}}),
        ("principal", {"claims": {"sub": 7}}),
        ("cnf", {"claims": {"cnf": {"jkt": "x"}}}),
        ("scope", {"claims": {"scope": 7}}),
        ("scope", {"claims": {"scope": ["a", 7]}}),
        ("caller", {"claims": {"scope": 'a"b'}}),
        ("caller", {"claims": {"sub": "x" * 1_025}}),
        ("caller", {"claims": {"filler": ["x" * 1_000] * 2}, "audience": [AUDIENCE, "x" * 16]}),
    ],
)  # fmt: skip
async def test_a_token_that_fails_a_check_is_invalid_and_the_log_has_its_name(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_mcp.session.envelope.MAX_CLAIMS", 2_000)
    assert name in await rejected(VERIFIER, token(**options))


@pytest.mark.parametrize(
    "options",
    [
        {"audience": ["https://other.example", AUDIENCE]},
        {"expires_in": -20},
        {"claims": {"nbf": 0}},
        {"claims": {"scope": None}},
        {"header": {"typ": None}},
        {"header": {"typ": "JWT"}},
        {"header": {"typ": "application/at+jwt"}},
        {"header": {"kid": None}},
        {"header": {"x-vendor": "anything", "jku": "https://evil.example/keys", "x5u": "https://evil.example"}},
    ],
)
async def test_these_tokens_are_accepted(options: dict[str, Any]) -> None:
    assert (await VERIFIER(bearer(token(**options))) or Caller("none")).principal == "alice"


def forged(header: dict[str, Any], key: Any, algorithm: str) -> str:
    now = 4_000_000_000
    claims = {"iss": ISSUER.url, "aud": AUDIENCE, "sub": "mallory", "exp": now}
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    return jws.serialize_compact({"alg": algorithm, **header}, json.dumps(claims).encode(), key, registry=registry)


def part(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def deep() -> str:
    return urlsafe_b64encode(b'{"alg":"ES256","x":' + b"[" * 3_000).rstrip(b"=").decode()


async def test_no_key_but_the_issuers_signs() -> None:
    other = ECKey.generate_key("P-256")
    kid = ISSUER.jwks["keys"][0]["kid"]  # type: ignore[index,call-overload]
    public = json.dumps(ISSUER.jwks["keys"]).encode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        secret = OctKey.import_key(public)
        tokens = [
            forged({"kid": kid}, other, "ES256"),
            forged({"kid": kid, "jwk": other.as_dict(private=False)}, other, "ES256"),
            forged({"jwk": other.as_dict(private=False)}, other, "ES256"),
            forged({"kid": kid}, secret, "HS256"),
            forged({"kid": kid}, RSAKey.generate_key(2048), "RS256"),
            forged({"kid": kid}, None, "none"),
        ]
    good = token()
    head, body, signature = good.split(".")
    tokens += [
        f"{head}.{body}.",
        f"{head}.{part({'sub': 'mallory'})}.{signature}",
        f"{part({'alg': 'none'})}.{body}.{signature}",
        f"{part({'alg': 'ES256', 'kid': kid, 'crit': ['exp'], 'exp': 1})}.{body}.{signature}",
        f"{part({'alg': 'ES256', 'kid': kid, 'b64': False, 'crit': ['b64']})}.{body}.{signature}",
        f"{part({'alg': ['ES256'], 'kid': kid})}.{body}.{signature}",
        f"{part({'alg': 'ES256', 'kid': [kid]})}.{body}.{signature}",
        f"{part([])}.{body}.{signature}",
        f"{deep()}.{body}.{signature}",
        f"{head}.{deep()}.{signature}",
        "opaque",
        "a.b.c",
        "....",
        f"{good}.{good}",
    ]
    for each in tokens:
        await rejected(VERIFIER, each)


async def test_claims_that_two_readers_would_read_in_two_ways_are_refused() -> None:
    issuer = TestIssuer()
    key = ECKey.generate_key("P-256")
    public: Any = {"keys": [{**key.as_dict(private=False), "kid": "a"}]}
    verifier = jwt(issuer.url, keys=public, audience=AUDIENCE)
    twice = f'{{"iss": "{issuer.url}", "aud": "{AUDIENCE}", "exp": 4000000000, "sub": "a", "sub": "b"}}'
    for body in (twice, "[]", "7", "", '{"exp": NaN}'):
        signed = jws.serialize_compact({"alg": "ES256", "kid": "a"}, body.encode(), key, algorithms=["ES256"])
        assert "claims" in await rejected(verifier, signed)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "Ed25519"])
async def test_each_kind_of_key_verifies_its_algorithm(algorithm: str) -> None:
    issuer = TestIssuer(algorithm=algorithm)
    verifier = jwt(issuer.url, keys=issuer.jwks, audience=AUDIENCE)
    assert await verifier(bearer(issuer.token("alice", audience=AUDIENCE))) is not None


async def test_the_deprecated_name_of_ed25519_is_accepted_without_a_warning() -> None:
    issuer = TestIssuer(algorithm="Ed25519")
    keys: Any = {"keys": [{**issuer.jwks["keys"][0], "alg": "EdDSA"}]}  # type: ignore[index,call-overload,dict-item]
    verifier = jwt(issuer.url, keys=keys, audience=AUDIENCE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        signed = issuer.token("alice", audience=AUDIENCE, header={"alg": "EdDSA"})
    assert await verifier(bearer(signed)) is not None


async def test_an_algorithm_that_is_not_allowed_is_refused_before_the_key_is_looked_for() -> None:
    verifier = jwt(ISSUER.url, keys=ISSUER.jwks, audience=AUDIENCE, algorithms=["RS256"])
    assert "alg" in await rejected(verifier, token())


async def test_without_a_kid_the_key_must_be_the_only_one_that_fits() -> None:
    one, two = TestIssuer(), TestIssuer()
    two.rotate()
    rsa = TestIssuer(algorithm="RS256")
    keys = [each for issuer in (one, two, rsa) for each in issuer.jwks["keys"]]  # type: ignore[union-attr]
    lone: Any = {"keys": [keys[0], keys[2]]}
    both: Any = {"keys": keys}
    signed = one.token("alice", audience=AUDIENCE, header={"kid": None})
    assert await jwt(one.url, keys=lone, audience=AUDIENCE)(bearer(signed)) is not None
    await rejected(jwt(one.url, keys=both, audience=AUDIENCE), signed)


async def test_the_claims_of_principal_and_scopes_can_be_chosen_and_a_realm_begins_the_principal() -> None:
    verifier = jwt(ISSUER.url, keys=ISSUER.jwks, audience=AUDIENCE, principal="oid", scopes="roles", realm="partner")
    caller = await verifier(bearer(token(scopes=["no"], claims={"oid": "7", "roles": ["reader"]})))
    assert (caller.principal, caller.scopes) == ("partner:7", {"reader"})
    without_scope = token(claims={"scope": None, "scp": "a b"})
    assert (await VERIFIER(bearer(without_scope))).scopes == {"a", "b"}


async def test_check_sees_verified_claims_and_may_change_or_reject_them() -> None:
    seen = list[str]()

    async def check(claims: dict[str, Any]) -> dict[str, Any] | None:
        seen.append(claims["sub"])
        return {**claims, "sub": f"{claims['tid']}/{claims['sub']}"} if claims.get("tid") else None

    verifier = jwt(ISSUER.url, keys=ISSUER.jwks, audience=AUDIENCE, check=check)
    assert (await verifier(bearer(token(claims={"tid": "t"})))).principal == "t/alice"
    await rejected(verifier, token())
    await rejected(verifier, token(expires_in=-60, claims={"tid": "t"}))
    assert seen == ["alice", "alice"]


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, None),
        ("", None),
        ("Basic YTpi", None),
        ("DPoP abc", None),
        ("Bearer", 400),
        ("Bearer ", 400),
        ("Bearer a b", 400),
        ("Bearer a, Bearer b", 400),
        ("Bearer a\x00b", 400),
        ("Bearer é", 400),
        ("Bearer =a", 400),
        ("Bearer " + "x" * 8_193, 400),
        ("bearer abc", 401),
        ("BEARER   abc ", 401),
    ],
)
async def test_the_header_has_one_well_formed_token_or_none(header: str | None, status: int | None) -> None:
    headers = {} if header is None else {"authorization": header}
    if status is None:
        assert await VERIFIER(headers) is None
        return
    with pytest.raises(CredentialsRejected) as caught:
        await VERIFIER(headers)
    assert (caught.value.status, caught.value.error) == (
        status,
        "invalid_request" if status == 400 else "invalid_token",
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"issuer": "http://login.example.com"}, "https://"),
        ({"issuer": "login.example.com"}, "https://"),
        ({"issuer": 7}, "issuer"),
        ({"audience": ""}, "audience"),
        ({"audience": ["a"]}, "audience"),
        ({"jwks": "http://login.example.com/keys"}, "jwks"),
        ({"algorithms": "RS256"}, "list"),
        ({"algorithms": ["none"]}, "none"),
        ({"algorithms": ["HS256"]}, "HS256"),
        ({"algorithms": ["XX1"]}, "XX1"),
        ({"algorithms": []}, "empty"),
        ({"leeway": -1}, "leeway"),
        ({"keys": {}}, "keys"),
        ({"keys": {"keys": [{"kty": "oct", "k": "AAAA"}]}}, "keys"),
        ({"keys": [1]}, "keys"),
        ({"realm": "a:b"}, "realm"),
        ({"check": lambda claims: claims}, "check"),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_it(options: dict[str, Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        jwt(**{"issuer": "https://login.example.com", **options})


def test_without_an_audience_nothing_is_served() -> None:
    with pytest.raises(ValueError, match="audience="):
        jwt("https://login.example.com").check()


@pytest.mark.parametrize(
    "jwk",
    [
        {"kty": "oct", "k": "AAAA"},
        {"use": "enc"},
        {"x": "AA"},
        {"kty": "EC", "crv": "none", "x": "AA", "y": "AA"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"kid": 7},
        {"kty": ["EC"]},
        {},
    ],
)
async def test_keys_that_are_not_public_signature_keys_are_ignored(jwk: dict[str, Any]) -> None:
    good: Any = ISSUER.jwks["keys"][0]  # type: ignore[index,call-overload]
    bad = {**good, "kid": "bad", **jwk} if jwk else {}
    verifier = jwt(ISSUER.url, keys={"keys": [bad, "text", good]}, audience=AUDIENCE)
    assert await verifier(bearer(token())) is not None
    await rejected(verifier, token(header={"kid": "bad"}))


@pytest.mark.parametrize(
    "header", ['"alg"', '["alg"]', "7", '{"alg":"ES256","alg":"ES256"}', '{"alg":"ES256","x":NaN}']
)
async def test_a_header_that_is_no_object_or_has_two_meanings_is_no_jwt(header: str) -> None:
    _, _, rest = token().partition(".")
    first = urlsafe_b64encode(header.encode()).rstrip(b"=").decode()
    assert "not a JWT" in await rejected(VERIFIER, f"{first}.{rest}")
