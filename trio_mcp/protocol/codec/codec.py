"""One codec for each revision: with `downlevel` and `rewrites`, the place where messages of the revisions differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from ...errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from ...types import (
    CacheableResult,
    ClientCapabilities,
    InputRequiredResult,
    InputResponseRequestParams,
    JsonObject,
    JsonValue,
    Model,
    Result,
)
from ..jsonrpc import METHOD_NOT_FOUND, Encoded, decoded
from ..meta import SERVER_INFO
from ..revisions import REVISIONS, Era, Method, Revision, Side, unsupported_version
from ..strict_json import dumps
from ..validation import validated
from .downlevel import LATE_MEMBERS, Downlevel


class Codec:
    """Reads and writes the messages of one revision.

    Past this class every message is a typed model, and its revision does not matter. Reading raises `RemoteProtocolError` with
    the code to answer with; writing raises `LocalProtocolError` for what this revision or JSON itself cannot say.
    """

    __slots__ = ("_downlevel", "_modern", "_received", "revision")

    def __init__(self, revision: Revision) -> None:
        self.revision = revision
        self._modern = revision.era is Era.MODERN
        self._downlevel = Downlevel(revision.name)
        self._received = {
            sender: {name: method for name, method in revision.requests.items() if method.direction.allows(sender)}
            for sender in Side
        }

    def gate(self, method: str) -> str | None:
        """The capability that a request method needs, as `types.declares` takes it."""
        known = self.revision.requests.get(method)
        return None if known is None else known.gate

    @property
    def batches(self) -> bool:
        """Several messages may come in one array."""
        return self.revision.batches

    def decode_request(self, method: str, params: JsonObject, *, sender: Side) -> Model:
        """The params of a request. Raises -32601 for a method that `sender` cannot ask for, -32602 for bad params."""
        known = self._received[sender].get(method)
        if known is None:
            raise RemoteProtocolError(f"Method not found: {method[:128]}", code=METHOD_NOT_FOUND)
        return validated(_params_type(known, params), self._without_rounds(known, params), "params")

    def decode_notification(self, method: str, params: JsonObject, *, sender: Side) -> Model | None:
        """The params of a notification, or None for one that this revision does not know: those are ignored."""
        known = self.revision.notifications.get(method)
        if known is None or not known.direction.allows(sender):
            return None
        return validated(known.params, params, "params")

    def decode_result(self, method: str, result: JsonObject) -> Model:
        """The answer to a request of ours: its result type, or `InputRequiredResult` where rounds are possible.

        Raises:
            RemoteProtocolError: it is neither.
        """
        known = self._request(method)
        if not self._modern:
            return validated(_result_type(known), _without(LATE_MEMBERS, result), "result")
        match result.get("resultType", "complete"):
            case "complete":
                return validated(_result_type(known), {"resultType": "complete", **result}, "result")  # M-RPC-4c
            case "input_required" if has_rounds(known):
                return _asking(validated(InputRequiredResult, result, "result"), RemoteProtocolError)
            case other:
                raise RemoteProtocolError(f"result.resultType: {str(other)[:64]} is no answer to {method}")

    def encode_request(self, method: str, params: Model) -> Encoded:
        """The params of a request, as this revision writes them."""
        return self._encoded(params, _kind(params, *_params_types(self._request(method))), "params")

    def encode_notification(self, method: str, params: Model) -> Encoded:
        """The params of a notification, as this revision writes them."""
        known = self.revision.notifications.get(method)
        if known is None:
            raise self._lacks(method)
        return self._encoded(params, _kind(params, known.params), "params")

    def encode_result(self, method: str, result: Model, identity: Encoded | None = None) -> Encoded:
        """A result, as this revision writes it; a modern one gets the result type and cache hints that are not set.

        Args:
            identity: who the server is (an `Implementation`); modern results say it in their `_meta` (M-META-2s).
        """
        known = self._request(method)
        if not self._modern:
            return self._encoded(result, _kind(result, _result_type(known)), "result")
        if isinstance(result, InputRequiredResult) and has_rounds(known):
            return self._signed(_asking(result, LocalProtocolError), InputRequiredResult, identity)
        return self._signed(result, _kind(result, _result_type(known)), identity)

    def encode_round(
        self, method: str, asked: Mapping[str, tuple[str, Model]], state: str, identity: Encoded | None = None
    ) -> Encoded:
        """The interim result that asks these questions (method and params by key) and takes `state` back (M-MRTR-2s)."""
        if not has_rounds(self._request(method)):
            raise LocalProtocolError(f"{method} cannot be answered with questions")
        requests = b",".join(
            b'%b:{"method":%b,"params":%b}' % (dumps(key), dumps(question), self._question(question, params))
            for key, (question, params) in asked.items()
        )
        meta = b'"_meta":{"%b":%b},' % (SERVER_INFO.encode(), identity.raw) if identity is not None else b""
        parts = (meta, requests, dumps(state))
        return Encoded(b'{%b"resultType":"input_required","inputRequests":{%b},"requestState":%b}' % parts)

    def _question(self, method: str, params: Model) -> bytes:
        return self._encoded(params, _kind(params, *_params_types(self._input(method))), "params").raw

    def _signed(self, result: Model, kind: type[Model], identity: Encoded | None) -> Encoded:
        """With the members that every modern result has, and with the server's name."""
        own = result.meta if isinstance(result, Result) else None
        if identity is not None and own is not None and SERVER_INFO not in own:
            result = result.model_copy(update={"meta": {**own, SERVER_INFO: decoded(identity)}})
        raw = _with_defaults(self._encoded(result, kind, "result").raw, result)
        if identity is None or own is not None:
            return Encoded(raw)
        return Encoded(b'{"_meta":{"%b":%b},' % (SERVER_INFO.encode(), identity.raw) + raw[1:])

    def encode_input_response(self, method: str, result: Model) -> JsonObject:
        """The answer to a question of an interim result, as one value of `input_responses`."""
        return self._downlevel.wire(result, _kind(result, _result_type(self._input(method))))

    def decode_input_response(self, method: str, value: JsonValue, *, path: str = "params.inputResponses") -> Model:
        """The answer to a question of ours; `path` names it in the error: -32602 if it is malformed (M-MRTR-7s)."""
        return validated(_result_type(self._input(method)), value, path)

    def declared(self, capabilities: ClientCapabilities) -> JsonObject:
        """A client's capabilities as this revision writes them (M-META-1s: every modern request carries them)."""
        return self._downlevel.wire(capabilities, ClientCapabilities)

    def _request(self, method: str) -> Method:
        known = self.revision.requests.get(method)
        if known is None:
            raise self._lacks(method)
        return known

    def _input(self, method: str) -> Method:
        known = self.revision.inputs.get(method)
        if known is None:
            raise LocalProtocolError(f"{self.revision.name} has no input request {method}", code=METHOD_NOT_FOUND)
        return known

    def _lacks(self, method: str) -> LocalProtocolError:
        return LocalProtocolError(f"{self.revision.name} has no {method}", code=METHOD_NOT_FOUND)

    def _encoded(self, model: Model, kind: type[Model], root: str) -> Encoded:
        try:
            return Encoded(self._downlevel.encode(model, kind, root))
        except ValueError as error:
            raise LocalProtocolError(f"This cannot be sent as JSON: {error}") from None

    def _without_rounds(self, method: Method, params: JsonObject) -> JsonObject:
        """A legacy peer has no rounds: what it sends under their names is no answer to anything."""
        return params if self._modern or not has_rounds(method) else _without(_ROUNDS, params)

    def __repr__(self) -> str:
        return f"<Codec {self.revision.name}>"


_ROUNDS = frozenset({"inputResponses", "requestState"})


def _without(names: Collection[str], members: JsonObject) -> JsonObject:
    """What a peer sends under names that its revision does not have means nothing."""
    if members.keys().isdisjoint(names):
        return members
    return {name: value for name, value in members.items() if name not in names}


def has_rounds(method: Method) -> bool:
    """Whether an interim result may answer it: its params then have room for the answers (M-MRTR-1s)."""
    return issubclass(method.params, InputResponseRequestParams)


def _params_type(method: Method, params: JsonObject) -> type[Model]:
    if not method.modes:
        return method.params
    mode = params.get("mode")
    return method.modes.get(mode, method.params) if isinstance(mode, str) else method.params


def _params_types(method: Method) -> tuple[type[Model], ...]:
    return (method.params, *method.modes.values())


def _result_type(method: Method) -> type[Model]:
    assert method.result is not None, f"{method.name} is a notification"
    return method.result


def _kind(model: Model, *expected: type[Model]) -> type[Model]:
    """Which of the expected types `model` is; an author's subclass is written as the type it extends."""
    for kind in expected:
        if isinstance(model, kind):
            return kind
    names = " or ".join(kind.__name__ for kind in expected)
    raise LocalProtocolError(f"expected {names}, got {type(model).__name__}")


def _asking(result: InputRequiredResult, error: type[ProtocolError]) -> InputRequiredResult:
    """M-MRTR-2s: at least one of the two, and an empty round asks nothing."""
    if not result.input_requests and result.request_state is None:
        raise error("result: an input_required result needs inputRequests or requestState")
    return result


def _with_defaults(raw: bytes, result: Model) -> bytes:
    """Splices in what every modern result must have; the models leave it unset (M-RPC-3s, M-CACHE-1s)."""
    extra = b""
    if isinstance(result, Result) and result.result_type is None:
        extra = b'"resultType":"complete"'
    if isinstance(result, CacheableResult):
        extra += b',"ttlMs":0' if result.ttl_ms is None else b""
        extra += b',"cacheScope":"private"' if result.cache_scope is None else b""
    if not extra:
        return raw
    separator = b"" if raw == b"{}" else b","
    return b"{" + extra.removeprefix(b",") + separator + raw[1:]


CODECS: Mapping[str, Codec] = MappingProxyType({name: Codec(revision) for name, revision in REVISIONS.items()})


def codec_for(version: str) -> Codec:
    """The codec of a revision.

    Raises:
        RemoteProtocolError: -32022 with the supported versions, for one that is not spoken here (M-VER-1s).
    """
    codec = CODECS.get(version)
    if codec is None:
        raise unsupported_version(version)
    return codec
