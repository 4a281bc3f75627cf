"""A server of this project as one that another library has written: it speaks one era only."""

from __future__ import annotations

from wire_terms import METHOD_NOT_FOUND, MODERN, UNSUPPORTED_VERSION

from trio_mcp import Server
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.session import MessageFacts


def one_era(server: Server, era: str) -> Server:
    """Let a server speak one era only, and return it."""

    @server.message_middleware
    def reject_other(message: MessageFacts) -> None:
        if era == "legacy" and message.method == "server/discover":
            raise RemoteProtocolError("what?", code=METHOD_NOT_FOUND)
        if era == "modern" and message.method == "initialize":
            data = {"supported": [MODERN], "requested": "x"}
            raise RemoteProtocolError("too old", code=UNSUPPORTED_VERSION, data=data)

    return server
