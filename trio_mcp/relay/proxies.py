"""`proxy(target)`: a server that passes everything on to another one; served by itself, or mounted in a `Server`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Final, TypeAlias, cast
from urllib.parse import urlsplit

import trio

from ..base.checks import check_str
from ..base.groups import single_exception
from ..base.logs import peer_logger
from ..client import Client
from ..client.target import connectable, open_lasting_target
from ..errors import AuthorizationError, Disconnected
from ..protocol.revisions import IDEMPOTENCY_KEY, REPEAT_OF
from ..runtime import Lane
from ..server.composing import Composition, MountedServer
from ..server.mounts import MountPoint
from ..server.running import run_process, serve_over
from ..session import (
    AnyChannel,
    Call,
    ChannelServer,
    MessageChannel,
    ServiceOptions,
    as_message_channel,
)
from ..session.calls.services import ONE_CLIENT, CallOffers
from ..types import Implementation, JsonValue, Model, RequestParams
from .answers import Backfill
from .host_links import Followed
from .mirroring import Following, Mirror
from .server import EXIT_SECONDS, MAX_SESSIONS, RelayServer
from .upstream import behind_target, words_of

logger = peer_logger("trio_mcp.relay")

Target: TypeAlias = str | os.PathLike[str] | Sequence[str] | ChannelServer | Client
"""What a proxy stands for: a URL, a Python file, a command, a server in this process, or a client that is not open."""

SERVING: Final = frozenset(
    {"allowed_hosts", "allowed_origins", "authenticate", "host", "http", "path", "port", "routes", "trusted_proxies"}
)
"""Options of serving over HTTP, which belong to no transport of a client."""

START_SECONDS: Final = 10.0
"""How long the start of an outer server waits for the lists of a mounted proxy. It then starts without, and they come later."""


def proxy(
    target: Target,
    *,
    name: str | None = None,
    options: ServiceOptions | None = None,
    max_sessions: int = MAX_SESSIONS,
    **transport_options: object,
) -> Proxy:
    """Return a server that passes everything on to another one, and back: calls, questions, reports, changes, in both eras.

        proxy("https://weather.example.com/mcp").run()              # a remote server, for a host that starts commands
        proxy(["python", "server.py"]).run("http", port=8000)       # a command, for hosts over HTTP
        server.mount("weather", proxy("https://weather.example.com/mcp"))

    If the proxy is served by itself, each host has a separate connection to the server, and messages pass unchanged if both use
    the same revision. If it is mounted in a `Server`, it offers what the target lists. See
    https://github.com/trio-mcp/trio-mcp/blob/main/docs/composition.md.

    Args:
        target: the URL of a server; the path of a Python file, `FILE.py` or `FILE.py:name`; a command, as a list; a server in
            this process; or a client that is not open, whose target and transport options are used.
        name: of the server, in errors and logs; by default the target's own name.
        options: limits and times of the service, when it is served by itself.
        max_sessions: how many connections to the server may be open, one for each host.
        transport_options: those of `Client.connect` for the target, such as `headers` for a URL and `env` for a command.

    Raises:
        TypeError, ValueError: the target or an option is invalid. Nothing was started.
    """
    return Proxy(target, name=name, options=options, max_sessions=max_sessions, **transport_options)


class Proxy(RelayServer):
    """A server that is another one; made by `proxy`."""

    def __init__(
        self,
        target: Target,
        *,
        name: str | None = None,
        options: ServiceOptions | None = None,
        max_sessions: int = MAX_SESSIONS,
        **transport_options: object,
    ) -> None:
        check_not_serving(transport_options)
        self._connect_to: Callable[[], AbstractAsyncContextManager[AnyChannel]]
        if isinstance(target, Client):
            if transport_options:
                raise TypeError("a client has its transport options already: leave them out, or pass its target")
            self._connect_to = target.new_channel
        else:
            found = connectable(target)
            own = transport_options if found is target else with_one_client(transport_options)
            self._connect_to = partial(open_lasting_target, found, own)
        # Made once for its checks, and not entered.
        self._connect_to()
        name = target_name(target) if name is None else check_str("name", name)
        behind = behind_target(target, transport_options)
        super().__init__(
            self._channel,
            Backfill(),
            options,
            max_sessions=max_sessions,
            name=name,
            keeps_session=True,
            behind=behind,
            leads_to=words_of(target),
        )
        self._outer: list[tuple[MountPoint, Composition]] = []
        self._mirror = Mirror(name, self._forward)

    # served by itself

    def run(self, transport: str = "stdio", **options: object) -> None:
        """Run a Trio loop and serve in it until the transport ends; see `Server.run`."""
        run_process(partial(self.serve, transport, **options), self.identity.name, self, transport)

    async def serve(self, transport: str = "stdio", **options: object) -> None:
        """Serve over a transport until it ends; see `Server.serve`.

        Raises:
            AuthorizationError: the server of the only host asks for a login, and this program has none.
            Disconnected: the session of the only host cannot go on at the server, and the host has not left.
            OSError: the server of the only host cannot be started or reached.
        """
        failure: Exception | None = None
        try:
            await serve_over(transport, self, options)
        except ExceptionGroup as group:
            failure = single_exception(group)
        # After the block, so that the group is not its context.
        if failure is not None:
            try:
                raise failure
            finally:
                del failure
        if isinstance(self.failure, AuthorizationError):
            raise self.failure.with_traceback(None)
        if self.failure is not None:
            raise Disconnected(f"the server {self.identity.name!r} has gone: {self.failure}")

    @asynccontextmanager
    async def _channel(self) -> AsyncIterator[MessageChannel]:
        async with self._connect_to() as channel:
            yield as_message_channel(channel)

    # mounted in another server

    def _facts(self) -> MountedServer:
        return MountedServer(
            lifespan_seconds=EXIT_SECONDS,
            scopes_by_item=self._mirror.registry.scopes_by_item,
            registry=self._mirror.registry,
            add_outer=self._add_outer,
            open=self._follow,
            wait_ready=self._wait_ready,
            offers_within=self._offers_within,
            follower=self._follower,
        )

    def _add_outer(self, mount: MountPoint, outer: Composition) -> None:
        # The name of a command is its last word, which may say little.
        self._mirror.left_out.whose = mount.source
        self._outer.append((mount, outer))

    @asynccontextmanager
    async def _follow(self) -> AsyncIterator[Following]:
        """Connect to the server, and follow its lists in the block."""
        bindings = self._bound([outer.identity.name for _, outer in self._outer])
        async with trio.open_nursery() as nursery:
            limit = self.max_sessions
            following = Following(self._mirror, self._connect_to, nursery, limit, self._on_updated, bindings)
            nursery.start_soon(following.run)
            try:
                yield following
            finally:
                nursery.cancel_scope.cancel()

    async def _wait_ready(self, state: object) -> None:
        """Wait until the lists have been read, for `START_SECONDS` at most."""
        assert isinstance(state, Following)
        with trio.move_on_after(START_SECONDS):
            await state.listed.wait()
            return
        if not state.has_failed:
            logger.warning("%s has not answered yet: what it offers is added when it does", self._mirror.left_out.whose)

    def _offers_within(self, outer: CallOffers, _options: ServiceOptions, state: object) -> CallOffers:
        """Return what its calls use of what is offered: the connections to the server."""
        return outer._replace(state=state)

    def _follower(self, state: object) -> Followed:
        """Return what subscribes to resources at the server."""
        assert isinstance(state, Following)
        return state.links.followed

    def _on_updated(self, uri: str) -> None:
        for mount, outer in tuple(self._outer):
            # A server may name any URI, also one that no resource has there.
            with suppress(ValueError):
                outer.resource_updated(mount.outer_uri(uri))

    async def _forward(self, call: Call, lane: Lane, method: str, params: RequestParams) -> Model:
        """Send a request for a call to the server, and return its result."""
        following = call.offers.state
        assert isinstance(following, Following)
        # What the host says in `_meta` goes on, but not with what the call requests besides its own request.
        if lane.depth == 0 and call.facts.method == method and (meta := own_meta(call)):
            params = params.model_copy(update={"meta": meta})
        async with following.links.client_for(call) as client:
            return await client.run(call, lane, method, params)

    def __repr__(self) -> str:
        return f"<Proxy {self.identity.name}>"


def check_not_serving(options: Iterable[str]) -> None:
    """Raise `TypeError` for an option that belongs to the call that serves a proxy."""
    if wrong := next((name for name in options if name in SERVING), None):
        raise TypeError(
            f"proxy() has no option {wrong!r}: give the options of serving to the call that serves the proxy: "
            'run("http", ...), serve_http() or asgi_app(); authenticate= is one of them'
        )


def with_one_client(options: Mapping[str, object]) -> Mapping[str, object]:
    """Return the options for a Python file, with which its process does not log that stdio ignores its `HttpOptions`.

    `check_open` has looked at those, and each host would have the line again.
    """
    env = options.get("env")
    if env is not None and not isinstance(env, Mapping):
        return options
    return {**options, "env": {ONE_CLIENT: "1", **(env or {})}}


def target_name(target: Target) -> str:
    """Return what a target is called if its user does not say: the host of a URL, the last word of a command, a server's name."""
    if isinstance(target, Client):
        return target_name(cast("Target", target.target))
    if isinstance(target, str | os.PathLike):
        text = os.fspath(target)
        return urlsplit(text).hostname or text if "://" in text else os.path.basename(text)
    if isinstance(target, Sequence):
        return os.path.basename(os.fspath(target[-1]))
    identity = getattr(target, "identity", None)
    return identity.name if isinstance(identity, Implementation) else type(target).__name__


def own_meta(call: Call) -> dict[str, JsonValue]:
    """Return what a host says in the `_meta` of its request to the server, and not to the one in between."""
    return {name: value for name, value in call.facts.meta.items() if name not in (IDEMPOTENCY_KEY, REPEAT_OF)}
