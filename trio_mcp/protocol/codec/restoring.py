"""The terms of a request as another process of the server can restore them, and what is stored for that."""

from __future__ import annotations

from typing import Self

from ...base.named_tuples import NamedTuple
from ...types import ClientCapabilities, Implementation, JsonObject, ProgressToken
from ..jsonrpc import Encoded
from ..revisions import MODERN, Era
from .reading import Codec, LogThreshold, RequestTerms, codec_for


class StoredTerms(NamedTuple):
    """What is stored of the terms of a request. Nothing in it is a secret of the client."""

    revision: str
    capabilities: JsonObject
    client_info: JsonObject | None
    progress_token: ProgressToken | None

    @classmethod
    def of(cls, terms: RequestTerms) -> Self:
        """Return what is stored of these terms."""
        info = terms.client_info
        return cls(
            terms.codec.revision.name,
            terms.client_capabilities.wire(),
            None if info is None else info.wire(),
            terms.progress_token,
        )

    def terms(self) -> RequestTerms:
        """Return the terms, with logging disabled and an empty `_meta`.

        Raises:
            RemoteProtocolError: the revision is not supported any more.
        """
        codec = codec_for(self.revision)
        return RequestTerms(
            codec,
            ClientCapabilities.model_validate(self.capabilities),
            None if self.client_info is None else Implementation.model_validate(self.client_info),
            LogThreshold(None),
            self.progress_token,
            Encoded(b"{}"),
            asks_in_rounds=codec.revision.era is Era.MODERN,
        )


def stored_codec() -> Codec:
    """Return the codec of what is stored of a task, whichever revision shows it: the newest, since older ones lack members."""
    return codec_for(MODERN)
