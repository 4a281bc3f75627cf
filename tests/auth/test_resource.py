"""`ProtectedResource`: its metadata, its challenges, required and implied scopes, and what it cannot be made with."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from trio_mcp import Caller
from trio_mcp.auth import CredentialsRejected, ProtectedResource, any_of, jwt, static
from trio_mcp.testing import TestIssuer

RESOURCE = "https://mcp.example.com/mcp"
METADATA = "https://mcp.example.com/.well-known/oauth-protected-resource"
AT = {"resource_metadata": f"{METADATA}/mcp"}
PREFIXED = "https://mcp.example.com/tools/.well-known/oauth-protected-resource"
ISSUER = TestIssuer()


def protected(resource: str = RESOURCE, **options: Any) -> ProtectedResource:
    return ProtectedResource(resource, jwt(ISSUER.url, keys=ISSUER.jwks), **options)


async def caller(hook: ProtectedResource, *scopes: str, audience: str = RESOURCE) -> Caller | None:
    return await hook({"authorization": f"Bearer {ISSUER.token('alice', scopes=scopes, audience=audience)}"})


async def test_tokens_must_be_issued_for_the_resource() -> None:
    hook = protected()
    hook.check()
    assert await caller(hook) is not None
    with pytest.raises(CredentialsRejected):
        await caller(hook, audience="https://mcp.example.com")
    other = ProtectedResource(RESOURCE, jwt(ISSUER.url, keys=ISSUER.jwks, audience="client-id"))
    assert await caller(other, audience="client-id") is not None


async def test_every_request_needs_the_required_scopes() -> None:
    hook = protected(required=["read", "write"])
    with pytest.raises(CredentialsRejected) as caught:
        await caller(hook, "read")
    assert (caught.value.status, caught.value.error) == (403, "insufficient_scope")
    assert set(caught.value.scopes) == {"read", "write"}
    assert await caller(hook, "read", "write", "more") is not None


async def test_a_scope_implies_others_however_deep_and_in_a_circle() -> None:
    hook = protected(required=["read"], implied={"admin": ["write"], "write": ["read", "list"], "list": ["write"]})
    for _ in range(2):  # from the cache, too
        assert (await caller(hook, "admin")).scopes == {"admin", "write", "read", "list"}
    with pytest.raises(CredentialsRejected):
        await caller(hook, "other")


async def test_implied_scopes_count_for_listed_tokens_too() -> None:
    token = "a-long-random-token"
    hook = ProtectedResource(RESOURCE, static({token: Caller("bot", ["admin"])}), implied={"admin": ["read"]})
    assert (await hook({"authorization": f"Bearer {token}"})).scopes == {"admin", "read"}


def test_the_metadata_is_at_the_path_of_the_resource_and_at_the_root() -> None:
    hook = protected(required=["read"], name="Notes", documentation="https://docs.example.com")
    documents = hook.documents([])
    assert list(documents) == ["/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"]
    assert len(set(documents.values())) == 1
    assert json.loads(documents["/.well-known/oauth-protected-resource"]) == {
        "resource": RESOURCE,
        "authorization_servers": ["https://issuer.test"],
        "scopes_supported": ["read"],
        "bearer_methods_supported": ["header"],
        "resource_name": "Notes",
        "resource_documentation": "https://docs.example.com",
    }


@pytest.mark.parametrize(
    ("options", "supported"),
    [
        ({}, None),
        ({"required": ["b", "a"]}, ["a", "b"]),
        ({"required": ["a"], "scopes": ["c", "a"]}, ["a", "c"]),
        ({"required": ["a"], "scopes": "all"}, ["a", "of-a-tool"]),
        ({"required": ["a"], "scope_prefix": "api://x/"}, ["api://x/a"]),
    ],
)
def test_the_metadata_lists_the_scopes_that_clients_may_ask_for(options: Any, supported: list[str] | None) -> None:
    document = json.loads(protected(**options).documents(["of-a-tool"])["/.well-known/oauth-protected-resource"])
    assert document.get("scopes_supported") == supported


@pytest.mark.parametrize(
    ("options", "error", "scopes", "root", "parameters"),
    [
        ({}, "", [], "", AT),
        ({"required": ["b", "a"]}, "", [], "", {"scope": "a b", **AT}),
        ({"required": ["a"]}, "invalid_token", [], "", {"error": "invalid_token", "scope": "a", **AT}),
        ({"required": ["a"]}, "invalid_request", [], "", {"error": "invalid_request", **AT}),
        ({"required": ["a"]}, "insufficient_scope", ["c", "b"], "", {"error": "insufficient_scope", "scope": "a b c", **AT}),
        ({"scope_prefix": "x/"}, "insufficient_scope", ["b"], "", {"error": "insufficient_scope", "scope": "x/b", **AT}),
        ({"metadata_url": "https://other.example/x"}, "", [], "/tools", {"resource_metadata": "https://other.example/x"}),
        ({"resource": "https://mcp.example.com/tools/mcp"}, "", [], "/tools", {"resource_metadata": PREFIXED}),
        ({"resource": "https://mcp.example.com"}, "", [], "", {"resource_metadata": METADATA}),
    ],
)  # fmt: skip
def test_a_challenge_says_what_is_needed_and_where_the_metadata_is(
    options: Any, error: str, scopes: list[str], root: str, parameters: dict[str, str]
) -> None:
    assert protected(**options).challenge(error, scopes, root) == parameters


def test_without_an_issuer_or_with_metadata_elsewhere_there_is_no_document() -> None:
    listed = ProtectedResource(RESOURCE, static({"a-long-random-token": "bot"}))
    assert (listed.documents([]), listed.challenge()) == ({}, {})
    assert protected(metadata_url="https://other.example/x").documents([]) == {}
    elsewhere = ProtectedResource(RESOURCE, static({"a-long-random-token": "bot"}), issuers=["https://login.test"])
    assert len(elsewhere.documents([])) == 2


def test_all_issuers_of_any_of_are_in_the_metadata() -> None:
    hook = ProtectedResource(
        RESOURCE, any_of(jwt("https://a.test"), jwt("https://b.test", realm="b"), static({"a-long-random-token": "c"}))
    )
    document = json.loads(hook.documents([])["/.well-known/oauth-protected-resource"])
    assert document["authorization_servers"] == ["https://a.test", "https://b.test"]


async def test_scopes_in_tokens_have_the_prefix_or_not() -> None:
    hook = protected(scope_prefix="api://x/", required=["read"], implied={"write": ["read"]})
    for scope in ("read", "api://x/read", "api://x/write"):
        assert "read" in (await caller(hook, scope)).scopes


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"resource": "https://MCP.example.com/mcp"}, "'https://mcp.example.com/mcp'"),
        ({"resource": "https://mcp.example.com/"}, "'https://mcp.example.com'"),
        ({"resource": "https://mcp.example.com:443/mcp"}, "'https://mcp.example.com/mcp'"),
        ({"resource": "https://mcp.example.com/mcp#x"}, "'https://mcp.example.com/mcp'"),
        ({"resource": "http://mcp.example.com/mcp"}, "https://"),
        ({"resource": "mcp.example.com/mcp"}, "https://"),
        ({"scopes": "read"}, "list"),
        ({"required": "read"}, "list"),
        ({"implied": {"a": "b"}}, "implied"),
        ({"required": ["offline_access"]}, "offline_access"),
        ({"scopes": ["a b"]}, "scope"),
        ({"issuers": "https://login.test"}, "list"),
        ({"issuers": ["http://login.test"]}, "https://"),
        ({"name": 7}, "name"),
        ({"metadata_url": "not a url"}, "URL"),
        ({"scope_prefix": None}, "scope_prefix"),
        ({"scope_prefix": "a b"}, "scope_prefix"),
    ],
)
def test_a_wrong_setting_is_an_error_that_says_what_to_write(options: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        protected(**options)
    with pytest.raises(TypeError, match="verifier"):
        ProtectedResource(RESOURCE, ISSUER)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("resource", "endpoints", "fits"),
    [
        ("https://h.test/mcp", ["/mcp"], True),
        ("https://h.test/tools/mcp", ["/mcp"], True),
        ("https://h.test/mcp", ["/other", "/mcp"], True),
        ("https://h.test", ["/"], True),
        ("https://h.test/tools", ["/"], True),
        ("https://h.test", ["/mcp"], False),
        ("https://h.test/xmcp", ["/mcp"], False),
        ("https://h.test/mcp/x", ["/mcp"], False),
        ("https://h.test/a/mcp", ["/b/mcp"], False),
    ],
)
def test_the_resource_is_where_the_server_is(resource: str, endpoints: list[str], fits: bool) -> None:
    hook = protected(resource)
    if fits:
        hook.check_endpoints(endpoints, [])
    else:
        with pytest.raises(ValueError, match="path="):
            hook.check_endpoints(endpoints, [])


@pytest.mark.parametrize(
    ("resource", "root", "fits"),
    [
        ("https://h.test/tools/mcp", "/tools", True),
        ("https://h.test/tools/mcp", "/other", False),
        ("https://h.test/mcp", "/tools", False),
        ("https://h.test/x/tools/mcp", "/tools", False),
    ],
)
def test_the_resource_is_below_the_prefix_of_the_proxy(resource: str, root: str, fits: bool) -> None:
    hook = protected(resource)
    if fits:
        hook.check_endpoints(["/mcp"], [], root)
    else:
        with pytest.raises(ValueError, match=f"root_path=.*|{root}/mcp"):
            hook.check_endpoints(["/mcp"], [], root)


def test_a_scope_of_a_tool_that_clients_cannot_learn_of_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        protected(scopes="all").check_endpoints(["/mcp"], ["write"])
        protected(scopes=["write"]).check_endpoints(["/mcp"], ["write"])
        assert caplog.records == []
        protected(scopes=["read"]).check_endpoints(["/mcp"], ["write"])
    (record,) = caplog.records
    assert "write" in record.getMessage()
