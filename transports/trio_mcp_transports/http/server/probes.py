"""`/health` and `/ready`: probes for supervisors and load balancers, answered for any Host and without credentials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from trio_mcp.http import HttpOptions

from ...asgi.messages import Headers, Scope, Send, routes_of

Probe: TypeAlias = Callable[[], tuple[int, bytes]]
"""Returns a status and a word."""

HEADERS: Final[Headers] = ((b"content-type", b"text/plain"), (b"cache-control", b"no-store"))


class Probes:
    """The probes of one application; they open nothing and keep nothing.

    Args:
        ready: returns whether calls are taken, as a status and a word.
    """

    def __init__(self, options: HttpOptions, ready: Probe) -> None:
        self._probes: dict[str, Probe] = {}
        if options.health_path is not None:
            self._probes[options.health_path] = lambda: (200, b"ok")
        if options.ready_path is not None:
            self._probes[options.ready_path] = ready
        # A probe may come through the proxy or past it.
        root = options.root_path.rstrip("/")
        self._probes |= {root + path: probe for path, probe in self._probes.items()}

    async def serve(self, scope: Scope, send: Send) -> bool:
        """Answer a request if it is a probe's; return whether it is."""
        probe = next((self._probes[path] for path in routes_of(scope) if path in self._probes), None)
        if probe is None:
            return False
        status, word = probe() if scope["method"] in ("GET", "HEAD") else (405, b"GET")
        headers = [*HEADERS, (b"content-length", b"%d" % len(word))]
        if status == 405:
            headers.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else word})
        return True
