"""Custom HTTP routes: a request and a response as small values, and the function between them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Generic, Never, TypeAlias, cast
from urllib.parse import parse_qsl

from pydantic_core import from_json
from typing_extensions import TypeVar

from ..base.checks import (
    check_callable,
    check_choice,
    check_instance,
    check_int,
    check_seconds,
    check_str,
    check_str_mapping,
    mistake,
)
from ..base.values import JsonValue
from ..protocol.strict_json import dumps
from ..session import Caller

# The paths of a server, which must not collide.

MESSAGE_PATH: Final = "/message"
"""The usual path to which clients of HTTP+SSE post."""

PLAIN_PATH: Final = re.compile(r"/[\w.~!$&'()*+,;=:@/-]*", re.ASCII)
"""A path that means the same before and after percent-decoding."""

DEFAULT_PATH: Final = "/mcp"
HEALTH_PATH: Final = "/health"
READY_PATH: Final = "/ready"


def check_path(path: str) -> str:
    """Return a path that a client can use unchanged.

    Raises:
        ValueError: it is none.
    """
    if not PLAIN_PATH.fullmatch(path):
        raise ValueError(f"{path!r:.80} is no path such as '/mcp', without a query or percent signs")
    return path


def other_spelling(path: str) -> str:
    """Return a path with the slash at its end that it lacks, or without the one that it has: clients write URLs both ways."""
    return path if path == "/" else path[:-1] if path.endswith("/") else f"{path}/"


def check_endpoints(path: str | None, sse_path: str | None, message_path: str) -> None:
    """Raise `ValueError` unless MCP is served, and its paths differ."""
    served = [each for each in (path, sse_path) if each is not None]
    if not served:
        raise ValueError("neither path nor sse_path is given: nothing would be served")
    served += [message_path] if sse_path is not None else []
    for each in served:
        check_path(each)
    if len(set(served)) < len(served):
        raise ValueError(f"path, sse_path and message_path must differ; they are {', '.join(served)}")


def check_free(path: str, owner: str, taken: Iterable[tuple[str | None, str]]) -> None:
    """Raise `ValueError` if a path is another owner's already.

    Args:
        owner: whose it is to be, for the error.
        taken: the paths and their owners; None is not a path.
    """
    for other, whose in taken:
        if other == path:
            raise ValueError(f"{path} is the path of {whose} and cannot be that of {owner} too")


StateT_co = TypeVar("StateT_co", default=object, covariant=True)

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
MAX_BODY: Final = 1024 * 1024
"""Bytes of the body of a request to a custom route, unless it has another limit."""
TIMEOUT: Final = 30.0
"""Seconds that a custom route has for a request, unless it has another limit."""
MAX_FIELDS: Final = 100
"""Parameters in one query."""

NAME: Final = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
VALUE: Final = re.compile(r"[\t -~\xa0-\xff]*")
OWN_HEADERS: Final = frozenset({"content-length", "transfer-encoding", "connection", "content-type"})
"""What a response has by itself; `content_type` is an argument."""


# Without slots: `HttpRequest[Database](...)` sets an attribute, where a frozen class with slots raises TypeError in Python 3.11.
@dataclass(frozen=True, repr=False)
class HttpRequest(Generic[StateT_co]):
    """A request to a custom route; its body has been read. `HttpRequest[Database]` says what type `state` has.

    Attributes:
        method: in upper case.
        path: the decoded path, without the prefix under which the server is reached.
        query: what follows the question mark, as it was sent.
        headers: by their names in lower case.
        body: at most `max_body` bytes of the route.
        caller: who sent it, with `principal`, `scopes` and `claims`; None without authentication, and on public routes.
        client: the address of the client; None if it is unknown. A trusted proxy may report it, `scheme` and `host`.
        scheme: "http" or "https".
        host: of the Host header.
        root_path: the prefix.
        state: what the server's lifespan opened.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    body: bytes = b""
    caller: Caller | None = None
    client: str | None = None
    scheme: str = "http"
    host: str = ""
    root_path: str = ""
    state: StateT_co = cast("StateT_co", None)  # noqa: RUF009  it is None

    @property
    def principal(self) -> str | None:
        """The principal of the caller."""
        return None if self.caller is None else self.caller.principal

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of the query; of one that came more than once, the last value.

        Raises:
            ValueError: there are more than 100.
        """
        return dict(parse_qsl(self.query, keep_blank_values=True, max_num_fields=MAX_FIELDS))

    @property
    def text(self) -> str:
        """The body as UTF-8. Raises `UnicodeDecodeError` if it is not."""
        return self.body.decode()

    def json(self) -> JsonValue:
        """Return the body as a JSON value. Raises `ValueError` if it is none."""
        return cast("JsonValue", from_json(self.body, allow_inf_nan=False))

    def __repr__(self) -> str:
        # Without the query, the headers and the body, which may hold secrets.
        return f"<HttpRequest {self.method} {self.path!r}>"


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The response of a custom route.

    Args:
        body: text or bytes.
        status: from 200 to 599.
        content_type: by default `text/plain; charset=utf-8` for text, and `application/octet-stream` for bytes.
        headers: others, such as `{"location": "/elsewhere"}`.

    Raises:
        TypeError, ValueError: HTTP cannot represent it.
    """

    body: str | bytes = b""
    status: int = 200
    content_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        check_int("status", self.status, least=200, most=599)
        if not isinstance(self.body, str | bytes):
            raise TypeError(mistake("body", "text or bytes", self.body))
        if self.content_type is not None and not VALUE.fullmatch(check_str("content_type", self.content_type)):
            raise ValueError(mistake("content_type", "a media type", self.content_type))
        for name, value in check_str_mapping("headers", self.headers).items():
            if not NAME.fullmatch(name) or name.lower() in OWN_HEADERS:
                raise ValueError(f"headers: {name!r:.80} is no header that a response can set")
            if not VALUE.fullmatch(value):
                raise ValueError(f"headers: the value of {name} cannot be sent in HTTP")

    @classmethod
    def json(cls, value: JsonValue, status: int = 200) -> HttpResponse:
        """Return a response with a JSON value. Raises `TypeError` or `ValueError` if JSON cannot represent it."""
        return cls(dumps(value, "the body"), status, "application/json")

    @property
    def content(self) -> bytes:
        """The body as bytes."""
        return self.body.encode() if isinstance(self.body, str) else self.body

    @property
    def lines(self) -> list[tuple[bytes, bytes]]:
        """The headers, as ASGI has them."""
        given = [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in self.headers.items()]
        kind = self.content_type
        if kind is None and self.body:
            kind = "text/plain; charset=utf-8" if isinstance(self.body, str) else "application/octet-stream"
        return given if kind is None else [(b"content-type", kind.encode("latin-1")), *given]


HttpHandler: TypeAlias = Callable[[HttpRequest[Never]], Awaitable[HttpResponse]]
"""An async function of a request with any type of state; what it raises is logged, and the response is 500."""


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """A custom route; `@server.route` adds one.

    Attributes:
        path: below the prefix under which the server is reached.
        handler: an async function from a `HttpRequest` to a `HttpResponse`.
        methods: those that the route accepts; GET includes HEAD.
        public: neither Host nor Origin nor credentials are checked: anybody who reaches the port may call it.
        max_body: bytes of a request's body.
        timeout: seconds for the handler; the body has `HttpLimits.body_seconds`.
        mounts: the prefixes of the mounts on the way to its server, the outermost first; empty if that is not mounted.

    Raises:
        TypeError, ValueError: a value is not allowed.
    """

    path: str
    handler: HttpHandler
    methods: frozenset[str] = frozenset({"GET"})
    public: bool = False
    max_body: int = MAX_BODY
    timeout: float = TIMEOUT
    mounts: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        check_path(check_str("the path of a route", self.path))
        check_handler(self.handler)
        check_instance("public", self.public, bool, "True or False")
        check_int("max_body", self.max_body)
        check_seconds("timeout", self.timeout, positive=True, finite=True)
        object.__setattr__(self, "methods", check_methods(self.methods))

    @property
    def prefix(self) -> str:
        """What `path` is below, if its server is mounted."""
        return "".join(f"/{mount}" for mount in self.mounts)

    @property
    def whole_path(self) -> str:
        """Where it is served."""
        return self.prefix + self.path

    def below(self, mount: str) -> HttpRoute:
        """Return the route as one of the server in which its own server is mounted, under this prefix."""
        return replace(self, mounts=(mount, *self.mounts))

    @property
    def name(self) -> str:
        """How errors and the log call it."""
        return str(getattr(self.handler, "__qualname__", None) or f"{self.handler!r:.80}")


def check_handler(handler: object) -> None:
    """Raise `TypeError` unless this can be an async function of a request."""
    expected = "an async function: `async def handler(request: HttpRequest) -> HttpResponse`"
    check_callable("what a route registers", handler, expected)
    # An object may have an async `__call__`.
    method = getattr(type(handler), "__call__", None)  # noqa: B004
    if not (inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(method)):
        raise TypeError(mistake("what a route registers", expected, handler))


def check_methods(methods: object) -> frozenset[str]:
    """Return the methods of a route, with HEAD if it takes GET."""
    if isinstance(methods, str) or not isinstance(methods, Collection) or not methods:
        raise TypeError(mistake("methods", 'a list, such as ["GET"]', methods))
    named = frozenset(check_choice("each of methods", method, sorted(METHODS)) for method in methods)
    return named | {"HEAD"} if "GET" in named else named
