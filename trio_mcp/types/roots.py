"""Roots: the folders that a client works in. They are advice, not access control."""

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from .base import MAX_RECEIVED, MetaModel, Model, at_most
from .messages import RequestParams


class Root(MetaModel):
    """A folder, by its `file://` URI."""

    uri: str
    name: str | None = None

    @property
    def path(self) -> Path:
        """The folder on this machine. A server on another machine than its client has no such folder.

        Raises:
            ValueError: `uri` is not the `file://` URI of a local path.
        """
        from urllib.request import url2pathname  # noqa: PLC0415  loads the HTTP client and the mail parser of the library

        parts = urlsplit(self.uri)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
            raise ValueError(f"a root is the file:// URI of a local path, not {self.uri[:128]!r}")
        return Path(url2pathname(parts.path))


class ListRootsResult(MetaModel):
    """The answer of a client that was asked for its roots."""

    roots: Annotated[list[Root], at_most(MAX_RECEIVED)]


class ListRootsRequest(Model):
    """A question for the roots, as one of the input requests of a round (2026-07-28)."""

    method: Literal["roots/list"] = "roots/list"
    params: RequestParams | None = None
