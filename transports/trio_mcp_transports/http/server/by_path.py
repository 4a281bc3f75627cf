"""Several servers in one application, each below a separate path prefix."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final, TypedDict

import trio

from trio_mcp.http import Authenticate, HttpLimits, HttpOptions, Metrics, Tls
from trio_mcp.http.routes import HEALTH_PATH, READY_PATH, check_path
from trio_mcp.server.http_settings import on_asyncio
from trio_mcp.session import SharedServer
from trio_mcp.session.event_loop import works_on_asyncio
from trio_mcp.session.transport import facts_of
from trio_mcp.storage import EventStore

from ...asgi.access import HttpRejection, check_access
from ...asgi.access_log import check_shown
from ...asgi.authentication import WELL_KNOWN
from ...asgi.requests import Request
from ...asgi.responses import Response
from .app import McpApp
from .entrance import ServedApp
from .lifespan import MountedApp, in_residence
from .routes import below, not_found_at

# What a server says of serving it over HTTP, and what the serving call says: together they are how it is served.


class HttpKeywords(TypedDict, total=False):
    """The options of a call that serves over HTTP.

    But for `event_store` they are those of `HttpOptions`, which has what they mean. What is not given, or is None or empty, is
    as the server has it, apart from `path`, where None stands for no Streamable HTTP and no WebSocket.
    """

    path: str | None
    sse_path: str | None
    message_path: str | None
    allowed_hosts: Sequence[str]
    allowed_origins: Sequence[str]
    authenticate: Authenticate | None
    limits: HttpLimits | None
    root_path: str | None
    trusted_proxies: Sequence[str]
    metrics: bool | Metrics | None
    access_log: bool | None
    sessions: bool | None
    event_store: EventStore | None
    """Stores the messages of legacy streams for clients that resume them; by default in memory."""


NOT_GIVEN: Final[tuple[object, ...]] = (None, (), [])


def served_options(server: object, keywords: HttpKeywords, tls: Tls | None = None) -> HttpOptions:
    """Return how a server is served.

    What was not given is as the server has it. So the authentication of a server can be replaced, and not be dropped.

    Raises:
        ValueError, TypeError: see `HttpOptions`.
    """
    given: Mapping[str, object] = {**keywords, "tls": tls}
    changes = {
        name: value
        for name, value in given.items()
        if name != "event_store" and (name == "path" or value not in NOT_GIVEN)
    }
    options: HttpOptions = replace(options_of(server), **changes)  # type: ignore[arg-type]  # HttpOptions checks each
    if "authenticate" in changes and facts_of(server).on_asyncio:
        return on_asyncio(options)
    return options


def options_of(server: object) -> HttpOptions:
    """Return what a server says; a proxy, or a server of another project, has nothing to say."""
    own = getattr(server, "http", None)
    return own if isinstance(own, HttpOptions) else HttpOptions()


OF_PROCESS: Final = ("tls", "root_path", "trusted_proxies", "access_log")
"""The options that servers at one address share."""


class McpApps(ServedApp):
    """The application of several servers; `asgi_app` returns one for a mapping.

    Each server is served as it would be alone, with the `root_path` of its prefix: its endpoints, custom routes, authentication,
    hosts, limits and sessions are its own.

    Args:
        apps: the applications of the servers by their prefixes, which are empty or begin with a slash.
        options: those of the process.
    """

    def __init__(self, apps: Mapping[str, McpApp], options: HttpOptions) -> None:
        name = ", ".join(app.server.identity.name for app in apps.values())
        super().__init__(name, options, [app.access for app in apps.values()])
        self.apps = apps
        self._running = False
        # That of `/a/b` before that of `/a`.
        self._prefixes = sorted(apps, key=len, reverse=True)
        self.start_by(self._mounted)

    def __repr__(self) -> str:
        return f"<McpApps {' '.join(endpoint for endpoint, _ in self.endpoints())}>"

    def endpoints(self) -> Iterator[tuple[str, McpApp]]:
        """Yield the paths that clients are given, each with the application that serves it."""
        for prefix, app in self.apps.items():
            for path in (app.options.path, app.options.sse_path):
                if path is not None:
                    yield below(prefix, path), app

    def protects(self, server: object) -> bool:
        """Return whether one of them authenticates the callers of this server."""
        return any(app.protects(server) for app in self.apps.values())

    # life

    def start_by(self, mounted: MountedApp | None) -> None:
        super().start_by(mounted)
        for app in self.apps.values():
            app.start_by(mounted)

    def abandon(self, *, has_failed: bool) -> None:
        self._running = False
        super().abandon(has_failed=has_failed)
        for app in self.apps.values():
            app.abandon(has_failed=has_failed)
        self.start_by(self._mounted)

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        if self._running:
            raise RuntimeError("the application is running already")
        if self.options.access_log:
            check_shown()
        self._draining = False
        begun: list[McpApp] = []
        try:
            async with in_residence(self.residence), AsyncExitStack() as stack:
                for app in self.apps.values():
                    app.failure = None
                    begun.append(app)
                    await stack.enter_async_context(app.serving())
                self._running = True
                try:
                    yield
                    await self.drain(0)
                finally:
                    self._running = False
        except Exception as error:
            # The others have got it in a group, from the nursery in which they serve.
            self.failure = next((app.failure for app in reversed(begun) if app.failure is not None), error)
            if self.failure is error:
                raise
            raise self.failure from None

    @works_on_asyncio
    async def drain(self, seconds: float, clean_up: float = 2.0) -> None:
        """Drain all servers at the same time; see `McpApp.drain`."""
        self._draining = True
        async with trio.open_nursery() as nursery:
            for app in self.apps.values():
                nursery.start_soon(app.drain, seconds, clean_up)

    def _readiness(self) -> tuple[int, bytes]:
        if self._draining:
            return 503, b"draining" if self._running else b"stopped"
        if not self._running:
            if self._mounted is not None:
                self._mounted.begin()
            return 503, b"starting"
        return 200, b"ready"

    # requests

    def may_begin_on_asyncio(self, path: str) -> bool:
        """Return whether `respond` may begin on asyncio; see `McpApp.may_begin_on_asyncio`."""
        return any(
            path.startswith(prefix) and app.may_begin_on_asyncio(path[len(prefix) :])
            for prefix, app in self.apps.items()
        )

    async def _serve(self, request: Request) -> Response:
        """Let the application of a request answer it, as that is to see it.

        Raises:
            HttpRejection: no server is at its path.
        """
        document = self._document(request) if WELL_KNOWN in request.path else None
        if document is not None:
            return document
        path = request.route
        for prefix in self._prefixes:
            if path.startswith(prefix) and path[len(prefix) :][:1] in ("", "/"):
                request.path, request.root_path = request.root + path, request.root + prefix
                return await self.apps[prefix].respond(request)
        raise self._not_found(request)

    def _document(self, request: Request) -> Response | None:
        """Return the response to a request for a public document of one of the servers; they are outside of its prefix."""
        found = [app.authentication for app in self.apps.values() if app.authentication is not None]
        having = [authentication for authentication in found if authentication.has_documents()]
        responses = (each.document(request, at_root=len(having) == 1) for each in having)
        return next((response for response in responses if response is not None), None)

    def _not_found(self, request: Request) -> HttpRejection:
        """Return the rejection of a request at a path without a server.

        Raises:
            HttpRejection: it may reach none of the servers.
        """
        shown: list[str] = []
        refusal: HttpRejection | None = None
        for endpoint, app in self.endpoints():
            try:
                # A foreign page must learn nothing (S-50).
                check_access(request.headers, app.access)
                shown.append(endpoint)
            except HttpRejection as rejection:
                refusal = refusal or rejection
        if refusal is not None and not shown:
            raise refusal
        return HttpRejection(404, not_found_at(shown, request.root))


def apps_by_path(servers: Mapping[str, SharedServer], keywords: HttpKeywords, tls: Tls | None = None) -> McpApps:
    """Return an application of several servers.

    Args:
        servers: by the path prefixes below which they are served.

    Raises:
        ValueError: there is no server, a prefix is not a path or comes twice, two servers would answer at one path, or they
            differ in an option that belongs to the process.
        ValueError, TypeError: see `HttpOptions`.
    """
    if not servers:
        raise ValueError("there is no server to serve: pass a mapping of paths to servers, such as {'/shop': shop}")
    options: dict[str, HttpOptions] = {}
    for path, server in servers.items():
        prefix = check_path(path).rstrip("/")
        if prefix in options:
            raise ValueError(f"{prefix or '/'} is the path of two servers")
        options[prefix] = served_options(server, keywords, tls)
    process = options_of_process(options)
    check_apart(options, process)
    event_store = keywords.get("event_store")
    apps = {
        prefix: McpApp(
            server,
            replace(own, tls=None, root_path="", trusted_proxies=(), access_log=False),
            event_store,
            prefix,
            process.root_path,
        )
        for server, (prefix, own) in zip(servers.values(), options.items(), strict=True)
    }
    return McpApps(apps, process)


def options_of_process(servers: Mapping[str, HttpOptions]) -> HttpOptions:
    """Return the options that servers at one address share. Raises `ValueError` if they differ in one."""
    (first, own), *others = servers.items()
    for name in OF_PROCESS:
        for prefix, other in others:
            if shared(getattr(own, name)) != shared(getattr(other, name)):
                raise ValueError(
                    f"the servers at {first or '/'} and {prefix or '/'} have different values of {name}, which they share here: "
                    f"pass {name}= to the serving call"
                )
    # The probes of a server stay below its prefix; these are for the process.
    health, ready = ({getattr(each, name) for each in servers.values()} for name in ("health_path", "ready_path"))
    return HttpOptions(
        **{name: getattr(own, name) for name in OF_PROCESS},
        health_path=health.pop() if len(health) == 1 else HEALTH_PATH,
        ready_path=ready.pop() if len(ready) == 1 else READY_PATH,
    )


def shared(value: object) -> object:
    """Return a value for comparison: it is the same as a list and as a tuple."""
    return tuple(value) if isinstance(value, list) else value


def check_apart(servers: Mapping[str, HttpOptions], process: HttpOptions) -> None:
    """Raise `ValueError` if a path of a server, or of a probe of the process, is below the prefix of another server."""
    probes = [path for path in (process.health_path, process.ready_path) if path is not None]
    owned = [(path, f"the probe {path}", "") for path in probes]
    owned += [
        (below(prefix, path), f"{path} of the server at {prefix or '/'}", prefix)
        for prefix, options in servers.items()
        for path in paths_of(options)
    ]
    for path, whose, prefix in owned:
        for other in servers:
            if len(other) > len(prefix) and path.startswith(other) and path[len(other) :][:1] in ("", "/"):
                raise ValueError(f"{whose} is below {other}, where another server is")


def paths_of(options: HttpOptions) -> Iterator[str]:
    """Yield the paths at which a server answers, below its prefix."""
    messages = None if options.sse_path is None else options.message_path
    for path in (options.path, options.sse_path, messages, options.health_path, options.ready_path):
        if path is not None:
            yield path
    if options.metrics_access is not None:
        yield options.metrics_access.path
    for route in options.routes:
        yield route.whole_path
