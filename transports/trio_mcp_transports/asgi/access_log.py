"""The access log: one record for each request or WebSocket, when it is over.

It is kept by the application and not by the ASGI server, so that it is the same under all of them, and knows what the request was
for. It has no query, no header and no body: those hold secrets.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from typing import Final

from trio_mcp.base.logs import LOG_CONTEXT, LogContext
from trio_mcp.base.values import JsonValue, one_line

from .access import Headers

logger: Final = logging.getLogger("trio_mcp.access")

ID_HEADER: Final = "x-request-id"
ID: Final = re.compile(r"[0-9A-Za-z._:-]{1,64}")


class AccessRecord:
    """What is logged of one request.

    Args:
        given: an id that a trusted proxy has given the request.

    Attributes:
        id: of the request, for log records and for the header `X-Request-Id` of the response.
        principal: who sent it; set when that is known.
        rpc: the method of the JSON-RPC message in it; set when it has been read.
    """

    __slots__ = ("_began", "_client", "_method", "_path", "id", "principal", "rpc")

    def __init__(self, given: str | None) -> None:
        self.id = given if given is not None and ID.fullmatch(given) else secrets.token_hex(8)
        self.principal: str | None = None
        self.rpc: str | None = None
        self._began = time.monotonic()
        self.describe("", "", None)

    def describe(self, method: str, path: str, client: str | None) -> None:
        """Note what the client has sent, which trusted proxies tell."""
        self._method, self._path = one_line(method), one_line(path)
        self._client = None if client is None else one_line(client)

    @property
    def headers(self) -> Headers:
        """What it adds to the response."""
        return [(ID_HEADER.encode(), self.id.encode())]

    def name_principal(self, principal: str | None) -> None:
        """Note who sent the request; records that are logged for it from now on have it."""
        self.principal = principal
        LOG_CONTEXT.set(LogContext(self.id, principal))

    def end(self, status: int | None, size: int, *, is_complete: bool) -> None:
        """Log the request, which is over.

        Args:
            status: of the response; None if there was none.
            size: bytes of its body that were sent.
        """
        # It may end in the context of anything: of the actor that has answered, say.
        token = LOG_CONTEXT.set(LogContext(self.id, self.principal))
        try:
            self._log(status, size, is_complete=is_complete)
        finally:
            LOG_CONTEXT.reset(token)

    def _log(self, status: int | None, size: int, *, is_complete: bool) -> None:
        seconds = time.monotonic() - self._began
        fields: dict[str, JsonValue] = {
            "method": self._method,
            "path": self._path,
            "status": status,
            "bytes": size,
            "seconds": round(seconds, 6),
            "client": self._client,
            "rpc": None if self.rpc is None else one_line(self.rpc),
            "complete": is_complete,
        }
        logger.info(
            '%s "%s %s" %s %d bytes in %.1f ms%s%s%s [%s]',
            self._client or "-",
            self._method,
            self._path,
            status or "-",
            size,
            seconds * 1000,
            f" {fields['rpc']}" if self.rpc else "",
            f" {one_line(self.principal)}" if self.principal else "",
            "" if is_complete else " (the client left)",
            self.id,
            extra={"fields": {"http": fields, **({"principal": one_line(self.principal)} if self.principal else {})}},
        )


def check_shown() -> None:
    """Warn if no handler would write the records."""
    if not logger.isEnabledFor(logging.INFO):
        logger.warning(
            "access_log=True, but records of the level INFO are not shown: call trio_mcp.configure_logging('info'), or set the "
            "level of the logger %s",
            logger.name,
        )
