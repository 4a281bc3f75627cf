"""URLs of resources and issuers: canonical forms, what a resource covers, and where metadata is."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from trio_mcp.auth.uris import (
    canonical,
    covers,
    metadata_place,
    origin,
    resource_documents,
    server_documents,
    split_url,
)

SEGMENTS = st.lists(st.sampled_from(["a", "b", "ab", "a%20b"]), max_size=3)


@pytest.mark.parametrize(
    ("url", "form"),
    [
        ("https://mcp.example.com", "https://mcp.example.com"),
        ("https://mcp.example.com/", "https://mcp.example.com"),
        ("HTTPS://MCP.example.com:443/Mcp", "https://mcp.example.com/Mcp"),
        ("https://mcp.example.com:8443/mcp/", "https://mcp.example.com:8443/mcp/"),
        ("http://[::1]:80/mcp?x=Y#f", "http://[::1]/mcp?x=Y"),
        ("http://127.0.0.1:8000/mcp", "http://127.0.0.1:8000/mcp"),
    ],
)
def test_a_resource_has_one_canonical_form(url: str, form: str) -> None:
    assert canonical(url) == form == canonical(form)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mcp.example.com",
        "ftp://mcp.example.com",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://",
        "https://user@mcp.example.com",
        "https://user:secret@mcp.example.com",
        "https://mcp.example.com\n/x",
        "https://mcp.example.com/a b",
        "https:\\\\mcp.example.com",
        "https://mcp.example.com\\@evil.example",
        "https://mcp%2eexample.com",
        "https://[::1",
        "https://[fe80::1%25eth0]/",
        "https://mcp.example.com:99999",
        "https://mcp.example.com:0",
        "https://mcp.example.com:x",
        "https://éxample.com",
        "https://mcp.example.com/" + "x" * 2_048,
    ],
)
def test_an_invalid_url_of_a_server_is_rejected(url: str) -> None:
    with pytest.raises(ValueError):
        split_url(url)


def test_the_error_about_a_url_shows_no_secret() -> None:
    with pytest.raises(ValueError) as caught:
        split_url("https://canary-user:canary-word@mcp.example.com/x?code=canary-code")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("resource", "url", "covered"),
    [
        ("https://a.example/mcp", "https://a.example/mcp", True),
        ("https://a.example/mcp/", "https://a.example/mcp", True),
        ("https://a.example/mcp", "https://a.example/mcp/", True),
        ("https://a.example", "https://a.example/mcp", True),
        ("https://A.example:443/", "https://a.example/mcp/x", True),
        ("https://a.example/mcp", "https://a.example/mcp/x", True),
        ("https://a.example/mcp", "https://a.example/mcpx", False),
        ("https://a.example/mcp/x", "https://a.example/mcp", False),
        ("http://a.example/mcp", "https://a.example/mcp", False),
        ("https://a.example:8443/mcp", "https://a.example/mcp", False),
        ("https://b.example/mcp", "https://a.example/mcp", False),
        ("https://a.example.evil.example", "https://a.example/mcp", False),
        ("https://a.example/mcp?x=1", "https://a.example/mcp?x=1", True),
        ("https://a.example/mcp", "https://a.example/mcp?x=1", False),
        ("https://a.example/mcp?x=1", "https://a.example/mcp", False),
        ("https://a.example/mcp#x", "https://a.example/mcp", False),
        ("https://a.example#", "https://a.example/mcp", False),
        ("https://u@a.example/mcp", "https://a.example/mcp", False),
        ("https://a.example/mcp/..", "https://a.example/mcp/../x", False),
        ("https://a.example/mcp", "https://a.example/mcp/../x", False),
        ("https://a.example/mcp", "https://a.example/mcp/%2e%2E/x", False),
        ("https://a.example/mcp", "https://a.example/mcp/..", False),
        ("https://a.example/mcp", "https://a.example/mcp/%2fx", False),
        ("https://a.example/mcp", "https://a.example/mcp/%5cx", False),
        ("https://a.example/mcp", "https://a.example/mcp//x", False),
        ("", "https://a.example/mcp", False),
    ],
)  # fmt: skip
def test_metadata_is_about_its_resource_and_what_is_in_the_folder_of_it(resource: str, url: str, covered: bool) -> None:
    assert covers(resource, url) is covered


@given(SEGMENTS, SEGMENTS, st.booleans(), st.booleans())
def test_a_resource_covers_a_path_that_begins_with_its_segments(
    above: list[str], below: list[str], slash: bool, other_slash: bool
) -> None:
    resource = "https://a.example" + "".join(f"/{each}" for each in above) + "/" * slash
    url = "https://a.example" + "".join(f"/{each}" for each in below) + "/" * other_slash
    assert covers(resource, url) is (below[: len(above)] == above)


def test_metadata_of_a_server_is_looked_for_where_the_challenge_says_then_below_the_path_then_at_the_root() -> None:
    at_path = "https://a.example/.well-known/oauth-protected-resource/mcp"
    at_root = "https://a.example/.well-known/oauth-protected-resource"
    assert resource_documents("https://a.example/mcp", "https://m.example/x") == [
        "https://m.example/x",
        at_path,
        at_root,
    ]
    assert resource_documents("https://a.example/mcp", at_path) == [at_path, at_root]
    assert resource_documents("https://a.example/") == [at_root]
    assert resource_documents("https://a.example/mcp?x=1") == [at_path + "?x=1", at_root]
    assert metadata_place("https://a.example/mcp/") == "/.well-known/oauth-protected-resource/mcp/"


def test_metadata_of_an_issuer_is_looked_for_in_the_order_of_the_specification() -> None:
    oauth, openid = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
    assert server_documents("https://as.example") == [f"https://as.example{each}" for each in (oauth, openid)]
    assert server_documents("https://as.example/") == server_documents("https://as.example")
    expected = [f"https://as.example{oauth}/t", f"https://as.example{openid}/t", f"https://as.example/t{openid}"]
    assert server_documents("https://as.example/t") == server_documents("https://as.example/t/") == expected
    for issuer in ("https://as.example?x=1", "https://as.example#x", "https://u@as.example", "as.example"):
        with pytest.raises(ValueError):
            server_documents(issuer)


def test_an_origin_has_no_default_port_and_keeps_the_brackets_of_an_address() -> None:
    assert origin("https://A.example:443/x") == "https://a.example"
    assert origin("http://[::1]:8000/x") == "http://[::1]:8000"
