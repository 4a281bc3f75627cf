"""The HTTP headers that repeat what a modern request says in its body (2026-07-28, Streamable HTTP: M-HTTP-3c to M-HTTP-5b).

Intermediaries route and log by them, so a server must reject a request whose headers differ from its body.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Final, TypeAlias

from ...base.named_tuples import NamedTuple
from ...errors import RemoteProtocolError
from ...types import RequestParams
from ...types.base import JsonObject, JsonValue, field_name
from ..jsonrpc import HEADER_MISMATCH, Request, decoded
from ..revisions import PROTOCOL_VERSION

# Example: the request {"method": "tools/call", "params": {"name": "café", "_meta": {...}}} of revision 2026-07-28
#
#   mcp-method            tools/call
#   mcp-protocol-version  2026-07-28
#   mcp-name              =?base64?Y2Fmw6k=?=     a header cannot hold the é
#
# Names are in lower case, as ASGI has them; HTTP compares them without case.


VERSION_HEADER = "mcp-protocol-version"
METHOD_HEADER = "mcp-method"
NAME_HEADER = "mcp-name"
SESSION_HEADER = "mcp-session-id"

ABOUT_TASKS = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
"""Requests whose `Mcp-Name` is for routing only, and may be missing: the extension obliges the client to send it and no server to
refuse a request without it (M-TSK-8), and clients exist that do not. One that differs from the body is refused."""

NAMED_BY: Mapping[str, str] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(ABOUT_TASKS, "taskId"),
}
"""The member of the params that `Mcp-Name` repeats, by method."""

FIELDS: Mapping[str, str] = {member: field_name(member) for member in NAMED_BY.values()}
"""Those members as fields of models."""

MARK, END = "=?base64?", "?="


def headers_of(method: str, params: JsonObject) -> dict[str, str]:
    """Return the headers that a modern client sends with a request."""
    meta = params.get("_meta")
    version = meta.get(PROTOCOL_VERSION) if isinstance(meta, dict) else None
    return {name: encode_value(value) for name, value in mirrored_values(method, params, version)}


def headers_for(method: str, params: RequestParams) -> dict[str, str]:
    """Return the same headers, of params that are a model."""
    member, unread = NAMED_BY.get(method), params.__pydantic_extra__
    named: JsonObject = {} if member is None else {member: getattr(params, FIELDS[member], (unread or {}).get(member))}
    return headers_of(method, {"_meta": params.meta, **named})


def check_headers(headers: Mapping[str, str], version: JsonValue, request: Request) -> None:
    """Raise unless the headers of a modern request agree with its body.

    Args:
        version: the revision that the body names (`Inbound.version`).

    Raises:
        RemoteProtocolError: -32020; the message names the header that is missing, malformed or different.
    """
    params = request.params if isinstance(request.params, dict) else decoded(request.params)
    for name, wanted in mirrored_values(request.method, params, version):
        sent = headers.get(name)
        if sent is None:
            if name == NAME_HEADER and request.method in ABOUT_TASKS:
                continue
            raise header_mismatch_error(f"the header {name} is missing; the body says {wanted!r}")
        if decode_value(name, sent) != wanted:
            raise header_mismatch_error(f"the header {name} says {sent[:128]!r}, the body {wanted[:128]!r}")


def mirrored_values(method: str, params: JsonObject, version: JsonValue) -> list[tuple[str, str]]:
    """Return what headers repeat of a request that names this revision, by the name of the header."""
    member = NAMED_BY.get(method)
    values = {
        METHOD_HEADER: method,
        VERSION_HEADER: version,
        NAME_HEADER: None if member is None else params.get(member),
    }
    return [(name, value) for name, value in values.items() if isinstance(value, str)]


def encode_value(value: str) -> str:
    """Return a value for a header: as it is, or in base64 between marks if a header cannot hold it (M-HTTP-5b)."""
    # A text that looks like an encoded one is encoded too: else the server would decode it.
    plain = value.isascii() and value.isprintable() and value == value.strip()
    if plain and not (value.startswith(MARK) and value.endswith(END)):
        return value
    return f"{MARK}{base64.b64encode(value.encode()).decode()}{END}"


def decode_value(name: str, value: str) -> str:
    """Return the value that a header stands for. A value with only one of the marks is not encoded.

    Raises:
        RemoteProtocolError: -32020; the value between the marks is not base64 of UTF-8, or the value holds characters that must
            be encoded: an intermediary might read these bytes as another text than this server does.
    """
    value = value.strip(" \t")
    if not (value.isascii() and value.isprintable()):
        raise header_mismatch_error(
            f"the header {name} holds more than printable ASCII: put base64 between {MARK} and {END}"
        )
    if not (value.startswith(MARK) and value.endswith(END) and len(value) >= len(MARK) + len(END)):
        return value
    try:
        return base64.b64decode(value[len(MARK) : -len(END)], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise header_mismatch_error(f"the header {name} is not base64 of UTF-8 between {MARK} and {END}") from None


def header_mismatch_error(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(message, code=HEADER_MISMATCH)


# The `Mcp-Param-*` headers, which repeat arguments of a tool call for intermediaries (2026-07-28: M-HTTP-5b, M-HTTP-6).
#
# A property of an input schema names its header with `x-mcp-header`. Both sides read the schema in the same way: the client
# sends
# the headers, the server compares them with the arguments. One invalid annotation makes the whole tool unusable, because
# the two sides might then disagree about what intermediaries see.

# Example: {"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
#
#   arguments               header sent                      the server rejects the call if the header is
#   {"region": "eu"}        mcp-param-region: eu             missing, or anything but eu
#   {"region": "é"}         mcp-param-region: =?base64?w6k=?=  missing, or another text once decoded
#   {"region": null}, {}    none                             there


ANNOTATION: Final = "x-mcp-header"
PREFIX: Final = "mcp-param-"
MAX_MIRRORED: Final = 64
"""Properties of one tool that headers may repeat."""

_MAX_NAME: Final = 128  # characters
_MAX_SAFE_INTEGER: Final = 2**53 - 1  # RFC 8259, section 6: beyond it, readers disagree about integers
_TYPES: Final = frozenset({"string", "integer", "boolean"})
_TCHARS: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # RFC 9110, 5.6.2
_NUMBER: Final = r"-?[0-9]{1,32}(?:\.[0-9]{1,32})?(?:[eE][+-]?[0-9]{1,3})?"

# Keywords that hold schemas: one, several, or several by name. The value of any other keyword (`default`, `enum`, an unknown
# one) is data, and an annotation in it means nothing. All are searched although only `properties` may lead to an annotation,
# because an annotation elsewhere makes the tool unusable and must be found.
_ONE: Final = frozenset(
    {"additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not"}
    | {"propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"}
)
_SEVERAL: Final = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_NAMED: Final = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)


_Step: TypeAlias = tuple[str, str | int | None]
"""The keyword that leads to a schema, and its name or position there if there may be several."""


class MirroredParameter(NamedTuple):
    """A mirrored parameter: an argument that a header repeats.

    Attributes:
        path: the names of the properties that lead to it.
        header: the name of the header, in lower case.
    """

    path: tuple[str, ...]
    header: str

    def value_in(self, arguments: JsonObject) -> JsonValue:
        """Return the argument, or None if it is absent or null."""
        value: JsonValue = arguments
        for name in self.path:
            if not isinstance(value, dict):
                return None
            value = value.get(name)
        return value


class ParameterHeaders(NamedTuple):
    """The mirrored parameters of one tool; falsy if there are none."""

    parameters: tuple[MirroredParameter, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.parameters)

    @classmethod
    def of(cls, schema: JsonObject) -> ParameterHeaders:
        """Return the mirrored parameters that an input schema annotates.

        Raises:
            ValueError: an annotation is invalid, or there are more than `MAX_MIRRORED`; the message names the property.
        """
        found: dict[str, MirroredParameter] = {}
        for steps, annotated in _annotated(schema):
            location = _location(steps)
            parameter = _parameter(location, steps, annotated)
            if parameter.header in found:
                raise _illegal(
                    location, f"names the header {annotated[ANNOTATION]!r} a second time (case does not count)"
                )
            found[parameter.header] = parameter
            if len(found) > MAX_MIRRORED:
                raise _illegal(location, f"is one more than {MAX_MIRRORED} mirrored parameters (MAX_MIRRORED)")
        return cls(tuple(found.values()))

    def headers(self, arguments: JsonObject) -> dict[str, str]:
        """Return the headers to send with these arguments, by lower-case name. Null and absent arguments have none.

        An argument that no header can hold (a fraction, an array, an object) has none either: the tool rejects it.

        Raises:
            ValueError: an integer is not within ±(2**53 - 1), or a string holds a lone surrogate.
        """
        texts = ((parameter.header, _text(parameter, arguments)) for parameter in self.parameters)
        return {header: encode_value(text) for header, text in texts if text is not None}

    def check(self, headers: Mapping[str, str], arguments: JsonObject) -> None:
        """Raise unless the headers of a request, by lower-case name, agree with its arguments (M-HTTP-4s).

        Raises:
            RemoteProtocolError: -32020; a header is missing, malformed, different, or present without its argument.
        """
        for parameter in self.parameters:
            _check(parameter, headers.get(parameter.header), arguments)


def _check(parameter: MirroredParameter, sent: str | None, arguments: JsonObject) -> None:
    header, name = parameter.header, ".".join(parameter.path)
    try:
        wanted = _text(parameter, arguments)
    except ValueError as error:
        raise header_mismatch_error(str(error)) from None
    if sent is None and wanted is None:
        return
    if sent is None:
        raise header_mismatch_error(f"the header {header} is missing; the argument {name} is {_shown(wanted)}")
    if wanted is None:
        raise header_mismatch_error(f"the header {header} says {_shown(sent)}, but there is no such argument {name}")
    if not _same(decode_value(header, sent), wanted, parameter.value_in(arguments)):
        raise header_mismatch_error(f"the header {header} says {_shown(sent)}, the argument {name} {_shown(wanted)}")


def _same(sent: str, wanted: str, value: JsonValue) -> bool:
    if isinstance(value, str | bool):
        return sent == wanted
    # Numbers are compared by value: 10, 10.0 and 1e1 are the same integer. Decimal, because a float would round.
    return re.fullmatch(_NUMBER, sent) is not None and Decimal(sent) == Decimal(wanted)


def _shown(text: str | None) -> str:
    return repr((text or "")[:128])


def _text(parameter: MirroredParameter, arguments: JsonObject) -> str | None:
    """Return the text of the header before it is encoded, or None if there must be no header."""
    value = parameter.value_in(arguments)
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | float() if value % 1 == 0:  # JSON Schema 2020-12, 6.1.1: 10.0 is an integer
            if abs(value) > _MAX_SAFE_INTEGER:
                what = f"the argument {'.'.join(parameter.path)} is not within ±(2**53 - 1)"
                raise ValueError(f"{what}, so the header {parameter.header} cannot repeat it")
            return str(int(value))
        case _:
            return None


# Reading a schema


def _parameter(location: str, steps: Sequence[_Step], schema: JsonObject) -> MirroredParameter:
    name = schema[ANNOTATION]
    if not isinstance(name, str) or not re.fullmatch(_TCHARS, name):
        raise _illegal(location, f"is {name!r:.80}, which is not the name of a header (an RFC 9110 token)")
    if len(name) > _MAX_NAME:
        raise _illegal(location, f"has {len(name)} characters; the limit is {_MAX_NAME}")
    if not steps or any(keyword != "properties" for keyword, _ in steps):
        raise _illegal(location, "must be reachable by `properties` alone")
    if not _is_primitive(schema.get("type")):
        raise _illegal(
            location, f"is on the type {schema.get('type')!r:.80}; only string, integer and boolean have headers"
        )
    return MirroredParameter(tuple([str(property_name) for _, property_name in steps]), PREFIX + name.lower())


def _illegal(location: str, reason: str) -> ValueError:
    return ValueError(f"{location}.{ANNOTATION} {reason}")


def _is_primitive(kind: JsonValue) -> bool:
    """Return whether a type is one of the three, or one of them and null: a null argument has no header."""
    if isinstance(kind, list):
        others = [name for name in kind if name != "null"]
        kind = others[0] if len(others) == 1 else None
    return isinstance(kind, str) and kind in _TYPES


def _location(steps: Sequence[_Step]) -> str:
    """Return the location of a schema as error messages name it."""
    shown = "inputSchema"
    for keyword, name in steps:
        inner = "" if name is None else f"[{name}]" if isinstance(name, int) else f".{name[:64]}"
        shown += f".{keyword}{inner}"
    return shown


def _annotated(schema: JsonObject) -> Iterator[tuple[list[_Step], JsonObject]]:
    """Yield every annotated schema within `schema`, in its order, with the steps that lead to it."""
    # Without recursion: the schema may come from a peer. And with one list of steps: in a deep and wide schema, a path for each
    # schema would take many times the schema's size.
    steps: list[_Step] = []
    open_schemas = [_within(schema)]
    if ANNOTATION in schema:
        yield steps, schema
    while open_schemas:
        step, inner = next(open_schemas[-1], (None, None))
        if step is None:
            open_schemas.pop()
            del steps[-1:]
        elif isinstance(inner, dict):
            steps.append(step)
            open_schemas.append(_within(inner))
            if ANNOTATION in inner:
                yield steps, inner


def _within(schema: JsonObject) -> Iterator[tuple[_Step, JsonValue]]:
    """Yield the schemas directly within a schema."""
    for keyword, value in schema.items():
        if keyword in _NAMED and isinstance(value, dict):
            for name, inner in value.items():
                yield (keyword, name), inner
        elif keyword in _SEVERAL and isinstance(value, list):
            for position, inner in enumerate(value):
                yield (keyword, position), inner
        elif keyword in _ONE:
            yield (keyword, None), value


# `Retry-After`: how long a server or an API asks to wait (RFC 9110, 10.2.3).


def seconds_to_wait(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that `Retry-After` asks to wait, as a number or as a date; None without one that can be read."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
