"""Parameters of a request: where each goes, and how its value is written (the styles of OpenAPI).

    style            in             5        ["a", "b"]                      {"x": 1, "y": 2}
    simple           path, header   5        a,b                             x,1,y,2       exploded x=1,y=2
    label            path           .5       .a,b         exploded .a.b      .x,1,y,2      exploded .x=1.y=2
    matrix           path           ;id=5    ;id=a,b      exploded ;id=a;id=b
    form             query, cookie  id=5     id=a,b       exploded id=a&id=b               exploded x=1&y=2
    spaceDelimited   query                   id=a%20b
    pipeDelimited    query                   id=a%7Cb
    deepObject       query                                                   id%5Bx%5D=1&id%5By%5D=2

Every value of a path is percent-encoded. Many servers decode `%2F` before they look for a route, so that an encoded slash would
still lead to another operation: a value with one is refused unless the author allows it, and one of dots always is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from ..errors import ToolError
from ..protocol.strict_json import dumps
from ..types import JsonValue
from .parts import Location, ParameterPart, UnsupportedOperation

STYLES: Final[dict[Location, frozenset[str]]] = {
    "path": frozenset({"simple", "label", "matrix"}),
    "query": frozenset({"form", "spaceDelimited", "pipeDelimited", "deepObject"}),
    "header": frozenset({"simple"}),
    "cookie": frozenset({"form"}),
}
DEFAULT_STYLES: Final[dict[Location, str]] = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
DELIMITERS: Final = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}

IGNORED_HEADERS: Final = frozenset({"accept", "content-type", "authorization"})
"""Headers that OpenAPI says are not parameters: the body and the credentials decide them."""
FORBIDDEN_HEADERS: Final = frozenset(
    {
        "connection",
        "content-length",
        "cookie",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that belong to the connection, or to the credentials. No caller may write them."""

RESERVED: Final = ":/?@!$'()*,"
"""What `allowReserved` leaves as it is: the reserved characters but those that end a query, or a part of one.

A semicolon does so for some servers: a caller could send a parameter that is a credential.
"""
COOKIE_SAFE: Final = "!#$&'()*+/:<=>?@[]^`{|}~"
NOT_IN_HEADER: Final = re.compile(r"[^\t\x20-\x7e]")


@dataclass(frozen=True, slots=True)
class Parameter:
    """How one argument is sent.

    Attributes:
        argument: its name among the arguments of the tool.
        name: its name for the API.
        as_json: its value is sent as JSON, whatever it is.
    """

    argument: str
    name: str
    location: Location
    required: bool
    style: str
    explode: bool
    allow_reserved: bool = False
    as_json: bool = False

    def query(self, value: JsonValue) -> list[str]:
        """Return what stands for a value in a query: parts to be joined by `&`."""
        if self.as_json:
            return [f"{encoded(self.name)}={encoded(dumps(value).decode())}"]
        safe = RESERVED if self.allow_reserved else ""
        return form_parts(self.name, value, self.style, explode=self.explode, safe=safe)

    def path(self, value: JsonValue, *, slashes: bool) -> str:
        """Return what stands for a value in a path.

        Args:
            slashes: a slash is allowed, as `%2F`.

        Raises:
            ToolError: the value could lead to another path.
        """
        texts = [dumps(value).decode()] if self.as_json else [*leaves(value)]
        # An empty object has none.
        for each in texts or [""]:
            self._check_segment(each, slashes=slashes)
        return self._path(value)

    def header(self, value: JsonValue) -> str:
        """Return the value of a header. Raises `ToolError` if it cannot be one."""
        if self.as_json:
            text = dumps(value).decode()
        elif isinstance(value, dict):
            pairs = [(name, plain(each)) for name, each in value.items()]
            text = ",".join(f"{name}={each}" if self.explode else f"{name},{each}" for name, each in pairs)
        else:
            text = ",".join(map(plain, items_of(value)))
        if NOT_IN_HEADER.search(text):
            raise ToolError(f"{self.argument}: a header has printable ASCII characters only")
        return text.strip()

    def cookies(self, value: JsonValue) -> list[str]:
        """Return the cookies that stand for a value."""
        if self.as_json:
            return [f"{self.name}={encoded(dumps(value).decode(), COOKIE_SAFE)}"]
        return form_parts(self.name, value, "form", explode=self.explode, safe=COOKIE_SAFE)

    def _path(self, value: JsonValue) -> str:
        if self.as_json:
            return encoded(dumps(value).decode())
        first, between = {"simple": ("", ","), "label": (".", "."), "matrix": (";", ";")}[self.style]
        named = f"{self.name}=" if self.style == "matrix" else ""
        if isinstance(value, dict):
            pairs = [(encoded(name), encoded(plain(each))) for name, each in value.items()]
            if self.explode:
                return first + between.join(f"{name}={each}" for name, each in pairs)
            return f"{first}{named}" + ",".join(f"{name},{each}" for name, each in pairs)
        items = [encoded(plain(each)) for each in items_of(value)]
        if self.explode:
            return first + between.join(f"{named}{each}" for each in items)
        return f"{first}{named}" + ",".join(items)

    def _check_segment(self, text: str, *, slashes: bool) -> None:
        if not text:
            raise ToolError(f"{self.argument}: it is a part of the path, and must not be empty")
        pieces = re.split(r"[/\\]", text)
        if len(pieces) > 1 and not slashes:
            raise ToolError(f"{self.argument}: it is a part of the path, and must not contain a slash: {text!r:.200}")
        if any(piece.strip() in (".", "..") for piece in pieces):
            raise ToolError(
                f"{self.argument}: it is a part of the path, and must not lead to another one: {text!r:.200}"
            )


def make_parameter(part: ParameterPart, argument: str) -> Parameter:
    """Return how a parameter is sent.

    Raises:
        UnsupportedOperation: its style is unknown in its place, or it has more than one form.
    """
    style = part.style or DEFAULT_STYLES[part.location]
    if style not in STYLES[part.location]:
        raise UnsupportedOperation(
            f"the {part.location} parameter {part.name!r:.80} has the unknown style {style!r:.80}"
        )
    if len(part.content) > 1 or any(not is_json(media) for media in part.content):
        media = ", ".join(part.content)
        raise UnsupportedOperation(
            f"the parameter {part.name!r:.80} is sent as {media:.200}, and only JSON is supported"
        )
    explode = style == "form" if part.explode is None else part.explode
    required = part.required or part.location == "path"
    return Parameter(
        argument, part.name, part.location, required, style, explode, part.allow_reserved, bool(part.content)
    )


def form_parts(name: str, value: JsonValue, style: str, *, explode: bool, safe: str = "") -> list[str]:
    """Return the parts `name=value` that stand for a value in a query or a form; none for null and for what is empty."""
    key = encoded(name)
    if style == "deepObject" and isinstance(value, dict):
        return [f"{encoded(path)}={encoded(text, safe)}" for path, text in deep_pairs(name, value)]
    if isinstance(value, dict):
        pairs = [(encoded(each), encoded(plain(item), safe)) for each, item in value.items() if item is not None]
        if explode:
            return [f"{each}={item}" for each, item in pairs]
        return [f"{key}=" + ",".join(f"{each},{item}" for each, item in pairs)] if pairs else []
    items = [encoded(plain(item), safe) for item in items_of(value)]
    if isinstance(value, list) and not explode:
        return [f"{key}={DELIMITERS.get(style, ',').join(items)}"] if items else []
    return [f"{key}={item}" for item in items]


def deep_pairs(name: str, value: JsonValue) -> Iterator[tuple[str, str]]:
    """Yield the pairs of an object in brackets: `filter[size][min]` and its text."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from deep_pairs(f"{name}[{key}]", item)
    else:
        for item in items_of(value):
            yield name, plain(item)


def items_of(value: JsonValue) -> Sequence[JsonValue]:
    """Return the items of a list, or the value alone; nothing for null."""
    if isinstance(value, list):
        return [item for item in value if item is not None]
    return [] if value is None else [value]


def leaves(value: JsonValue) -> Iterator[str]:
    """Yield every text that a value puts into a path."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield plain(each)
    elif isinstance(value, list) and value:
        yield from map(plain, value)
    else:
        yield plain(value if value != [] else None)


def plain(value: JsonValue) -> str:
    """Return a value as text: a string as it is, nothing for null, anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else dumps(value).decode()


def encoded(text: str, safe: str = "") -> str:
    """Return a text percent-encoded but for unreserved characters and those in `safe`."""
    return quote(text, safe=safe)


def is_json(media_type: str) -> bool:
    """Return whether a media type is JSON."""
    essence = media_type.partition(";")[0].strip().lower()
    return essence in ("application/json", "text/json") or essence.endswith("+json")
