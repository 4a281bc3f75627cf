"""The clients of an `OAuthProxy`: what they register, and what the metadata behind the URL of a client id says."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from ...base.shared_limits import FETCHED_CLIENTS
from ...errors import AuthorizationError
from ...runtime.quota import Quota
from ...types import JsonObject, JsonValue
from ..addresses import Reach, check_url, reach_from
from ..fetching import fetch
from ..uris import may_move
from .rejections import Rejected, counted
from .sealed import Box, Client

MAX_REDIRECT_URIS: Final = 8
MAX_REGISTERED: Final = 600
"""Characters of all redirect URIs of a client: they are in its client id, and so in a URL."""
MAX_NAME: Final = 64
METADATA_SECONDS: Final = 5.0
_JSON: Final = re.compile(r"application/([\w.-]++\+)?json\s*+(;|$)", re.IGNORECASE)


class Clients:
    """Registers and finds clients.

    Args:
        box: seals client ids.
        resource: a server on this machine may have clients whose metadata is on it.
    """

    def __init__(self, box: Box, resource: str) -> None:
        self._box = box
        self._reach = reach_from(urlsplit(resource).hostname or "")
        # Anyone can name a URL, and one that never answers.
        self._fetches = Quota(FETCHED_CLIENTS)

    def register(self, document: JsonValue) -> JsonObject:
        """Return the answer to a registration (RFC 7591). Raises `Rejected`."""
        client = _client_in(document)
        return {
            "client_id": self._box.seal(client),
            "client_name": client.name,
            "redirect_uris": [*client.redirect_uris],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }

    def check(self, client_id: str) -> None:
        """Raise `Rejected` for a client id that is none; the metadata at a URL is not fetched again."""
        if not is_metadata_url(client_id) and self._box.open(Client, client_id) is None:
            raise Rejected("the client is not registered here; register it again", "invalid_client", 401)

    async def find(self, client_id: str, browser: str | None) -> Client:
        """Return a client. Raises `Rejected`.

        Args:
            browser: the address of the browser; None if it is not known.
        """
        if is_metadata_url(client_id):
            with counted(self._fetches, browser):
                return await self._fetched(client_id)
        client = self._box.open(Client, client_id)
        if client is None:
            raise Rejected(
                "The program that sent you here is not registered here, or its registration has expired. Log out there, and "
                "log in again."
            )
        return client

    async def _fetched(self, url: str) -> Client:
        """Return the client that the document at its id describes (draft-ietf-oauth-client-id-metadata-document)."""
        try:
            reply = await fetch(url, self._reach, seconds=METADATA_SECONDS)
            is_metadata = reply.status == 200 and _JSON.match(reply.headers.get("content-type", "")) is not None
            document = reply.document("the metadata of the client") if is_metadata else {}
        except AuthorizationError:
            document = {}
        # It must be JSON and name itself, so that a page that shows what others upload does not serve for a client.
        if document.get("client_id") != url:
            raise Rejected("The metadata of the program that sent you here cannot be read, or is not its own.")
        return _client_in(document)


def is_metadata_url(client_id: str) -> bool:
    """Return whether a client id is the URL of metadata, which has a path without dots."""
    return _is_secure(client_id) and (path := urlsplit(client_id).path) not in ("", "/") and not may_move(path)


def _client_in(document: JsonValue) -> Client:
    if not isinstance(document, dict):
        raise Rejected("the metadata of a client is a JSON object", "invalid_client_metadata")
    name, uris = document.get("client_name", ""), document.get("redirect_uris")
    if not isinstance(uris, list) or not 0 < len(uris) <= MAX_REDIRECT_URIS:
        why = f"redirect_uris is a list of 1 to {MAX_REDIRECT_URIS} URIs"
        raise Rejected(why, "invalid_redirect_uri")
    if not isinstance(name, str):
        raise Rejected("client_name is text", "invalid_client_metadata")
    checked = tuple(_redirect_uri(each) for each in uris)
    if sum(map(len, checked)) > MAX_REGISTERED:
        why = f"the redirect URIs have more than {MAX_REGISTERED} characters together"
        raise Rejected(why, "invalid_redirect_uri")
    return Client(name=name[:MAX_NAME], redirect_uris=checked)


def _redirect_uri(uri: JsonValue) -> str:
    if not isinstance(uri, str) or not _is_secure(uri):
        why = "a redirect URI begins with https://, or with http:// and a loopback address, and has no fragment"
        raise Rejected(why, "invalid_redirect_uri")
    return uri


def _is_secure(url: str) -> bool:
    """Return whether a URL is of https, or of http on this machine (RFC 8252, 7.3), without a fragment (RFC 6749, 3.1.2)."""
    try:
        check_url(url, Reach.CONFIGURED)
    except AuthorizationError:
        return False
    return "#" not in url
