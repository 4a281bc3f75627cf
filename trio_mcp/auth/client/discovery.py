"""Finding the authorization server of an MCP server (RFC 9728, RFC 8414; L-AUTH-3c, L-AUTH-4c, M-AUTH-1c).

A server that is down must not send a client down the legacy path: 404 and other 4xx mean that a document is not there, while 429
and 5xx end the search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...base.values import shown_url
from ...errors import AuthorizationError, AuthorizationErrorKind as Kind
from ...types import JsonObject
from ..uris import canonical, covers, origin, resource_documents, server_documents
from .steps import Get, Steps, fetched, shown, text_list, text_member


@dataclass(frozen=True, slots=True)
class ServerMetadata:
    """The metadata of an authorization server, as far as a client needs it (RFC 8414, 2).

    Attributes:
        auth_methods: how clients authenticate at the token endpoint; None if it does not say, which means basic.
        challenge_methods: the methods of PKCE; None if it does not say.
        reads_metadata_urls: a client id may be the URL of the client's metadata.
        promises_issuer: authorization responses name the issuer (RFC 9207).
    """

    issuer: str
    token_endpoint: str | None = None
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    auth_methods: tuple[str, ...] | None = None
    challenge_methods: tuple[str, ...] | None = None
    scopes: tuple[str, ...] = ()
    reads_metadata_urls: bool = False
    promises_issuer: bool = False

    @classmethod
    def of(cls, document: JsonObject, issuer: str) -> ServerMetadata:
        """Return the metadata in a document."""
        return cls(
            issuer=issuer,
            token_endpoint=text_member(document, "token_endpoint"),
            authorization_endpoint=text_member(document, "authorization_endpoint"),
            registration_endpoint=text_member(document, "registration_endpoint"),
            revocation_endpoint=text_member(document, "revocation_endpoint"),
            auth_methods=text_list(document, "token_endpoint_auth_methods_supported"),
            challenge_methods=text_list(document, "code_challenge_methods_supported"),
            scopes=text_list(document, "scopes_supported") or (),
            reads_metadata_urls=document.get("client_id_metadata_document_supported") is True,
            promises_issuer=document.get("authorization_response_iss_parameter_supported") is True,
        )

    @property
    def for_later(self) -> ServerMetadata:
        """The part that is needed after a login."""
        return ServerMetadata(
            self.issuer,
            self.token_endpoint,
            revocation_endpoint=self.revocation_endpoint,
            auth_methods=self.auth_methods,
        )

    def endpoint(self, name: str, url: str | None) -> str:
        """Return the URL of an endpoint. Raises `AuthorizationError` if the metadata has none."""
        if url is None:
            raise AuthorizationError(f"the metadata of {shown_url(self.issuer)} has no {name}", kind=Kind.METADATA)
        return url


@dataclass(frozen=True, slots=True)
class Resource:
    """A protected resource and its authorization server.

    Attributes:
        uri: as its metadata has it, character by character.
        scopes: those that it supports; None if it does not say.
    """

    uri: str
    server: ServerMetadata
    scopes: tuple[str, ...] | None = None


def discover(url: str, named: str | None, issuer: str | None, known: str | None = None) -> Steps[Resource]:
    """Return the resource at a URL.

    Args:
        named: the URL of its metadata in the challenge.
        issuer: the authorization server that the program insists on.
        known: the one of the stored registration, which is preferred if the server still lists it.

    Raises:
        AuthorizationError: a document is missing, malformed or about something else, or a server is down.
    """
    document = yield from first_document(lambda: resource_documents(url, named), "the metadata of the server")
    if document is None:
        # A server of 2025-03-26 is its own authorization server. Its endpoints are not guessed.
        here = origin(url)
        check_issuer([here], issuer)
        return Resource(canonical(url), (yield from server_metadata(here)))
    resource = text_member(document, "resource")
    if resource is None or not covers(resource, url):
        about = "no resource" if resource is None else shown(shown_url(resource))
        raise AuthorizationError(f"the metadata of {shown_url(url)} is about {about}", kind=Kind.RESOURCE)
    issuers = text_list(document, "authorization_servers")
    if not issuers:
        raise AuthorizationError(f"the metadata of {shown_url(url)} names no authorization server", kind=Kind.METADATA)
    check_issuer(issuers, issuer)
    chosen = issuer or (known if known in issuers else None) or issuers[0]
    return Resource(resource, (yield from server_metadata(chosen)), text_list(document, "scopes_supported"))


def check_issuer(issuers: Sequence[str], issuer: str | None) -> None:
    """Raise `AuthorizationError` unless the server trusts the issuer that the program insists on."""
    if issuer is not None and issuer not in issuers:
        listed = ", ".join(shown(shown_url(each)) for each in issuers[:3])
        raise AuthorizationError(f"the server does not trust {shown_url(issuer)} but {listed}", kind=Kind.ISSUER)


def server_metadata(issuer: str) -> Steps[ServerMetadata]:
    """Return the metadata of an authorization server. Raises `AuthorizationError`."""
    return ServerMetadata.of((yield from issuer_document(issuer)), issuer)


def issuer_document(issuer: str) -> Steps[JsonObject]:
    """Return the metadata of an authorization server as it is (RFC 8414, 3; OpenID Connect Discovery, 4).

    Raises:
        AuthorizationError: there is none, or it is that of another issuer (M-AUTH-1c).
    """
    name = shown(shown_url(issuer))
    document = yield from first_document(lambda: server_documents(issuer), f"the metadata of {name}")
    if document is None:
        places = ", ".join(server_documents(issuer))
        raise AuthorizationError(f"{name} publishes no metadata (RFC 8414): {places}", kind=Kind.METADATA)
    # As text: a slash counts (RFC 8414, 3.3).
    if document.get("issuer") != issuer:
        named = shown(str(document.get("issuer")))
        raise AuthorizationError(f"the metadata of {name} is that of another issuer: {named}", kind=Kind.ISSUER)
    return document


def first_document(places: Callable[[], list[str]], what: str) -> Steps[JsonObject | None]:
    """Return the first document that is there; None if there is none.

    Args:
        places: returns where it may be.
        what: names it in errors.
    """
    try:
        urls = places()
    except ValueError as error:
        raise AuthorizationError(str(error), kind=Kind.METADATA) from None
    for url in urls:
        reply = yield from fetched(Get(url))
        if reply.status == 200:
            return reply.document(what)
        if reply.status == 429 or reply.status >= 500:
            raise AuthorizationError(f"{what} cannot be read: HTTP {reply.status}", kind=Kind.UNAVAILABLE)
    return None
