"""`HttpOptions`: how a server is served over HTTP, wherever it is served."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from ..base.checks import check_async, check_instance, check_sequence, check_str, mistake, names_options
from ..base.shared_limits import SESSIONS, WEBSOCKETS
from .authenticator import Authenticate, Authenticator
from .routes import (
    DEFAULT_PATH,
    HEALTH_PATH,
    MESSAGE_PATH,
    READY_PATH,
    HttpRoute,
    check_endpoints,
    check_free,
    check_path,
)

# What a client of the HTTP application may cost.


@names_options
@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of the HTTP application for its clients; sizes in bytes, times in seconds. They are explained at
    https://github.com/trio-mcp/trio-mcp/blob/main/docs/limits.md.

    Attributes:
        body: size of one message.
        values: how many values one message may have (`JsonLimits.max_values`).
        body_seconds: time for a request's body to arrive.
        sessions: how many legacy sessions may be open at once, and how many HTTP+SSE streams.
        session_idle: how long a legacy session may be idle before it ends.
        disconnect_grace: how long a legacy call continues while no client reads its stream; 0 cancels it immediately.
        websockets: WebSockets that may be open at once.
        per_principal: how many sessions one principal may have open, how many HTTP+SSE streams, and how many WebSockets. Needs
            `authenticate`.
        recheck_seconds: how often `authenticate` rechecks the headers of an open WebSocket, and of an open stream that
            a GET or `subscriptions/listen` began.
    """

    body: int = 4 * 1024 * 1024
    values: int = 100_000
    body_seconds: float = 30.0
    sessions: int = SESSIONS.limit
    session_idle: float = 1800.0
    disconnect_grace: float = 30.0
    websockets: int = WEBSOCKETS.limit
    per_principal: int = 1_000
    recheck_seconds: float = 60.0


MCP: Final = "MCP"


@names_options
@dataclass(frozen=True, slots=True)
class Tls:
    """The files of a server that speaks TLS, in PEM.

    Attributes:
        certfile: the certificate, with the intermediate ones.
        keyfile: its private key; None if `certfile` has it too.
        password: of the key.
    """

    certfile: str
    keyfile: str | None = None
    password: str | None = None

    def __post_init__(self) -> None:
        check_str("certfile", self.certfile)
        for name in ("keyfile", "password"):
            value: object = getattr(self, name)
            # The error shows no value: one of them is a secret.
            if not isinstance(value, str | None):
                raise TypeError(f"{name} must be a string or None, not {type(value).__name__}")

    def __repr__(self) -> str:
        return f"Tls({self.certfile!r}, {self.keyfile!r})"


METRICS_PATH: Final = "/metrics"


@names_options
@dataclass(frozen=True, slots=True)
class Metrics:
    """Who may read the metrics of a server; pass it as `HttpOptions(metrics=...)`.

    The server's `authenticate` does not apply here. A request must have the token, and an address in one of the networks, if
    these are set. Requests from browsers are refused.

    Attributes:
        token: a scraper sends `Authorization: Bearer TOKEN`.
        networks: the addresses, or networks, of scrapers, such as "10.0.0.0/8"; "unix" for those that connect over a Unix
            socket. By default only this machine or, with a token, any address.
        public: anyone who can reach the port may read the metrics.
        path: the path of the metrics.

    Raises:
        TypeError, ValueError: a value is of the wrong type, or `public` comes with a token or networks.
    """

    token: str | None = None
    networks: Sequence[str] | None = None
    public: bool = False
    path: str = METRICS_PATH

    def __post_init__(self) -> None:
        if not isinstance(self.token, str | None):
            # The error shows no value, which may be a secret.
            raise TypeError(f"token must be a string or None, not {type(self.token).__name__}")
        if self.token is not None and not self.token.isascii():
            raise ValueError("token must be of ASCII characters, as HTTP headers are")
        if self.token == "":
            raise ValueError("token must not be empty")
        if self.networks is not None:
            check_proxies(self.networks, "networks")
        if check_instance("public", self.public, bool, "True or False") and (self.token or self.networks):
            raise ValueError("public=True lets anybody read the metrics: leave token= and networks= out")
        check_path(check_str("path", self.path))

    def __repr__(self) -> str:
        return f"Metrics({self.path!r}, networks={self.networks!r}, public={self.public})"


@names_options
@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How a server is served over HTTP; pass it as `Server(http=...)`.

    It applies wherever the server is served over HTTP or WebSocket: by `server.run("http")`, `serve_http`, `asgi_app` and
    `trio-mcp serve`. An argument of the serving call replaces the value of the same name; `authenticate` can be replaced, but
    not dropped. The transports stdio and memory ignore it.

    Attributes:
        authenticate: an async function from the headers of a request (names in lower case) to the principal, a `Caller`, or None
            to reject the request; or an object of `trio_mcp.auth`, such as a `ProtectedResource`.
        tls: the certificate to serve with. An ASGI server has its own setting for it.
        limits: see `HttpLimits`.
        allowed_hosts: the host names that clients use (`mcp.example.com`); by default loopback names only.
        allowed_origins: web sites whose pages may call the server and read its responses (`https://app.example.com`).
        routes: custom routes; `@server.route` adds one.
        path: the path of Streamable HTTP and WebSocket; None disables them.
        sse_path: the path of the streams of HTTP+SSE (2024-11-05); None disables it.
        message_path: the path to which clients of HTTP+SSE post their messages.
        health_path: answers 200 while the process serves; None disables it.
        ready_path: answers 200 while the server takes new calls, and 503 before its lifespan has started and from the start of
            a drain; None disables it.
        root_path: the path prefix under which a proxy publishes the server, such as "/tools". If an ASGI server, or an
            application in which this server is mounted, names another prefix, that one counts.
        trusted_proxies: the addresses, or networks, of proxies whose `Forwarded` and `X-Forwarded-*` headers are believed, such
            as "10.0.0.0/8"; "unix" for those that connect over a Unix socket.
        sessions: False serves legacy clients without sessions, so that any of several processes can serve each of their requests.
            Then there are no subscriptions, log levels and tasks, and nothing can be asked of such a client.
        metrics: serve the metrics of the server at `/metrics`, for Prometheus: True for scrapers on this machine, or `Metrics`.
        access_log: log each request when its response is complete, to the logger `trio_mcp.access`, at the level INFO.

    Raises:
        TypeError: a value is of the wrong type.
        ValueError: two paths are the same, or one is not a path; no request could match an allowed host or origin; or a proxy is
            no address.
    """

    authenticate: Authenticate | None = None
    tls: Tls | None = None
    limits: HttpLimits | None = None
    allowed_hosts: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()
    routes: Sequence[HttpRoute] = ()
    path: str | None = DEFAULT_PATH
    sse_path: str | None = None
    message_path: str = MESSAGE_PATH
    health_path: str | None = HEALTH_PATH
    ready_path: str | None = READY_PATH
    root_path: str = ""
    trusted_proxies: Sequence[str] = ()
    metrics: bool | Metrics = False
    access_log: bool = False
    sessions: bool = True

    def __post_init__(self) -> None:
        if self.authenticate is not None:
            check_async("authenticate", self.authenticate, "an async function from headers to a principal or None")
            if isinstance(self.authenticate, Authenticator):
                self.authenticate.check()
        if self.limits is not None:
            check_instance("limits", self.limits, HttpLimits, "HttpLimits(...)")
        if self.tls is not None:
            check_instance("tls", self.tls, Tls, 'Tls("cert.pem", "key.pem")')
        check_hosts(self.allowed_hosts)
        check_origins(self.allowed_origins)
        check_proxies(self.trusted_proxies)
        check_sequence("routes", self.routes, HttpRoute, "a list of routes", "a HttpRoute(...)")
        if not isinstance(self.metrics, bool | Metrics):
            raise TypeError(mistake("metrics", "True, False or Metrics(token=...)", self.metrics))
        check_instance("access_log", self.access_log, bool, "True or False")
        check_instance("sessions", self.sessions, bool, "True or False")
        if not self.sessions and self.sse_path is not None:
            raise ValueError("sessions=False and sse_path: HTTP+SSE is a session, so serve one without the other")
        if check_str("root_path", self.root_path).rstrip("/"):
            check_path(self.root_path)
        check_endpoints(self.path, self.sse_path, self.message_path)
        self._check_collisions()

    @property
    def metrics_access(self) -> Metrics | None:
        """Who may read the metrics; None if they are not served."""
        if isinstance(self.metrics, Metrics):
            return self.metrics
        return Metrics() if self.metrics else None

    def _check_collisions(self) -> None:
        taken: list[tuple[str | None, str]] = [(self.path, MCP), (self.sse_path, MCP)]
        if self.sse_path is not None:
            taken.append((self.message_path, MCP))
        for path, name in ((self.health_path, "health_path"), (self.ready_path, "ready_path")):
            if path is not None:
                check_free(check_path(path), f"{name} (None switches it off)", taken)
                taken.append((path, f"{name} (None switches it off)"))
        if (metrics := self.metrics_access) is not None:
            check_free(metrics.path, "metrics", taken)
            taken.append((metrics.path, "metrics"))
        for number, route in enumerate(self.routes):
            same = [each for each in self.routes[:number] if each.methods & route.methods]
            others = [(each.whole_path, f"another route, {each.name}") for each in same]
            check_free(route.whole_path, f"the route {route.name}", [*taken, *others])


def default_limits(server: object) -> HttpLimits:
    """Return the limits for a server: one whose sessions are expensive, such as a proxy, sets `max_sessions`."""
    sessions: int | None = getattr(server, "max_sessions", None)
    return HttpLimits() if sessions is None else HttpLimits(sessions=sessions, websockets=sessions)


# The names under which a server is reached, and the web sites whose pages may call it.

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


def check_hosts(hosts: Sequence[str]) -> None:
    """Refuse a name that no Host header could have once its port is taken off."""
    for name in listed("allowed_hosts", hosts, "mcp.example.com"):
        # A trailing dot is the same host (a fully qualified name), and browsers do send it.
        bare = name.lower().rstrip(".")
        if bare and host_name(name) == bare and "*" not in bare:
            continue
        authority = urlsplit(name if "://" in name else f"//{name}").netloc
        meant = f"[{name}]" if name.count(":") > 1 and host_name(f"[{name}]") else host_name(authority)
        advice = f"write it as {meant!r}" if meant and "*" not in meant else "name each host"
        raise ValueError(f"allowed_hosts: {name!r:.80} is no host name: {advice}, without scheme, port and path")


def check_origins(origins: Sequence[str]) -> None:
    """Refuse an origin that no browser sends."""
    for origin in listed("allowed_origins", origins, "https://app.example.com"):
        scheme, separator, authority = origin.partition("://")
        if not origin.isascii():
            raise ValueError(
                f"allowed_origins: {origin!r:.80} has characters that no browser sends: write the host as it does (xn--...)"
            )
        if scheme and separator and host_name(authority) and "*" not in authority:
            continue
        meant = urlsplit(origin if separator else f"https://{origin}")
        named = meant.netloc and "*" not in meant.netloc and origin != "null"
        advice = f"write it as {f'{meant.scheme}://{meant.netloc}'!r}" if named else "name each web site"
        raise ValueError(
            f"allowed_origins: {origin!r:.80} is no origin: {advice}, with a scheme and without a path, as browsers send it"
        )


def listed(option: str, names: object, example: str) -> Collection[str]:
    """Return the names if they are a collection of strings."""
    # A string is a collection of strings too, and would be taken letter by letter.
    if isinstance(names, str) or not isinstance(names, Collection):
        raise TypeError(mistake(option, f"a list, such as [{example!r}]", names))
    return [check_str(f"each item of {option}", name) for name in names]


def host_name(authority: str) -> str:
    """The host of an authority, without the port; empty for anything odd (userinfo, a path, an open bracket)."""
    authority = authority.strip().lower()
    if not authority or any(sign in authority for sign in "@/\\? #"):
        return ""
    if authority.startswith("["):
        name, bracket, port = authority.partition("]")
        return name + bracket if bracket and (not port or port[1:].isdigit()) else ""
    name, _, port = authority.partition(":")
    return name.rstrip(".") if not port or port.isdigit() else ""


# The addresses of trusted proxies.

Network: TypeAlias = IPv4Network | IPv6Network

UNIX: Final = "unix"
"""Stands for every peer of a Unix socket, which has no address."""


def check_proxies(proxies: Sequence[str], option: str = "trusted_proxies") -> tuple[Network, ...]:
    """Return the networks of proxies; `UNIX` is none of them.

    Args:
        option: whose value it is.

    Raises:
        TypeError: this is not a list of strings.
        ValueError: one is neither an address nor a network.
    """
    each = "an address, such as '10.0.0.1'"
    names = check_sequence(option, proxies, str, "a list, such as ['10.0.0.0/8']", each)
    return tuple(network_of(name, option) for name in names if name != UNIX)


def network_of(name: str, option: str = "trusted_proxies") -> Network:
    try:
        return ip_network(name)
    except ValueError as error:
        raise ValueError(
            f"{option}: {name!r:.80} is no address, no network and not {UNIX!r}: {error}; "
            "a name or '*' would trust what anybody can claim to be"
        ) from None


IpAddress: TypeAlias = IPv4Address | IPv6Address
CLIENT_NETWORK: Final = 64
"""Bits of the network that a client has in IPv6."""


def address_of(text: str) -> IpAddress | None:
    """Return the address in `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1` or `[2001:db8::1]:80`; None in any other text."""
    bare = text.strip()
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        address = ip_address(bare)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def caller_at(address: IpAddress) -> Hashable:
    """Return the quota key of an address: in IPv6 its /64 network (RFC 6177)."""
    if isinstance(address, IPv6Address):
        return ip_network((address, CLIENT_NETWORK), strict=False)
    return address
