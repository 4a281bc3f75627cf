"""The replies of authorization servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ..errors import AuthorizationError, AuthorizationErrorKind, RemoteProtocolError
from ..protocol.strict_json import loads
from ..types import JsonObject

MAX_REPLY: Final = 64 * 1024
"""Bytes of a body."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply of an authorization server, or the metadata of a resource. Its repr shows neither body nor headers.

    Attributes:
        status: of HTTP; a redirect is a reply like others, and not followed.
        headers: names in lower case; the values of one name are joined with a comma.
        body: at most `MAX_REPLY` bytes.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    body: bytes = field(default=b"", repr=False)

    def document(self, what: str, kind: AuthorizationErrorKind = AuthorizationErrorKind.METADATA) -> JsonObject:
        """Return the JSON object in the body.

        Args:
            what: the document, for the error.

        Raises:
            AuthorizationError: of this kind, if the body is not one.
        """
        try:
            value = loads(self.body)
        except RemoteProtocolError:
            # Its text may quote the body, in which a token may be.
            value = None
        if not isinstance(value, dict):
            raise AuthorizationError(f"{what} is not a JSON object", kind=kind)
        return value
