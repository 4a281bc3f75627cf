"""JSON-RPC 2.0 messages, as MCP narrows them: bytes to values and back.

Reading never raises. Bytes that are no message become a `Malformed`, because a peer's mistake is an event to answer and
not a failure of the reader. An array is a `Batch`: such bytes too, but for the one revision that has batches. Members are
known by their exact names only: a name in another case or with a look-alike letter is an unknown member, and unknown members
beside the known ones are kept for proxies alone (`more`).

What is wrong but has one meaning is read as it is meant, after the strict way has failed: `null` for an absent member, `[]` for
an empty object, `1.0` for an integer, and half of a character in text that is only shown. What is ambiguous stays malformed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias, TypeGuard, assert_never

from pydantic_core import to_json

from ..base.named_tuples import NamedTuple
from ..base.values import make_tuple
from ..errors import McpError, ProtocolError, RemoteProtocolError, without_traceback
from ..types.base import JsonObject, JsonValue
from .json_limits import DEFAULT_LIMITS, JsonLimits, Measure
from .shown_text import dump_shown, replace_surrogates, warn_of_replaced, without_broken_names
from .strict_json import LoneSurrogate, dumps, has_surrogate, is_infinite_in, loads

ERROR: Final = frozenset(("code", "message", "data"))

# JSON-RPC 2.0, section 5.1.
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
# Ours, from the range left to implementations: the server cannot take or finish the call now; trying later may help.
SERVER_BUSY = -32000
# MCP up to 2025-11-25; never sent under 2026-07-28.
RESOURCE_NOT_FOUND = -32002
URL_ELICITATION_REQUIRED = -32042
# MCP 2026-07-28.
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022

MAX_BATCH = 100
"""Messages in one batch."""

MAX_ID_BYTES = 256
MAX_METHOD_CHARS = 256
MAX_INTEGER = 2**53 - 1  # RFC 7493, 2.2: beyond it, readers that use doubles confuse neighbours

RequestId: TypeAlias = str | int


class Encoded(NamedTuple):
    """A JSON object that is encoded already; `dump` splices the bytes in without reading them."""

    raw: bytes


class Request(NamedTuple):
    """A call that is to be answered under its id."""

    id: RequestId
    method: str
    params: JsonObject | Encoded = {}  # noqa: RUF012  shared, and never written to


class Notification(NamedTuple):
    """A message that is never answered."""

    method: str
    params: JsonObject | Encoded = {}  # noqa: RUF012  shared, and never written to


class Response(NamedTuple):
    """The result of the request with this id."""

    id: RequestId
    result: JsonObject | Encoded


class ErrorDetail(NamedTuple):
    """Why a request failed.

    `data` is None both when it is absent and when it is null. `more` are members that only a proxy passes on: those that JSON-RPC
    does not define, and a `data` of null; None if there are none.
    """

    code: int
    message: str
    data: JsonValue = None
    more: JsonObject | None = None


class ErrorResponse(NamedTuple):
    """The failure of the request with this id; the id is None when it could not be read."""

    id: RequestId | None
    error: ErrorDetail


Message: TypeAlias = Request | Notification | Response | ErrorResponse


class Answers(NamedTuple):
    """What answers a batch, as one array: an answer to each of its requests that gets one."""

    answers: tuple[Response | ErrorResponse, ...]


class Malformed:
    """Bytes that were no message.

    Attributes:
        error: what to answer; its `request_id` is the id of the request, or None when there was none or none was valid.
        answers: the id under which the bytes tried to answer a request of ours. Fail that request with `error` and send
            nothing: the peer could take an error under this id for the answer to its own request. If `error` has a
            `request_id` too, they may be a request or an answer: without such a request of ours, answer.
        is_answer: they tried to answer a request of ours without a valid id.
        is_cut: they end before they say whether they are an answer: without such a request of ours, answer.
    """

    __slots__ = ("answers", "error", "is_answer", "is_cut")
    __match_args__ = ("error", "answers")

    def __init__(
        self,
        error: RemoteProtocolError,
        answers: RequestId | None = None,
        *,
        is_answer: bool = False,
        is_cut: bool = False,
    ) -> None:
        self.error = error
        self.answers = answers
        self.is_answer = is_answer
        self.is_cut = is_cut

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.error} answers={self.answers!r}>"


class Batch(Malformed):
    """An array: several messages in 2025-03-26, and in every other revision as malformed as its base says.

    Attributes:
        items: the members of the array, not validated yet.
    """

    __slots__ = ("items",)

    def __init__(self, error: RemoteProtocolError, items: Sequence[JsonValue]) -> None:
        super().__init__(error)
        self.items = items

    def messages(self) -> tuple[Message | Malformed, ...]:
        """The messages in it, in order.

        Raises:
            RemoteProtocolError: -32600, it is empty or has more than `MAX_BATCH` members.
        """
        if not self.items:
            raise RemoteProtocolError("A batch must hold at least one message.")
        if len(self.items) > MAX_BATCH:
            raise RemoteProtocolError(f"A batch of {len(self.items)} messages: the limit is {MAX_BATCH}.")
        return tuple([_parse_member(item) for item in self.items])


class Unanswered(NamedTuple):
    """No message either: the transport has learned that our request `id` will get no answer.

    Attributes:
        id: None when it is about no request: then the session is lost, or else what belongs to no request no longer arrives.
        session_lost: the server no longer knows the session; it did nothing for the request.
        is_sent: it may have reached the server.
        connection_lost: all our requests, and a legacy session, ended with the connection; the channel can open another.
        error: what the request raises in place of a `Disconnected`.
    """

    id: RequestId | None
    why: str
    session_lost: bool = False
    is_sent: bool = True
    connection_lost: bool = False
    error: McpError | None = None


def parse(data: bytes, limits: JsonLimits = DEFAULT_LIMITS, measured: Measure | None = None) -> Message | Malformed:
    """The message in these bytes. Raises nothing, whatever the bytes are.

    Args:
        measured: what `json_limits.measure` returned for them, if it was called before.
    """
    try:
        value = loads(data, limits, measured)
    except RemoteProtocolError as error:
        value = None
        if isinstance(error, LoneSurrogate):
            # Not kept with the error, which is kept.
            value, error.value = _shown(error), None
        if value is None:
            return unreadable(error, data)
    # Nearly every message.
    if type(value) is dict:
        return _parse_object(value)
    return Batch(RemoteProtocolError(NO_BATCHES), items=value) if isinstance(value, list) else _parse_member(value)


def unreadable(error: RemoteProtocolError, head: bytes, tail: bytes | None = None) -> Malformed:
    """Return what to make of text that is no JSON, or that exceeds a limit.

    It may have been the answer to a request of ours, or a request of the peer's; the sender of either request would wait
    indefinitely without an error. So this looks for the id where JSON-RPC libraries write it: before the result or the method,
    or after it as the last member.

    Args:
        head: the text, or the first bytes of it.
        tail: the last bytes of it; the text is whole unless they are given.
    """
    # What led to the error holds the whole text, and so would its traceback.
    error = without_traceback(error)
    end = head[-_SEARCHED:] if tail is None else tail
    start = head[:_SEARCHED]
    found = re.match(_ID_BEFORE_CONTENT, start)
    first = found or re.match(_CONTENT_FIRST, start)
    last = None if first is None else re.search(_ID_AFTER_CONTENT, end)
    if first is not None and found is None:
        found = re.match(_ID_AFTER_METHOD, start) or last
    elif found is not None and last is not None and last["id"] != found["id"]:
        # Two ids, of which the sender may mean either.
        return Malformed(error)
    if first is None and tail is None:
        # A message that was written over several lines: the id that it begins with is that of an answer, or of nothing.
        found = re.fullmatch(_CUT_AFTER_ID, start)
    elif first is None or found is None:
        return Malformed(error)
    if found is None:
        return Malformed(error)
    try:
        id = as_integer(loads(found["id"]))
    except RemoteProtocolError:
        return Malformed(error)
    if not is_request_id(id):
        return Malformed(error)
    if first is None or first["content"] != b"method":
        return Malformed(error, answers=id, is_cut=first is None)
    # JSON-RPC has no id here (5.1), but the sender of a request would wait for an answer under it.
    error.request_id = id
    return Malformed(error)


def dump(message: Message | Answers) -> bytes:
    """The message, or the array of them, as one line of JSON, without a line break inside or at the end.

    Raises:
        ValueError: a value in it cannot be JSON; the text holds its path, see `strict_json.dumps`.
    """
    # Most messages of a server; it costs less than a case of the statement below.
    if isinstance(message, Response):
        request_id, answer = message
        name = b"%d" % request_id if type(request_id) is int else _dump_name(request_id, "id")
        return b"".join((b'{"jsonrpc":"2.0","id":', name, b',"result":', _dump_object(answer, "result"), b"}"))
    match message:
        case Request(id, method, params):
            head = b'{"jsonrpc":"2.0","id":%b,"method":%b' % (_dump_name(id, "id"), _dump_name(method, "method"))
            # Joined, and not formatted: `%` takes forty times as long for a megabyte, of which it copies a part again.
            return b"".join((head, *_dump_params(params), b"}"))
        case Notification(method, params):
            head = b'{"jsonrpc":"2.0","method":%b' % _dump_name(method, "method")
            return b"".join((head, *_dump_params(params), b"}"))
        case ErrorResponse(id, error):
            # The MCP schemas know an absent id, not a null one (JSONRPCErrorResponse).
            head = b"" if id is None else b'"id":%b,' % _dump_name(id, "id")
            return b'{"jsonrpc":"2.0",%b"error":%b}' % (head, dump_error(error))
        case Answers(answers):
            return b"".join((b"[", b",".join([dump(answer) for answer in answers]), b"]"))
    assert_never(message)


def error_response(error: ProtocolError) -> ErrorResponse:
    """The answer that tells the peer about a broken rule."""
    return ErrorResponse(error.request_id, ErrorDetail(error.code, str(error), error.data))


def is_request_id(value: object) -> TypeGuard[RequestId]:
    """Whether the value may be the id of a request: a string of at most 256 bytes, or an integer a double can hold."""
    if isinstance(value, str):
        # A string in memory may hold a lone surrogate; `surrogatepass` counts it instead of raising.
        return len(value) <= MAX_ID_BYTES and len(value.encode("utf-8", "surrogatepass")) <= MAX_ID_BYTES
    return isinstance(value, int) and not isinstance(value, bool) and -MAX_INTEGER <= value <= MAX_INTEGER


def as_integer(value: JsonValue) -> JsonValue:
    """Return 1 for 1.0, which is the same number to a language that has no integers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def decoded(members: JsonObject | Encoded) -> JsonObject:
    """The members themselves, for a reader that may be handed encoded ones.

    Raises:
        RemoteProtocolError: the encoded bytes are not JSON.
        TypeError: they are JSON, but no object.
    """
    if not isinstance(members, Encoded):
        return members
    value = loads(members.raw)
    if not isinstance(value, dict):
        raise TypeError(f"Encoded must hold a JSON object, not {type(value).__name__}")
    return value


# Reading


_SEARCHED = 1024
_ID = rb'"id"\s*:\s*(?P<id>-?\d{1,16}(?:\.0)?|"(?:[^"\\]|\\.){0,256}")\s*'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_CONTENT = rb'"(?P<content>result|error|method)"\s*:'
# Compiled when they are first used, by `re`, which keeps them.
_ID_BEFORE_CONTENT = rb"\s*\{\s*(?:%b,\s*)?%b,\s*(?:%b,\s*)?%b" % (_VERSION, _ID, _VERSION, _CONTENT)
_CUT_AFTER_ID = rb"\s*\{\s*(?:%b,\s*)?%b,?\s*(?:%b,?\s*)?" % (_VERSION, _ID, _VERSION)
_CONTENT_FIRST = rb"\s*\{\s*(?:%b,\s*)?%b" % (_VERSION, _CONTENT)
_ID_AFTER_METHOD = rb'\s*\{\s*(?:%b,\s*)?"method"\s*:\s*"[^"\\]*"\s*,\s*(?:%b,\s*)?%b,' % (_VERSION, _VERSION, _ID)
# The brace after it is the last of the text, so it closes the message, and the id is a member of the message itself.
_ID_AFTER_CONTENT = rb",\s*(?:%b,\s*)?%b(?:,\s*%b)?\}\s*\Z" % (_VERSION, _ID, _VERSION)
NO_BATCHES = "JSON-RPC batches are not supported: send one message at a time."
NO_OBJECT = "A message must be a JSON object."


def _parse_member(item: JsonValue) -> Message | Malformed:
    if isinstance(item, dict):
        return _parse_object(item)
    nested = isinstance(item, list)
    return Malformed(RemoteProtocolError("A batch must not hold another batch." if nested else NO_OBJECT))


def _parse_object(members: JsonObject) -> Message | Malformed:
    try:
        if members.get("jsonrpc") != "2.0":
            raise RemoteProtocolError('The member "jsonrpc" must be "2.0".')
        if "method" in members:
            return _parse_call(members)
        if "result" in members or "error" in members:
            return _parse_answer(members)
        raise RemoteProtocolError('A message must have one of "method", "result" and "error".')
    except RemoteProtocolError as error:
        return _malformed(error, members)


def _malformed(error: RemoteProtocolError, members: JsonObject) -> Malformed:
    error = without_traceback(error)
    id = as_integer(members.get("id"))
    has_method, has_result = "method" in members, "result" in members or "error" in members
    if not is_request_id(id) or _is_broken(id):
        return Malformed(error, is_answer=has_result and not has_method)
    if has_result and not has_method:
        return Malformed(error, answers=id)
    error.request_id = id
    # `{"id": 1}` is what JavaScript makes of an answer with an undefined result. With both, or neither, it may be either.
    return Malformed(error, answers=id if has_result == has_method else None)


def _parse_call(members: JsonObject) -> Request | Notification:
    if "result" in members or "error" in members:
        members = _without_nulls(members)
    method = members["method"]
    if not isinstance(method, str) or not 0 < len(method) <= MAX_METHOD_CHARS:
        raise RemoteProtocolError(f'"method" must be a string of 1 to {MAX_METHOD_CHARS} characters.')
    params = members.get("params", {})
    if not isinstance(params, dict):
        if not _is_absent(params):
            raise RemoteProtocolError('"params" must be an object; positional params are not part of MCP.')
        params = {}
    if "id" not in members or (members["id"] is None and method.startswith("notifications/")):
        return Notification(method, params)
    return make_tuple(Request, (_parse_id(members["id"]), method, params))


def _parse_answer(members: JsonObject) -> Response | ErrorResponse:
    if members.get("error") is None:
        result = members.get("result")
        if not isinstance(result, dict):
            # `null` is the result of a method without one, unless an error should have come in its place.
            if "error" in members or not _is_absent(result):
                raise RemoteProtocolError('"result" must be an object.')
            result = {}
        return make_tuple(Response, (_parse_id(members.get("id")), result))
    if members.get("result") is not None:
        raise RemoteProtocolError('A response must have "result" or "error", not both.')
    id = members.get("id")
    return ErrorResponse(None if id is None else _parse_id(id), _parse_error(members["error"]))


def _parse_error(error: JsonValue) -> ErrorDetail:
    if not isinstance(error, dict):
        raise RemoteProtocolError('"error" must be an object.')
    code, message = as_integer(error.get("code")), error.get("message")
    if not isinstance(code, int) or isinstance(code, bool) or abs(code) > MAX_INTEGER:
        raise RemoteProtocolError('"error.code" must be an integer.')
    if not isinstance(message, str):
        raise RemoteProtocolError('"error.message" must be a string.')
    data = error.get("data")
    more = {name: value for name, value in error.items() if name not in ERROR or (name == "data" and value is None)}
    return ErrorDetail(code, message, data, more or None)


def _parse_id(id: JsonValue) -> RequestId:
    # Nearly every id is a small integer, which needs no second look.
    if type(id) is int and 0 <= id <= MAX_INTEGER:
        return id
    id = as_integer(id)
    if is_request_id(id) and not _is_broken(id):
        return id
    raise RemoteProtocolError(
        f'"id" must be a string of at most {MAX_ID_BYTES} bytes, or an integer from -{MAX_INTEGER} to {MAX_INTEGER}.'
    )


# What other languages write


def _without_nulls(members: JsonObject) -> JsonObject:
    """Return a call without an answer that is null in it. Raises `RemoteProtocolError` if it is not null."""
    if members.get("result") is not None or members.get("error") is not None:
        raise RemoteProtocolError('A message with "method" must not have "result" or "error".')
    return {name: value for name, value in members.items() if name not in ("result", "error")}


def _shown(error: LoneSurrogate) -> JsonValue:
    """Return a message whose text can be shown; None if a lone surrogate is where it cannot be replaced."""
    try:
        shown = replace_surrogates(error.value)
    except LoneSurrogate:
        return None
    if not isinstance(shown, dict) or _is_infinite(shown):
        return None
    if any(has_surrogate(str(shown.get(name))) for name in ("id", "method")):
        return None
    warn_of_replaced(error.why)
    return {**shown, "result": without_broken_names(shown["result"])} if "result" in shown else shown


def _is_infinite(value: JsonValue) -> bool:
    whole = replace_surrogates(value, frozenset())
    return is_infinite_in(whole, to_json(whole))


def _is_broken(id: RequestId) -> bool:
    """Return whether an id has a lone surrogate, so that nothing can be answered under it."""
    return isinstance(id, str) and has_surrogate(id)


def _is_absent(value: JsonValue) -> bool:
    """Return whether a member that is an object is left out: `null`, or an empty one as languages without objects write it."""
    return value is None or value == []


# Writing


# As numbers, because to look for a byte as a text of length one takes ten times as long.
_LINE_FEED = ord("\n")
_CARRIAGE_RETURN = ord("\r")


def _dump_name(name: RequestId, root: str) -> bytes:
    # Neither a string nor an integer can be NaN or nested, which is all that `dumps` looks for besides.
    try:
        return to_json(name)
    except ValueError:
        return dumps(name, root)  # raises too, and names the member


def _dump_params(params: JsonObject | Encoded) -> tuple[bytes, ...]:
    return (b',"params":', _dump_object(params, "params")) if params else ()


def _dump_object(members: JsonObject | Encoded, name: str) -> bytes:
    if not isinstance(members, Encoded):
        return dumps(members, name)
    raw = members.raw
    if _LINE_FEED in raw or _CARRIAGE_RETURN in raw:
        # Between tokens a line break means no more than a space (RFC 8259, 2), and inside a string it is not JSON.
        return raw.replace(b"\r", b" ").replace(b"\n", b" ")
    return raw


def dump_error(error: ErrorDetail) -> bytes:
    """The error as a JSON object. Raises what `dump` raises."""
    data: JsonObject = {} if error.data is None else {"data": error.data}
    return dump_shown({"code": error.code, "message": error.message, **data, **(error.more or {})}, "error")
