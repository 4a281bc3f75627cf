"""`/metrics`: who may read it, and one page for all workers.

A worker that is scraped asks the others: each listens on a socket in the folder that they share, and sends its metrics to every
process of the same user that connects. One that does not answer in time is left out.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from trio_mcp import telemetry
from trio_mcp.base.logs import peer_logger
from trio_mcp.errors import ConfigurationError
from trio_mcp.http import HttpRequest, HttpResponse, HttpRoute, Metrics
from trio_mcp.http.options import UNIX, network_of
from trio_mcp.session import Service, observing
from trio_mcp.session.options import WORKPLACE

from ..link.link import is_own_user

if TYPE_CHECKING:
    from trio_mcp.telemetry.prometheus import Exposition

logger = peer_logger("trio_mcp.http")

LOOPBACK: Final = ("127.0.0.0/8", "::1/128", UNIX)
ANSWER_SECONDS: Final = 2.0
"""For how long another worker is waited for."""
MOST_BYTES: Final = 16 * 1024 * 1024
"""Of the metrics of one worker."""
FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")
"""Headers that proxies add, of which any may be the only one."""
BROWSER: Final = ("origin", "sec-fetch-site")
"""Headers that browsers send, and scrapers do not: a page must not read metrics, by whatever name it reaches the server."""
ANY_BROWSER: Final = (*BROWSER, "accept-language")
"""With one that browsers send over plain HTTP as well, to a name that an attacker has pointed at this machine (DNS rebinding)."""


class MetricsPage:
    """The page of one application.

    Args:
        believes_proxies: the address of a request is that of the client of a proxy.

    Raises:
        ConfigurationError: the client library of Prometheus is not installed.
    """

    def __init__(self, access: Metrics, *, believes_proxies: bool) -> None:
        self.access = access
        self._believes_proxies = believes_proxies
        names = (() if access.token else LOOPBACK) if access.networks is None else access.networks
        self._takes_unix = UNIX in names
        self._networks = [network_of(name) for name in names if name != UNIX]
        self._exposition: Exposition | None = None
        self._folder: Path | None = None
        self._name = ""
        try:
            self._module = telemetry.prometheus
        except ModuleNotFoundError as error:
            if error.name != "prometheus_client":
                raise
            raise ConfigurationError(
                "metrics need the package prometheus-client: pip install 'trio-mcp[prometheus]'"
            ) from None

    @property
    def route(self) -> HttpRoute:
        """The route of the page, which checks by itself who may read it."""
        return HttpRoute(self.access.path, self.show, public=True)

    @asynccontextmanager
    async def serving(self, service: Service) -> AsyncGenerator[None]:
        """Measure a service in the block, and answer the other workers."""
        exposition = self._exposition = self._module.Exposition(lambda: observing.readings_of(service))
        if service.calls.telemetry is None:
            service.calls.telemetry = telemetry.Telemetry(None)
        service.calls.telemetry.recorders.append(exposition.record)
        service.time_store(service.calls.telemetry)
        workplace = WORKPLACE.get()
        if workplace is None:
            yield
            return
        self._folder = workplace.folder
        self._name = hashlib.sha256(service.calls.node.encode()).hexdigest()[:12]
        with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM) as sock:
            path = self._folder / f"m{self._name}"
            await sock.bind(str(path))
            path.chmod(0o600)
            sock.listen(16)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.serve_listeners, self._pass_on, [trio.SocketListener(sock)])
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                    nursery.cancel_scope.cancel()

    async def show(self, request: HttpRequest) -> HttpResponse:
        """Return the metrics of this process and of the other workers."""
        refusal = self.refusal(request)
        if refusal is not None:
            return refusal
        assert self._exposition is not None, "the application serves"
        accept = request.headers.get("accept", "")
        if self._folder is None:
            await trio.lowlevel.checkpoint()
            page, media_type = self._exposition.page(accept)
        else:
            page, media_type = self._module.merged(await self._pages(self._folder, self._exposition), accept)
        return HttpResponse(page, content_type=media_type, headers={"cache-control": "no-store"})

    def refusal(self, request: HttpRequest) -> HttpResponse | None:
        """Return the response to a request that may not read the metrics; None to one that may."""
        access = self.access
        if access.public:
            return None
        if access.token is not None:
            given = request.headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {access.token}".encode()):
                text = "The metrics need their token: send `Authorization: Bearer TOKEN`."
                return HttpResponse(text, 401, headers={"www-authenticate": "Bearer"})
        if any(name in request.headers for name in (BROWSER if access.token else ANY_BROWSER)):
            return HttpResponse("The metrics are not for web pages.", 403)
        if access.token is None or access.networks is not None:
            # A proxy on this machine that is not trusted looks as this machine does, also if another one is trusted.
            takes_proxies = self._believes_proxies and access.networks is not None
            passed_on = not takes_proxies and any(name in request.headers for name in FORWARDED)
            if passed_on or not self._is_near(request.client):
                text = (
                    "The metrics are for other addresses: set a token, or name this network in Metrics(networks=...)."
                )
                return HttpResponse(text, 403)
        return None

    def _is_near(self, client: str | None) -> bool:
        if client is None:
            return self._takes_unix
        try:
            address = ip_address(client)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None) or address
        return any(mapped in network for network in self._networks)

    # the other workers

    async def _pass_on(self, stream: trio.SocketStream) -> None:
        if self._exposition is not None and is_own_user(stream.socket):
            with trio.move_on_after(ANSWER_SECONDS):
                await stream.send_all(self._exposition.passed_on())

    async def _pages(self, folder: Path, exposition: Exposition) -> dict[str, bytes]:
        """Return the metrics of all workers, by their names."""
        pages = {self._name: exposition.passed_on()}
        with trio.move_on_after(ANSWER_SECONDS) as scope:
            async with trio.open_nursery() as nursery:
                for path in sorted(folder.glob("m*")):  # noqa: ASYNC240  a folder of a few sockets
                    if path.name[1:] != self._name:
                        nursery.start_soon(self._fetch, path, pages)
        if scope.cancelled_caught:
            logger.warning("a worker has not sent its metrics within %g seconds", ANSWER_SECONDS)
        return pages

    async def _fetch(self, path: Path, pages: dict[str, bytes]) -> None:
        page = bytearray()
        try:
            async with await trio.open_unix_socket(str(path)) as stream:
                if not is_own_user(stream.socket):
                    return
                async for part in stream:
                    page += part
                    if len(page) > MOST_BYTES:
                        return
        except OSError:
            # It ends, and its socket goes.
            return
        except trio.BrokenResourceError:
            return
        if page:
            pages[path.name[1:]] = bytes(page)
