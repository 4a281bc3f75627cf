"""Finding the authorization server of a server, without I/O (L-AUTH-3c, L-AUTH-4c, M-AUTH-1c)."""

from __future__ import annotations

from typing import Any

import pytest
from oauth_world import ISSUER, RESOURCE_METADATA, SERVER_METADATA, URL, World, played

from trio_mcp.auth import AuthorizationError
from trio_mcp.auth.client.discovery import Resource, discover
from trio_mcp.errors import AuthorizationErrorKind as Kind

ROOT = "https://mcp.example/.well-known/oauth-protected-resource"


def found(world: World, named: str | None = None, issuer: str | None = None, known: str | None = None) -> Resource:
    result = played(discover(URL, named, issuer, known), world)
    assert isinstance(result, Resource)
    return result


def refused(world: World, **options: Any) -> Kind:
    with pytest.raises(AuthorizationError) as caught:
        found(world, **options)
    return caught.value.kind


def test_the_url_in_the_challenge_comes_before_the_well_known_places(world: World) -> None:
    named = "https://mcp.example/metadata"
    world.documents[named] = world.resource
    assert found(world, named).uri == URL
    assert world.paths() == [named, SERVER_METADATA]


def test_the_place_of_the_path_comes_before_the_root(world: World) -> None:
    world.documents[ROOT] = world.documents.pop(RESOURCE_METADATA)
    assert found(world).server.issuer == ISSUER
    assert world.paths() == [RESOURCE_METADATA, ROOT, SERVER_METADATA]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 302])
def test_a_document_that_is_not_there_is_looked_for_elsewhere(world: World, status: int) -> None:
    world.documents[ROOT], world.documents[RESOURCE_METADATA] = world.resource, status
    assert found(world).uri == URL


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize("place", [RESOURCE_METADATA, SERVER_METADATA])
def test_a_server_that_is_down_ends_the_search(world: World, status: int, place: str) -> None:
    world.documents[place] = status
    assert refused(world) is Kind.UNAVAILABLE
    assert world.paths()[-1] == place


def test_without_any_document_the_origin_is_the_issuer_and_its_endpoints_are_not_guessed(world: World) -> None:
    del world.documents[RESOURCE_METADATA]
    assert refused(world) is Kind.METADATA
    here = "https://mcp.example"
    world.documents[f"{here}/.well-known/oauth-authorization-server"] = {**world.server, "issuer": here}
    assert found(world).server.issuer == here


@pytest.mark.parametrize(
    "resource",
    [
        "https://other.example/mcp",
        "https://mcp.example.evil.test/mcp",
        "https://mcp.example/mc",
        "http://mcp.example/mcp",
        "https://mcp.example:8443/mcp",
        "https://user@mcp.example/mcp",
        "https://mcp.example/mcp#part",
        "https://mcp.example/mcp?tenant=1",
        "https://mcp.example/other",
        "",
        17,
        None,
    ],
)
def test_metadata_about_another_resource_is_refused_before_the_issuer_is_asked(world: World, resource: Any) -> None:
    world.resource["resource"] = resource
    assert refused(world) is Kind.RESOURCE
    assert world.paths() == [RESOURCE_METADATA]


@pytest.mark.parametrize("resource", [URL, f"{URL}/", "https://mcp.example", "https://mcp.example/"])
def test_the_resource_is_kept_as_its_metadata_has_it(world: World, resource: str) -> None:
    world.resource["resource"] = resource
    assert found(world).uri == resource


@pytest.mark.parametrize("issuers", [None, [], "https://as.example", [17]])
def test_metadata_that_names_no_issuer_is_refused(world: World, issuers: Any) -> None:
    world.resource["authorization_servers"] = issuers
    assert refused(world) is Kind.METADATA


@pytest.mark.parametrize("issuer", [f"{ISSUER}/", "https://as.example.evil.test", "https://AS.example", None, 17])
def test_metadata_of_another_issuer_is_refused_and_a_slash_counts(world: World, issuer: Any) -> None:
    world.server["issuer"] = issuer
    assert refused(world) is Kind.ISSUER


def test_the_metadata_of_an_issuer_with_a_path_is_in_one_of_three_places(world: World) -> None:
    issuer = "https://as.example/tenant"
    world.resource["authorization_servers"] = [issuer]
    assert refused(world) is Kind.METADATA
    assert world.paths()[1:] == [
        "https://as.example/.well-known/oauth-authorization-server/tenant",
        "https://as.example/.well-known/openid-configuration/tenant",
        "https://as.example/tenant/.well-known/openid-configuration",
    ]


@pytest.mark.parametrize(
    ("issuer", "known", "chosen"),
    [
        (None, None, "https://as.example"),
        (None, "https://b.example", "https://b.example"),
        (None, "https://gone.example", "https://as.example"),
        ("https://b.example", "https://as.example", "https://b.example"),
    ],
)
def test_of_several_issuers_the_program_chooses_then_the_stored_registration(
    world: World, issuer: str | None, known: str | None, chosen: str
) -> None:
    world.resource["authorization_servers"] = [ISSUER, "https://b.example"]
    other = {**world.server, "issuer": "https://b.example"}
    world.documents["https://b.example/.well-known/oauth-authorization-server"] = other
    assert found(world, issuer=issuer, known=known).server.issuer == chosen


def test_an_issuer_that_the_server_does_not_list_is_refused(world: World) -> None:
    assert refused(world, issuer="https://elsewhere.example") is Kind.ISSUER
    assert world.paths() == [RESOURCE_METADATA]


@pytest.mark.parametrize("body", [b"<html>Log in</html>", b"[]", b'"text"', b"\xff", b"[" * 5000])
@pytest.mark.parametrize("place", [RESOURCE_METADATA, SERVER_METADATA])
def test_a_document_that_is_no_json_object_is_refused(world: World, body: bytes, place: str) -> None:
    world.documents[place] = body
    assert refused(world) is Kind.METADATA


@pytest.mark.parametrize("issuer", ["https://as.example?x=1", "https://as.example#x", "file:///etc/passwd", "nonsense"])
def test_an_issuer_that_is_no_url_of_one_is_not_requested(world: World, issuer: str) -> None:
    world.resource["authorization_servers"] = [issuer]
    assert refused(world) is Kind.METADATA
    assert world.paths() == [RESOURCE_METADATA]
