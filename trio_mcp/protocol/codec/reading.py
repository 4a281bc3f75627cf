"""Received messages to models: the era of a request, its terms, and its typed params.

`read_request` is what every request passes through. It is classified once: a modern request names its revision in
`params._meta` and states its terms there; every other message follows what its session agreed on. Both have terms of one type,
so that a server never asks which era a request belongs to. Past this module nothing is a dict.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Final

from pydantic_core import from_json, to_json

from ... import types
from ...base.named_tuples import NamedTuple
from ...base.values import make_tuple
from ...errors import LocalProtocolError, RemoteProtocolError
from ...types import (
    LOGGING_LEVELS,
    ClientCapabilities,
    Implementation,
    InitializeRequestParams,
    JsonObject,
    JsonValue,
    LoggingLevel,
    Model,
    ProgressToken,
)
from ..jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    MAX_ID_BYTES,
    MAX_INTEGER,
    METHOD_NOT_FOUND,
    Answers,
    Encoded,
    Malformed,
    Message,
    Request,
    Unanswered,
    as_integer,
    decoded,
    is_request_id,
)
from ..revisions import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    MODERN_ONLY,
    NEWEST_LEGACY,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    REVISIONS,
    TASK_GATES,
    Era,
    Revision,
    Side,
    TaskStyle,
    unsupported_version,
)
from .downlevel import LATE_MEMBERS
from .models import PLAIN_METHOD, Dropped, Params, PlainCall, validated
from .tasks import TASK, TASK_READERS, TaskWriter, read_created_task, read_members, says_task, without, without_tasks
from .unknown import UnknownParams, Unread
from .writing import ASKS_NOTHING

CANCELLED: Final = "notifications/cancelled"
_ROUNDS: Final = frozenset({"inputResponses", "requestState"})


class Codec(TaskWriter):
    """Reads and writes the messages of one revision.

    Reading raises `RemoteProtocolError` with the code to answer with.
    """

    __slots__ = ("_ignored",)

    def __init__(self, revision: Revision) -> None:
        super().__init__(revision)
        ignored = {} if self._modern else dict.fromkeys(self._rounds, _ROUNDS)
        if revision.tasks is not TaskStyle.REQUESTED:
            ignored |= {method: ignored.get(method, frozenset()) | TASK for method in TASK_GATES}
        self._ignored = ignored
        """Members of params that mean nothing, by method."""

    def decode_request(self, method: str, params: JsonObject, *, sender: Side, unread: Unread = Unread.NONE) -> Model:
        """The params of a request. Raises -32601 for a method that `sender` cannot ask for, -32602 for bad params.

        Args:
            unread: which requests pass unread; their params are `UnknownParams`.
        """
        known = self._requests.get(method)
        if unread is not Unread.NONE and unread.covers(method, is_known=known is not None):
            return validated(UnknownParams, params, "params")
        if known is None or sender not in known.senders:
            raise RemoteProtocolError(f"Method not found: {method[:128]}", code=METHOD_NOT_FOUND)
        kind = known.params
        ignored = self._ignored.get(method)
        if ignored is not None and not ignored.isdisjoint(params):
            params = without(ignored, params)
        if known.mode_names and isinstance(mode := params.get("mode"), str):
            kind = known.modes.get(mode, kind)
        return validated(kind, params, "params")

    def decode_notification(
        self, method: str, params: JsonObject, *, sender: Side, unread: Unread = Unread.NONE
    ) -> Model | None:
        """The params of a notification, or None for one that this revision does not know: those are ignored.

        Args:
            unread: which notifications pass unread, but for cancellations; their params are `UnknownParams`.
        """
        known = self.revision.notifications.get(method)
        if unread.covers(method, is_known=known is not None) and method != CANCELLED:
            return validated(UnknownParams, params, "params")
        if known is None or sender not in known.senders:
            return None
        return self._read(known.params, params, "params")

    def decode_result(
        self, method: str, result: JsonObject, *, may_be_task: bool = True, dropped: list[Dropped] | None = None
    ) -> Model:
        """The answer to a request of ours: its result type, `InputRequiredResult` where rounds are possible, or
        `CreateTaskResult` where a request may become a task.

        Args:
            may_be_task: the request asked for a task, or declared that it takes one (`expects_task`).
            dropped: gets the items of a list that cannot be read, without which the result is returned.

        Raises:
            RemoteProtocolError: it is none of them.
        """
        known = self.revision.requests.get(method)
        if known is None or known.result is None:
            raise self._lacks(method)
        may_be_task = may_be_task and known.as_task is not None
        read = partial(self._read, dropped=dropped)
        if not self._modern:
            result = without(LATE_MEMBERS, result)
            return read_created_task(result) if may_be_task and says_task(result) else read(known.result, result)
        match result.get("resultType") or "complete":
            case "complete":
                return read(known.result, {**result, "resultType": "complete"})  # M-RPC-4c
            case "task" if may_be_task:
                return validated(types.CreateTaskResult, result, "result")
            # Examples of the extension have it so, against its text (M-TSK-4).
            case "task" if known.result is types.GetTaskResult:
                return read(known.result, {**result, "resultType": "complete"})
            case "input_required" if method in self._rounds:
                asking = validated(types.InputRequiredResult, without_tasks(result), "result")
                if not asking.input_requests and asking.request_state is None:
                    raise RemoteProtocolError(ASKS_NOTHING)
                return asking
            case other:
                raise RemoteProtocolError(f"result.resultType: {str(other)[:64]} is no answer to {method}")

    def decode_task_payload(self, method: str, payload: JsonObject, dropped: list[Dropped] | None = None) -> Model:
        """The result of a task, in `GetTaskResult.result` or the answer to `tasks/result`.

        Args:
            method: of the request that became the task.

        Raises:
            RemoteProtocolError: it is no complete answer to that request.
        """
        known = self.revision.requests.get(method)
        if known is None or known.result is None or known.as_task is None:
            raise self._lacks(f"task of {method}")
        result = self.decode_result(method, payload, may_be_task=False, dropped=dropped)
        if isinstance(result, types.InputRequiredResult):
            raise RemoteProtocolError(f"result.resultType: {result.result_type} is no result of a task")
        return result

    def _read(
        self, kind: type[Model], members: JsonObject, path: str = "result", *, dropped: list[Dropped] | None = None
    ) -> Model:
        if kind.__name__ in TASK_READERS:
            return read_members(self.revision.tasks, kind, members, path)
        return validated(kind, members, path, dropped=dropped)

    def decode_question(self, method: str, params: JsonObject) -> Model:
        """The params of a question of ours, as `encode_question` writes them. Raises -32602 if they are malformed."""
        known, mode = self._input(method), params.get("mode")
        return validated(
            known.modes.get(mode, known.params) if isinstance(mode, str) else known.params, params, "params"
        )

    def decode_input_response(self, method: str, value: JsonValue, *, path: str = "params.inputResponses") -> Model:
        """The answer to a question of ours; `path` names it in the error: -32602 if it is malformed (M-MRTR-7s)."""
        known = self.revision.inputs.get(method)
        if known is None or known.result is None:
            raise self._lacks(f"input request {method}")
        return validated(known.result, value, path)


CODECS: Final[Mapping[str, Codec]] = MappingProxyType({name: Codec(revision) for name, revision in REVISIONS.items()})


def codec_for(version: str) -> Codec:
    """The codec of a revision.

    Raises:
        RemoteProtocolError: -32022 with the supported versions, for a version that is not supported here (M-VER-1s).
    """
    codec = CODECS.get(version)
    if codec is None:
        raise unsupported_version(version)
    return codec


# The era of a message


# To read a member of an enum takes ten times as long as a name of a module.
LEGACY_ERA: Final = Era.LEGACY
MODERN_ERA: Final = Era.MODERN


class Inbound(NamedTuple):
    """A received message and its classification.

    Attributes:
        meta: the `_meta` of a request that names its revision there; None for every other message.
        version: the revision that the request names, not checked yet; None for a legacy message.
    """

    message: Message | Answers | Malformed | Unanswered
    meta: JsonObject | None = None
    era: Era = LEGACY_ERA
    version: JsonValue = None


def classify(message: Message | Answers | Malformed | Unanswered) -> Inbound:
    """Classify a received message.

    Raises:
        RemoteProtocolError: the message holds encoded params that are not JSON.
    """
    if isinstance(message, Request):
        params = message.params
        meta = (params if isinstance(params, dict) else decoded(params)).get("_meta")
        if isinstance(meta, dict) and PROTOCOL_VERSION in meta:
            return make_tuple(Inbound, (message, meta, MODERN_ERA, meta[PROTOCOL_VERSION]))
    return make_tuple(Inbound, (message, None, LEGACY_ERA, None))


# The terms of a request


class Phase(Enum):
    """How far the handshake has come."""

    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"


# Each request is asked for its phase, and to read a member of an enum takes ten times as long as a name of a module.
OPENING: Final = Phase.OPENING
CLOSED: Final = Phase.CLOSED


class LogThreshold:
    """The least severe log level that is sent; None sends nothing. A session shares one, a modern request has one (M-LOG-1s)."""

    __slots__ = ("level",)

    def __init__(self, level: LoggingLevel | None = "info") -> None:
        self.level: LoggingLevel | None = level

    def passes(self, level: LoggingLevel) -> bool:
        return self.level is not None and LOGGING_LEVELS.index(level) >= LOGGING_LEVELS.index(self.level)


class RequestTerms(NamedTuple):
    """What applies to one request.

    Attributes:
        codec: reads and writes the revision of this request.
        client_capabilities: what the client declared.
        client_info: for display and logs only.
        log_threshold: which log messages the client wants.
        progress_token: the token to report progress under; None for no reports.
        meta: the `_meta` of the request as it came, encoded: what is in it takes many times its bytes once it is decoded.
        asks_in_rounds: a question to the client ends the request (modern) instead of being a request itself (legacy).
    """

    codec: Codec
    client_capabilities: ClientCapabilities
    client_info: Implementation | None
    log_threshold: LogThreshold
    progress_token: ProgressToken | None
    meta: Encoded
    asks_in_rounds: bool


_NOTHING_DECLARED: Final = ClientCapabilities()


class SessionTerms:
    """What a session has agreed on: the terms of every request that does not state its own.

    `initialize` and `logging/setLevel` change it. `proposed_version` is the one that the client asked for; the codec has the
    revision that it got.
    """

    __slots__ = (
        "_bare",
        "client_capabilities",
        "client_info",
        "codec",
        "log_threshold",
        "phase",
        "proposed_version",
    )

    def __init__(self) -> None:
        self.phase = Phase.OPENING
        self.codec = CODECS[NEWEST_LEGACY]
        self.proposed_version: str | None = None
        self.client_capabilities = _NOTHING_DECLARED
        self.client_info: Implementation | None = None
        self.log_threshold = LogThreshold()
        self._bare: RequestTerms | None = None
        """Those of the last request without `_meta`."""

    def check_phase(self, method: str) -> None:
        """Raise `RemoteProtocolError` unless this legacy method may be called at this point of the session."""
        if self.phase is Phase.OPENING and method not in ("initialize", "ping"):
            raise RemoteProtocolError(
                f'{method} came before initialize: open the session first, or put "{PROTOCOL_VERSION}" into params._meta',
                code=INVALID_PARAMS if method in MODERN_ONLY else INVALID_REQUEST,  # M-META-1s
            )

    def check_handshake(self, params: InitializeRequestParams) -> None:
        """Raise `RemoteProtocolError` if this handshake would change a session that is open.

        A gateway may send the handshake of its client again. It is the same one if version, capabilities and client info are
        equal. `_meta` is not compared, because it describes the request (its progress token, its trace) and not the client; nor
        are unknown members, which mean nothing.
        """
        agreed = (self.proposed_version, self.client_capabilities, self.client_info)
        if self.phase is Phase.OPEN and agreed != (params.protocol_version, params.capabilities, params.client_info):
            raise RemoteProtocolError("this session is initialized already, with other params", code=INVALID_REQUEST)

    def for_request(self, params: JsonObject) -> RequestTerms:
        """Return the terms of a legacy request with these params."""
        if "_meta" not in params:
            return self._bare_terms()
        meta = params["_meta"]
        if not isinstance(meta, dict):  # absent, or malformed: the codec rejects the params then
            meta = {}
        token = meta.get(PROGRESS_TOKEN)
        # The rule of request ids. Nearly every token is a small integer, which needs no second look.
        if not (type(token) is int and 0 <= token <= MAX_INTEGER) and not is_request_id(token := as_integer(token)):
            token = None
        return RequestTerms(
            self.codec,
            self.client_capabilities,
            self.client_info,
            self.log_threshold,
            token,
            encoded_meta(meta),
            asks_in_rounds=False,
        )

    def _bare_terms(self) -> RequestTerms:
        """Return the terms of a request that says nothing of itself: the same ones as long as the session's are the same."""
        bare = self._bare
        if (
            bare is None
            or bare.codec is not self.codec
            or bare.client_capabilities is not self.client_capabilities
            or bare.client_info is not self.client_info
            or bare.log_threshold is not self.log_threshold
        ):
            agreed = (self.codec, self.client_capabilities, self.client_info, self.log_threshold)
            bare = self._bare = RequestTerms(*agreed, None, _NO_META, asks_in_rounds=False)
        return bare


def modern_terms(meta: JsonObject) -> RequestTerms:
    """Return the terms that a modern request states in its `_meta`; nothing of them outlives the request (M-ST-1s).

    Raises:
        RemoteProtocolError: -32022 for a version that is unknown or is reached through `initialize`, raised before anything
            else because the other keys may differ there; -32602 for a key that is missing or has the wrong type (M-META-1s).
    """
    # Without a progress token, say, all of it is the same in each request of a client.
    if meta.keys() <= _STATED.keys():
        whole = encoded_meta(meta)
        if len(whole.raw) <= MAX_KNOWN:
            return _known_terms(whole.raw)
    return _terms_of(meta)


def _terms_of(meta: JsonObject) -> RequestTerms:
    stated = [meta.get(key) for key in _STATED]
    try:
        text = to_json(stated)
    except ValueError:
        text = None
    codec, capabilities, info, threshold = (
        _stated_terms(*stated) if text is None or len(text) > MAX_KNOWN else _known_statement(text)
    )
    token = _progress_token(meta)
    return make_tuple(RequestTerms, (codec, capabilities, info, threshold, token, encoded_meta(meta), True))


class StatedTerms(NamedTuple):
    """What a client states in the same words in each of its requests."""

    codec: Codec
    client_capabilities: ClientCapabilities
    client_info: Implementation | None
    log_threshold: LogThreshold


_STATED: Final = dict.fromkeys((PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL))

MAX_KNOWN: Final = 1024
"""Bytes of what a client states of itself up to which the models of it are kept for its next request."""

KNOWN_CLIENTS: Final = 256
"""How many of them are kept, in each process."""


# Parsed again where it is new, so that these caches have nothing to do with who was the first to say it.


@lru_cache(KNOWN_CLIENTS)
def _known_terms(meta: bytes) -> RequestTerms:
    """Return the terms that a whole `_meta` states, from the JSON of it."""
    return _terms_of(from_json(meta))


@lru_cache(KNOWN_CLIENTS)
def _known_statement(stated: bytes) -> StatedTerms:
    """Return what a client states, from the JSON of its values."""
    return _stated_terms(*from_json(stated))


def _stated_terms(version: JsonValue, declared: JsonValue, named: JsonValue, level: JsonValue) -> StatedTerms:
    """Return the terms of a request with these members of `_meta`; None stands for one that is absent."""
    if not isinstance(version, str):
        raise _invalid(PROTOCOL_VERSION, "must be a string")
    codec = CODECS.get(version)
    if codec is None or codec.revision.era is not MODERN_ERA:
        raise unsupported_version(version)
    if declared is None:
        raise _invalid(CLIENT_CAPABILITIES, "required since 2026-07-28; {} declares nothing")
    capabilities = validated(ClientCapabilities, declared, _path(CLIENT_CAPABILITIES))
    info = None if named is None else validated(Implementation, named, _path(CLIENT_INFO))
    return StatedTerms(codec, capabilities, info, LogThreshold(_log_level(level)))


_NO_META: Final = Encoded(b"{}")


def encoded_meta(meta: JsonObject) -> Encoded:
    # It was parsed, so it has nothing that JSON cannot say.
    return make_tuple(Encoded, (to_json(meta),)) if meta else _NO_META


def _log_level(value: object) -> LoggingLevel | None:
    if value is None:
        return None
    for level in LOGGING_LEVELS:
        if value == level:
            return level
    raise _invalid(LOG_LEVEL, f"must be one of {', '.join(LOGGING_LEVELS)}, not {str(value)[:64]!r}")


def _progress_token(meta: JsonObject) -> ProgressToken | None:
    token = as_integer(meta.get(PROGRESS_TOKEN))
    # As a request id: each report of progress repeats it.
    if token is None or is_request_id(token):
        return token
    raise _invalid(PROGRESS_TOKEN, f"must be a string of at most {MAX_ID_BYTES} bytes or an integer of at most 53 bits")


def _invalid(key: str, problem: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{_path(key)}: {problem}", code=INVALID_PARAMS)


def _path(key: str) -> str:
    return f'params._meta["{key}"]'


def plain_call(members: JsonObject) -> PlainCall | None:
    """Return the params of a `tools/call` that is plain; None if it has other members, or one that the model may reject."""
    name, arguments, meta = members.get("name"), members.get("arguments"), members.get("_meta")
    if type(name) is not str or type(arguments) is not dict:
        return None
    # Names are not compared with a set: that would take a third of the time of this function.
    if len(members) == 2 or (len(members) == 3 and type(meta) is dict):
        return make_tuple(PlainCall, (name, arguments, members))
    return None


def read_request(
    message: Request,
    inbound: Inbound | None,
    session: SessionTerms,
    sender: Side,
    unread: Unread = Unread.NONE,
    *,
    takes_plain: bool = False,
) -> tuple[RequestTerms, Params]:
    """Return the terms and the params of a request.

    Args:
        inbound: the same message, if it was classified before.
        unread: see `Codec.decode_request`.
        takes_plain: the params of a `tools/call` need no model, if it is plain.

    Raises:
        RemoteProtocolError: the error to answer with.
    """
    _, method, params = message
    if isinstance(params, Encoded):
        raise LocalProtocolError("a received message has decoded parameters")
    meta = params.get("_meta") if inbound is None else inbound.meta
    if isinstance(meta, dict) and PROTOCOL_VERSION in meta:
        terms = modern_terms(meta)
    else:
        terms = session.for_request(params)
        if session.phase is OPENING:
            session.check_phase(method)
    if takes_plain and method == PLAIN_METHOD and (plain := plain_call(params)) is not None:
        return terms, plain
    model = terms.codec.decode_request(method, params, sender=sender, unread=unread)
    # By its name: to ask pydantic for the type of a model takes half a microsecond, for every request.
    if method == "initialize" and isinstance(model, InitializeRequestParams):
        session.check_handshake(model)
    return terms, model
