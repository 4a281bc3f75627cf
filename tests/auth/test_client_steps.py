"""The steps of a login, without I/O: scopes, registration, client authentication, the code, and the tokens."""

from __future__ import annotations

import base64
import hashlib
import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from joserfc import jwt
from joserfc.jwk import ECKey
from oauth_world import ISSUER, SERVER_METADATA, World, as_reply, played
from refusals import refused

from trio_mcp.auth import AuthorizationError
from trio_mcp.auth.client.client_authentication import PrivateKey, authenticated
from trio_mcp.auth.client.code import code_grant
from trio_mcp.auth.client.discovery import ServerMetadata, server_metadata
from trio_mcp.auth.client.grants import ClientAtServer, Tokens, client_credentials, refresh
from trio_mcp.auth.client.registration import ClientIdentity, Registration, register
from trio_mcp.auth.client.scopes import choose_scopes
from trio_mcp.auth.client.steps import Browse, Post
from trio_mcp.errors import AuthorizationErrorKind as Kind

REDIRECT = "http://127.0.0.1:7000/callback"
NOW = 1_000_000.0


def metadata(world: World) -> ServerMetadata:
    result = played(server_metadata(ISSUER), world)
    assert isinstance(result, ServerMetadata)
    return result


def client(world: World, **options: Any) -> ClientAtServer:
    registration = options.pop("registration", Registration(ISSUER, "client-1"))
    return ClientAtServer(
        server=metadata(world),
        registration=registration,
        **{"resource": "https://mcp.example/mcp", "redirect_uri": REDIRECT, "clock": lambda: NOW, **options},
    )


def kind_of(run: Any) -> Kind:
    with pytest.raises(AuthorizationError) as caught:
        run()
    return caught.value.kind


# scopes (auth.md 5.3)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # chosen by the program, then the challenge, then what the server supports, then none
        ({"chosen": ["a"], "challenged": "b", "supported": ["c"]}, "a"),
        ({"chosen": None, "challenged": "b d", "supported": ["c"]}, "b d"),
        ({"chosen": None, "challenged": None, "supported": ["c", "d"]}, "c d"),
        ({"chosen": None, "challenged": "", "supported": ["c"]}, "c"),
        ({"chosen": None, "challenged": None, "supported": None}, None),
        # a step-up: what was requested and granted before, and the challenge
        ({"chosen": None, "challenged": "w", "supported": ["c"], "before": ["r"], "is_step_up": True}, "r w"),
        ({"chosen": ["a"], "challenged": "w", "supported": None, "before": ["a", "r"], "is_step_up": True}, "a r w"),
        ({"chosen": None, "challenged": "w", "supported": None, "before": [], "is_step_up": True}, "w"),
        # offline_access: only if it is offered, and something else is asked for
        ({"chosen": None, "challenged": "a", "supported": None, "offered": ["offline_access"]}, "a offline_access"),
        ({"chosen": None, "challenged": "a offline_access", "supported": None, "offered": []}, "a"),
        ({"chosen": None, "challenged": None, "supported": None, "offered": ["offline_access"]}, None),
        ({"chosen": None, "challenged": "offline_access", "supported": None, "offered": ["offline_access"]}, None),
        (
            {
                "chosen": None,
                "challenged": "a",
                "supported": None,
                "offered": ["offline_access"],
                "wants_refresh": False,
            },
            "a",
        ),
    ],
)
def test_the_scopes_to_request(options: dict[str, Any], expected: str | None) -> None:
    assert choose_scopes(**options) == expected


# registration (auth.md 5.4)


@pytest.mark.parametrize(
    ("identity", "reads_urls", "known", "expected"),
    [
        (ClientIdentity("by-hand", metadata_url="https://c.example/c"), True, "stored", "by-hand"),
        (ClientIdentity(metadata_url="https://c.example/c"), True, "stored", "https://c.example/c"),
        (ClientIdentity(metadata_url="https://c.example/c"), False, "stored", "stored"),
        (ClientIdentity(), True, "stored", "stored"),
        (ClientIdentity(), False, None, "client-1"),
    ],
)
def test_a_client_is_known_by_hand_then_by_url_then_as_stored_and_else_it_registers(
    world: World, identity: ClientIdentity, reads_urls: bool, known: str | None, expected: str
) -> None:
    world.server["client_id_metadata_document_supported"] = reads_urls
    stored = None if known is None else Registration(ISSUER, known, redirect_uri=REDIRECT)
    assert played(register(identity, metadata(world), REDIRECT, stored, NOW), world).client_id == expected


@pytest.mark.parametrize(
    "change",
    [{"issuer": "https://other.example"}, {"redirect_uri": "http://127.0.0.1:1/callback"}, {"expires_at": NOW}],
)
def test_a_registration_of_another_issuer_or_redirect_or_with_an_expired_secret_is_not_used(
    world: World, change: dict[str, Any]
) -> None:
    known = replace(Registration(ISSUER, "stored", redirect_uri=REDIRECT), **change)
    assert played(register(ClientIdentity(), metadata(world), REDIRECT, known, NOW), world).client_id == "client-1"


@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        (None, "client_secret_basic"),
        (["client_secret_post", "none"], "none"),
        (["client_secret_post", "client_secret_basic"], "client_secret_basic"),
        (["client_secret_post", "tls_client_auth"], "client_secret_post"),
    ],
)
def test_the_method_of_a_registration_is_a_listed_one(world: World, methods: list[str] | None, expected: str) -> None:
    world.server["token_endpoint_auth_methods_supported"] = methods
    steps = register(ClientIdentity(), metadata(world), REDIRECT, None, NOW)
    body = next(steps).json
    assert body["token_endpoint_auth_method"] == expected
    assert body["application_type"] == "native"
    assert body["grant_types"] == ["authorization_code", "refresh_token"]
    # Servers limit a client to the scopes of its registration, and a step-up would fail.
    assert "scope" not in body


def test_a_secret_may_expire_at_a_time_that_no_float_holds(world: World) -> None:
    steps = register(ClientIdentity(), metadata(world), REDIRECT, None, NOW)
    next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send(as_reply({"client_id": "c", "client_secret_expires_at": 10**310}, 201))
    assert end.value.value.expires_at > NOW


def test_a_server_that_registers_no_clients_says_what_to_write(world: World) -> None:
    del world.server["registration_endpoint"]
    with refused(Kind.REGISTRATION, match="client_id="):
        played(register(ClientIdentity(), metadata(world), REDIRECT, None, NOW), world)


# client authentication


@pytest.mark.parametrize(
    ("secret", "registered", "offered", "expected"),
    [
        (None, None, ("client_secret_basic",), "none"),
        ("s", None, None, "basic"),
        ("s", None, ("client_secret_post",), "post"),
        ("s", None, ("client_secret_post", "client_secret_basic"), "basic"),
        ("s", "client_secret_post", ("client_secret_basic",), "post"),
        ("s", "none", ("client_secret_basic",), "none"),
        ("s", "private_key_jwt", ("private_key_jwt",), "basic"),
    ],
)
def test_a_secret_is_sent_as_registered_or_else_as_both_know(
    secret: str | None, registered: str | None, offered: tuple[str, ...] | None, expected: str
) -> None:
    server = ServerMetadata(ISSUER, auth_methods=offered)
    form, headers = authenticated({}, Registration(ISSUER, "c", secret, registered), server, None, NOW)
    sent = "basic" if "authorization" in headers else "post" if "client_secret" in form else "none"
    assert sent == expected
    assert ("client_id" in form) == (expected != "basic")


def test_both_parts_of_basic_authentication_are_form_encoded() -> None:
    registration = Registration(ISSUER, "a:b", "p w+%é")
    _, headers = authenticated({}, registration, ServerMetadata(ISSUER), None, NOW)
    assert base64.b64decode(headers["authorization"].removeprefix("Basic ")) == b"a%3Ab:p+w%2B%25%C3%A9"


def test_an_assertion_of_a_client_is_for_the_issuer_and_short() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    server = ServerMetadata(ISSUER, f"{ISSUER}/token")
    sent = [authenticated({}, Registration(ISSUER, "c"), server, PrivateKey(pem), NOW).form for _ in range(2)]
    claims = [jwt.decode(each["client_assertion"], ECKey.import_key(pem), algorithms=["ES256"]).claims for each in sent]
    assert claims[0]["iss"] == claims[0]["sub"] == "c"
    assert claims[0]["aud"] == ISSUER
    assert claims[0]["exp"] - claims[0]["iat"] == 60
    assert claims[0]["jti"] != claims[1]["jti"]


@pytest.mark.parametrize("text", ["nonsense", "{}", "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----"])
def test_a_key_that_is_none_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ValueError, match="private_key=") as caught:
        authenticated({}, Registration(ISSUER, "c"), ServerMetadata(ISSUER), PrivateKey(text), NOW)
    assert text not in str(caught.value)


# the code (auth.md 5.1, 5.5)


def test_the_authorization_request_and_the_token_request_of_the_code_flow(world: World) -> None:
    tokens = played(code_grant(client(world), "read offline_access"), world)
    (page,) = world.pages
    query = {name: values[0] for name, values in parse_qs(urlsplit(page).query).items()}
    (form,) = world.forms
    digest = hashlib.sha256(form["code_verifier"].encode()).digest()
    assert page.startswith(f"{ISSUER}/authorize?")
    assert query.pop("code_challenge") == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    assert len(query.pop("state")) >= 22
    assert query == {
        "response_type": "code",
        "client_id": "client-1",
        "redirect_uri": REDIRECT,
        "code_challenge_method": "S256",
        "scope": "read offline_access",
        "prompt": "consent",
        "resource": "https://mcp.example/mcp",
    }
    assert {name: value for name, value in form.items() if name != "code_verifier"} == {
        "grant_type": "authorization_code",
        "code": "the-code",
        "redirect_uri": REDIRECT,
        "client_id": "client-1",
        "resource": "https://mcp.example/mcp",
    }
    assert tokens == Tokens("access-1", "bearer", NOW + 3600, "refresh-1", "read offline_access")


def test_the_parameter_resource_can_be_left_out(world: World) -> None:
    played(code_grant(client(world, resource=None), "read"), world)
    assert "resource=" not in world.pages[0]
    assert "resource" not in world.forms[0]
    assert "prompt=" not in world.pages[0]


@pytest.mark.parametrize(
    ("methods", "assume", "accepted"),
    [
        (["S256"], False, True),
        (["plain", "S256"], False, True),
        (None, False, False),
        (None, True, True),
        ([], True, False),
        (["plain"], False, False),
        (["plain"], True, False),
        ("S256", False, False),
    ],
)
def test_a_server_without_pkce_is_refused_first(world: World, methods: Any, assume: bool, accepted: bool) -> None:
    world.server["code_challenge_methods_supported"] = methods
    steps = code_grant(client(world), None, assume_pkce=assume)
    if accepted:
        assert played(steps, world).access == "access-1"
    else:
        assert kind_of(lambda: played(steps, world)) is Kind.PKCE
        assert world.pages == []


@pytest.mark.parametrize(
    "endpoint",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "http://as.example/authorize",
        "https://user:word@as.example/authorize",
        "https://as.example/authorize#x",
        "https://as.example/a\nb",
        "data:text/html,x",
        "//as.example/authorize",
    ],
)
def test_a_url_that_is_not_for_browsers_is_not_opened(world: World, endpoint: str) -> None:
    world.server["authorization_endpoint"] = endpoint
    assert kind_of(lambda: played(code_grant(client(world), None), world)) is Kind.ADDRESS
    assert world.pages == []


@pytest.mark.parametrize(
    ("promised", "issuer", "accepted"),
    [
        (True, ISSUER, True),
        (True, "https://evil.example", False),
        (True, f"{ISSUER}/", False),
        (True, None, False),
        (False, ISSUER, True),
        (False, "https://evil.example", False),
        (False, None, True),
    ],
)
@pytest.mark.parametrize("error", [None, "access_denied"])
def test_the_issuer_of_a_response_is_checked_before_anything_of_it_is_used(
    world: World, promised: bool, issuer: str | None, accepted: bool, error: str | None
) -> None:
    world.server["authorization_response_iss_parameter_supported"] = promised
    world.redirect = {"iss": issuer, "error": error, "error_description": error and "canary text"}
    with pytest.raises(AuthorizationError) if error or not accepted else nullcontext() as caught:
        played(code_grant(client(world), None), world)
    if not accepted:
        assert caught.value.kind is Kind.ISSUER
        assert "canary" not in str(caught.value)
        assert "access_denied" not in str(caught.value)
        assert world.forms == []
    elif error:
        assert caught.value.kind is Kind.DENIED
        assert "access_denied" in str(caught.value)


@pytest.mark.parametrize("redirect", [{"state": None}, {"state": "other"}, {"state": ""}, {"code": None}, {"code": ""}])
def test_a_response_without_the_state_or_the_code_is_refused_and_not_shown(
    world: World, redirect: dict[str, Any]
) -> None:
    world.redirect = {"error_description": "canary", **redirect}
    with refused(Kind.RESPONSE) as caught:
        played(code_grant(client(world), None), world)
    assert "canary" not in str(caught.value)
    assert world.forms == []


def test_the_url_of_a_response_with_its_code_is_forgotten(world: World) -> None:
    steps = code_grant(client(world), None)
    request = next(steps)
    assert isinstance(request, Browse)
    url = f"{REDIRECT}?code=c&state={request.state}&iss={ISSUER}#x"
    before = sys.getrefcount(url)
    posted = steps.send(url)
    assert isinstance(posted, Post)
    assert posted.form is not None
    assert posted.form["code"] == "c"
    steps.close()
    assert sys.getrefcount(url) == before


@pytest.mark.parametrize("twice", ["state", "code", "iss", "error"])
def test_a_response_with_a_parameter_twice_is_refused(world: World, twice: str) -> None:
    steps = code_grant(client(world), None)
    back = world.redirected(steps.send(None).url)
    value = parse_qs(urlsplit(back).query).get(twice, ["x"])[0]
    with refused(Kind.RESPONSE):
        steps.send(f"{back}&{twice}={value}&{twice}={value}")


def test_a_url_that_is_not_that_of_the_redirect_is_refused(world: World) -> None:
    steps = code_grant(client(world), None)
    back = world.redirected(steps.send(None).url)
    with refused(Kind.RESPONSE):
        steps.send(back.replace("127.0.0.1:7000", "elsewhere.example"))


def test_the_text_of_a_refusal_is_printable_and_short(world: World) -> None:
    world.redirect = {"error": "access_denied", "error_description": "\x1b[31mno\x1b[0m " + "x" * 5000}
    with pytest.raises(AuthorizationError) as caught:
        played(code_grant(client(world), None), world)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_description_that_repeats_a_secret_is_not_shown(world: World) -> None:
    steps = client_credentials(
        client(world, registration=Registration(ISSUER, "c", "the-secret-of-c", "client_secret_post")), None
    )
    steps.send(None)
    with pytest.raises(AuthorizationError) as caught:
        steps.send(as_reply({"error": "invalid_client", "error_description": "not the-secret-of-c"}, 401))
    assert "the-secret-of-c" not in str(caught.value)
    assert caught.value.oauth_error == "invalid_client"


# the answers of the token endpoint


@pytest.mark.parametrize(
    "members",
    [
        {"access_token": None},
        {"access_token": 17},
        {"access_token": ""},
        {"access_token": "two words"},
        {"access_token": "line\nbreak"},
        {"access_token": "é"},
        {"token_type": "mac"},
        {"token_type": None},
        {"token_type": 5},
        {"token_type": "DPoP"},
    ],
)
def test_an_answer_without_a_token_that_can_be_sent_is_refused(world: World, members: dict[str, Any]) -> None:
    world.token = members
    assert kind_of(lambda: played(client_credentials(client(world), None), world)) is Kind.TOKEN


def test_a_bearer_token_is_refused_where_a_bound_one_was_requested(world: World) -> None:
    assert kind_of(lambda: played(client_credentials(client(world, dpop=True), None), world)) is Kind.TOKEN


@pytest.mark.parametrize(
    ("value", "expires_at"),
    [
        (60, NOW + 60),
        (60.5, NOW + 60.5),
        ("60", NOW + 60),
        (-5, NOW),
        (None, None),
        (True, None),
        ("soon", None),
        ("9" * 400, None),
        (10**310, NOW + 10**12),
        (-(10**310), NOW),
        ([], None),
    ],
)
def test_a_lifetime_may_be_text_or_missing(world: World, value: Any, expires_at: float | None) -> None:
    world.token = {"expires_in": value}
    assert played(client_credentials(client(world), None), world).expires_at == expires_at


def test_an_answer_to_a_refresh_may_leave_out_what_stays(world: World) -> None:
    before = Tokens("a", "bearer", 0.0, "kept-refresh", "kept scope")
    world.token = {"refresh_token": None, "token_type": "bEaReR"}
    tokens = played(refresh(client(world), before), world)
    assert (tokens.access, tokens.refresh, tokens.scope) == ("access-1", "kept-refresh", "kept scope")
    assert "scope" not in world.forms[0]


def test_a_refresh_without_resource_names_the_scope(world: World) -> None:
    played(refresh(client(world, resource=None), Tokens("a", "bearer", 0.0, "r", "api://x/read")), world)
    assert world.forms[0]["scope"] == "api://x/read"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_token_endpoint_that_is_down_is_unavailable(world: World, status: int) -> None:
    world.token_errors = [status]
    assert kind_of(lambda: played(client_credentials(client(world), None), world)) is Kind.UNAVAILABLE


def test_nothing_of_the_tokens_is_in_a_repr() -> None:
    shown = repr(
        [Tokens("canary-a", "bearer", None, "canary-r"), Registration(ISSUER, "c", "canary-s"), PrivateKey("canary-k")]
    )
    assert "canary" not in shown


def test_a_server_without_an_endpoint_is_named(world: World) -> None:
    del world.documents[SERVER_METADATA]["token_endpoint"]
    with refused(Kind.METADATA, match="token_endpoint"):
        played(client_credentials(client(world), None), world)


@pytest.mark.parametrize("secret", ["canary", None])
def test_a_client_secret_goes_to_no_other_issuer_than_that_of_the_stored_login(secret: str | None) -> None:
    known = Registration("https://before.example", "robot", secret)
    steps = register(ClientIdentity("robot", secret), ServerMetadata(ISSUER, f"{ISSUER}/token"), "", known, 0.0)
    if secret is None:
        with pytest.raises(StopIteration) as done:
            next(steps)
        assert done.value.value.issuer == ISSUER
    else:
        with pytest.raises(AuthorizationError, match=r"before\.example"):
            next(steps)
