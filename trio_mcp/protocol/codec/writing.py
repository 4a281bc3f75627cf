"""Models to the bytes of one revision."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, TypeGuard
from weakref import ref

from pydantic_core import to_json

from ... import types
from ...base.named_tuples import NamedTuple
from ...base.values import make_tuple
from ...errors import LocalProtocolError
from ...types import (
    CallToolResult,
    ClientCapabilities,
    JsonObject,
    JsonValue,
    Model,
    RequestParams,
    Result,
)
from ...types.base import MetaModel, field_name
from ..jsonrpc import METHOD_NOT_FOUND, Encoded, decoded
from ..revisions import (
    CLIENT_CAPABILITIES,
    RESERVED,
    SERVER_INFO,
    TASKS_EXTENSION,
    Era,
    Method,
    Revision,
    TaskStyle,
)
from ..shown_text import CANNOT_SEND, dump_shown
from ..strict_json import is_sendable
from .downlevel import LATE_MEMBERS, Shape, drop_late_members, narrowed, shape
from .unknown import NO_PARAMS, UnknownParams, UnknownResult

LATE_FIELDS: Final = frozenset(map(field_name, LATE_MEMBERS))
"""Fields of every result or request that only the modern era has."""

ASKS_NOTHING: Final = "result: an input_required result needs inputRequests or requestState"
"""The error of an interim result that is empty (M-MRTR-2s)."""

_PLAIN_TEXT: Final = frozenset({"type", "text"})

_SERVER_INFO: Final = SERVER_INFO.encode()

_CONTENT_ALONE: Final = frozenset({"content"})


class Writer:
    """Writes the messages of one revision.

    Raises:
        LocalProtocolError: by every method, for what this revision or JSON itself cannot say.
    """

    __slots__ = ("_decides", "_forms", "_modern", "_requests", "_rounds", "name", "revision")

    def __init__(self, revision: Revision) -> None:
        self.revision = revision
        # Again, because each request asks for both, and to read a member of a named tuple takes much longer.
        self.name = revision.name
        self._requests = revision.requests
        self._modern = revision.era is Era.MODERN
        self._decides = revision.tasks is TaskStyle.DECLARED
        """Whether the server decides if a request becomes a task."""
        self._forms: dict[int, FormTemplate] = {}
        """By the identity of the schema, for as long as that exists."""
        # An interim result may answer these requests: their params have room for the answers (M-MRTR-1s).
        self._rounds = frozenset(name for name, known in revision.requests.items() if known.asks)

    def can_ask(self, method: str, params: Model) -> bool:
        """Return whether a server can put this question to its client: the method exists, and its mode if it has modes."""
        known = (self.revision.inputs if self._modern else self.revision.requests).get(method)
        return known is not None and isinstance(params, (known.params, *known.modes.values()))

    def can_notify(self, method: str) -> bool:
        """Return whether this revision has a notification."""
        return method in self.revision.notifications

    def new_request(self, method: str, params: Model | JsonObject) -> tuple[Encoded | JsonObject, bool]:
        """The params of a request of ours, as this revision writes them, and whether it takes a task as its answer.

        Args:
            params: a model, or the members that pass unread.
        """
        may_be_task = self.expects_task(method, params)
        if not isinstance(params, dict):
            return self.encode_request(method, params), may_be_task
        if not self._modern:
            params = dict(params)
            drop_late_members(params)
        return _dumped(params, "params") if params else NO_PARAMS, may_be_task

    def expects_task(self, method: str, params: Model | JsonObject) -> bool:
        """Return whether the sender of a request takes a task as its answer (M-TSK-1, L-TSK-1), by its params alone: they hold
        what a modern client declares.
        """
        known = self._requests.get(method)
        if known is None or known.as_task is None:
            return False
        if not self._decides:
            return wanted_task(params)
        if isinstance(params, dict):
            return _declares_extension(params.get("_meta"))
        return isinstance(params, RequestParams) and _declares_extension(params.meta)

    def encode_request(self, method: str, params: Model) -> Encoded:
        """The params of a request, as this revision writes them."""
        kind = _params_kind(params, self._known(self.revision.requests, method))
        return self._encode_form(params, kind) if is_bare_form(params) else self.encode(params, kind, "params")

    def encode_notification(self, method: str, params: Model) -> Encoded:
        """The params of a notification, as this revision writes them."""
        if type(params) is UnknownParams:
            return self.encode(params, UnknownParams, "params")
        return self.encode(params, _kind(params, self._known(self.revision.notifications, method).params), "params")

    def encode_result(self, method: str, result: Model | str, identity: Encoded | None = None) -> Encoded:
        """A result, as this revision writes it; a modern one gets the result type and cache hints that are not set.

        Args:
            result: a text stands for the result of a tool that has this text and nothing else.
            identity: who the server is (an `Implementation`); modern results say it in their `_meta` (M-META-2s).
        """
        if isinstance(result, str):
            try:
                return self._text_result(to_json(result), identity)
            except ValueError:  # raised again on the general way, with the member at fault
                result = CallToolResult(content=[types.TextContent(text=result)])
        known = self._requests.get(method)
        if type(result) is UnknownResult:
            return (
                self._signed(result, UnknownResult, identity)
                if self._modern
                else self.encode(result, UnknownResult, "result")
            )
        if known is None:
            raise self._lacks(method)
        if type(result) is CallToolResult and known.result is CallToolResult:
            text = _bare_text(result)
            if text is not None:
                return self._text_result(text, identity)
        if self._modern and method in self._rounds and isinstance(result, types.InputRequiredResult):
            if not result.input_requests and result.request_state is None:
                raise LocalProtocolError(ASKS_NOTHING)
            return self._signed(result, types.InputRequiredResult, identity)
        may_be = (_result_type(known),) if known.as_task is None else (_result_type(known), types.CreateTaskResult)
        kind = _kind(result, *may_be)
        return self._signed(result, kind, identity) if self._modern else self.encode(result, kind, "result")

    def _text_result(self, text: bytes, identity: Encoded | None) -> Encoded:
        begin = _begin_modern(identity) if self._modern else (b"{",)
        return make_tuple(Encoded, (b"".join((*begin, _BEFORE_TEXT, text, _AFTER_TEXT)),))

    def encode_round(
        self, method: str, asked: Mapping[str, tuple[str, Model]], state: str, identity: Encoded | None = None
    ) -> Encoded:
        """The interim result that asks these questions (method and params by key) and takes `state` back (M-MRTR-2s).

        Args:
            state: a sealed state: text that JSON holds without escapes.
        """
        self._known(self.revision.requests, method)
        if method not in self._rounds:
            raise LocalProtocolError(f"{method} cannot be answered with questions")
        requests = self._questions(asked)
        meta = b'"_meta":{"%b":%b},' % (SERVER_INFO.encode(), identity.raw) if identity is not None else b""
        parts = (meta, requests, state.encode())
        return Encoded(b'{%b"resultType":"input_required","inputRequests":%b,"requestState":"%b"}' % parts)

    def _questions(self, asked: Mapping[str, tuple[str, Model]]) -> bytes:
        written = [
            b'%b:{"method":"%b","params":%b}'
            % (to_json(key), question.encode(), self.encode_question(question, params))
            for key, (question, params) in asked.items()
        ]
        return b"{%b}" % b",".join(written)

    def encode_question(self, method: str, params: Model) -> bytes:
        """The params of a question in an interim result, as this revision writes them."""
        kind = _params_kind(params, self._input(method))
        return (self._encode_form(params, kind) if is_bare_form(params) else self.encode(params, kind, "params")).raw

    def _encode_form(self, params: types.ElicitRequestFormParams, kind: type[Model]) -> Encoded:
        """The params of a form; only its message is encoded, if its schema was encoded before."""
        schema = params.requested_schema
        template = self._forms.get(id(schema))
        try:
            text = to_json(params.message)
        except ValueError:
            text = b"NaN"
        if not is_sendable(text):  # encoded, or refused, on the general way
            return self.encode(params, kind, "params")
        if template is None:
            encoded = self.encode(params, kind, "params")
            before, _, after = encoded.raw.partition(_MESSAGE + text)
            forget = partial(_forget, self._forms, id(schema))
            self._forms[id(schema)] = FormTemplate(ref(schema, forget), before + _MESSAGE, after)
            return encoded
        return make_tuple(Encoded, (b"".join((template.before, text, template.after)),))

    def _signed(self, result: Model, kind: type[Model], identity: Encoded | None) -> Encoded:
        """With the members that every modern result has, and with the server's name."""
        own = result.meta if isinstance(result, Result) else None
        if identity is not None and own is not None and SERVER_INFO not in own:
            result = result.model_copy(update={"meta": {**own, SERVER_INFO: decoded(identity)}})
        raw = _with_defaults(self.encode(result, kind, "result").raw, result)
        if identity is None or own is not None:
            return Encoded(raw)
        return Encoded(b'{"_meta":{"%b":%b},' % (SERVER_INFO.encode(), identity.raw) + raw[1:])

    def encode_input_response(self, method: str, result: Model) -> JsonObject:
        """The answer to a question of an interim result, as one value of `input_responses`."""
        return narrowed(self.revision.name, result, _kind(result, _result_type(self._input(method))))

    def declared(self, capabilities: ClientCapabilities) -> JsonObject:
        """A client's capabilities as this revision writes them (M-META-1s: every modern request carries them)."""
        return narrowed(self.revision.name, capabilities, ClientCapabilities)

    def encode(self, model: Model, kind: type[Model], root: str) -> Encoded:
        """The bytes of `model`, which is a `kind`; `root` is what an error calls it.

        Most messages are the same in every revision: pydantic's bytes then go out as they are.
        """
        form = shape(self.revision.name, kind.__name__)
        is_known = kind is not UnknownParams and kind is not UnknownResult
        if is_known and _is_plain(model, form) and (self._modern or not _has_late_members(model)):
            unset = model.sent_if_set and model.left_out()
            try:
                raw = to_json(model, by_alias=True, exclude_none=True, exclude=unset)
            except ValueError:  # raised again below, with the member at fault
                raw = b"NaN"
            # JSON has no such numbers (RFC 8259, 6); `dump_shown` tells whether the words stand in strings only.
            if is_sendable(raw):
                return Encoded(raw)
        return _dumped(narrowed(self.revision.name, model, kind), root)

    def _input(self, method: str) -> Method:
        return self._known(self.revision.inputs, method, "input request ")

    def _known(self, methods: Mapping[str, Method], method: str, kind: str = "") -> Method:
        known = methods.get(method)
        if known is None:
            raise self._lacks(kind + method)
        return known

    def _lacks(self, method: str) -> LocalProtocolError:
        return LocalProtocolError(f"{self.revision.name} has no {method}", code=METHOD_NOT_FOUND)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.revision.name}>"


class FormTemplate(NamedTuple):
    """The params of a form without their message."""

    schema: ref[Model]
    before: bytes
    after: bytes


_MESSAGE: Final = b'"message":'


def _forget(forms: dict[int, FormTemplate], schema: int, _ref: ref[Model]) -> None:
    forms.pop(schema, None)


def is_bare_form(params: Model) -> TypeGuard[types.ElicitRequestFormParams]:
    """Return whether these are the params of a form with a mode, a message, a schema and nothing else."""
    # By its name: the type is loaded with the first question.
    if type(params).__name__ != "ElicitRequestFormParams" or type(params) is not types.ElicitRequestFormParams:
        return False
    return params.mode == "form" and params.meta is None and params.task is None and not params.__pydantic_extra__


def _dumped(wire: JsonObject, root: str) -> Encoded:
    try:
        return Encoded(dump_shown(wire, root))
    except ValueError as error:
        raise LocalProtocolError(CANNOT_SEND.format(error)) from None


def _declares_extension(meta: JsonValue) -> bool:
    """Whether a modern request of ours, with this `_meta`, declares the extension."""
    declared = meta.get(CLIENT_CAPABILITIES) if isinstance(meta, dict) else None
    extensions = declared.get("extensions") if isinstance(declared, dict) else None
    return isinstance(extensions, dict) and TASKS_EXTENSION in extensions


def wanted_task(params: Model | JsonObject) -> bool:
    """Return whether the params of a legacy request ask for a task."""
    match params:
        case types.CallToolRequestParams(task=task) | types.CreateMessageRequestParams(task=task):
            return task is not None
        case types.ElicitRequestFormParams(task=task) | types.ElicitRequestURLParams(task=task):
            return task is not None
        case _:
            return False


def _result_type(method: Method) -> type[Model]:
    """The type of a request's result."""
    assert method.result is not None, f"{method.name} is a notification"
    return method.result


def _params_kind(params: Model, method: Method) -> type[Model]:
    return _kind(params, method.params, *method.modes.values())


def _kind(model: Model, *expected: type[Model]) -> type[Model]:
    """Which of the expected types `model` is; an author's subclass is written as the type it extends."""
    for kind in expected:
        if isinstance(model, kind):
            return kind
    names = " or ".join(kind.__name__ for kind in expected)
    raise LocalProtocolError(f"expected {names}, got {type(model).__name__}")


def _has_late_members(model: Model) -> bool:
    if not model.model_fields_set.isdisjoint(LATE_FIELDS):
        return True
    return isinstance(model, MetaModel) and bool(model.meta) and not RESERVED.isdisjoint(model.meta or ())


def _is_plain(model: Model, form: Shape | None) -> bool:
    """Whether pydantic's bytes of a model are those of the revision. Where it may differ, two kinds are looked at."""
    structured = "structured_content" in model.model_fields_set
    match model:
        case CallToolResult(structured_content=None) if structured:
            return False  # a null, which pydantic leaves out
        case _ if form is None:
            return True
        case _ if form.dropped is not None:
            return model.model_fields_set.isdisjoint(form.dropped)
        case CallToolResult(content=content):
            # Bare text, and perhaps an object, is the same in every revision that has the member.
            if structured and ("structuredContent" in form.lacks or not isinstance(model.structured_content, dict)):
                return False
            return all(type(block) is types.TextContent and block.model_fields_set <= _PLAIN_TEXT for block in content)
        case _ if "tools" not in model.model_fields_set:
            return False  # not a page of tools, whose type is loaded with the first one
        case types.ListToolsResult(tools=tools):
            # Modern listings only lose `execution`, which is hardly ever set.
            rewritten = any(child.rewrites or child.lacks != ("execution",) for _, child in form.children)
            return not rewritten and all(tool.execution is None for tool in tools)
        case _:
            return False


_BEFORE_TEXT: Final = b'"content":[{"type":"text","text":'
_AFTER_TEXT: Final = b"}]}"


def _bare_text(result: CallToolResult) -> bytes | None:
    """Return the text of a result that is one bare text, which all revisions write alike, as JSON; None for any other.

    Most results of tools are that, and the general way takes several times longer.
    """
    content = result.content
    # What `model_fields_set` returns, without the call of the property.
    if len(content) != 1 or result.__pydantic_fields_set__ != _CONTENT_ALONE:
        return None
    block = content[0]
    if type(block) is not types.TextContent or not block.__pydantic_fields_set__ <= _PLAIN_TEXT:
        return None
    return _json_text(block.text) if type(block.text) is str else None


def _json_text(text: str) -> bytes | None:
    try:
        return to_json(text)
    except ValueError:  # raised again on the general way, with the member at fault
        return None


def _begin_modern(identity: Encoded | None) -> tuple[bytes, ...]:
    """Return the parts with which a modern result begins, to be joined: formatting takes forty times as long for a megabyte."""
    if identity is None:
        return (b'{"resultType":"complete",',)
    return b'{"_meta":{"', _SERVER_INFO, b'":', identity.raw, b'},"resultType":"complete",'


def _with_defaults(raw: bytes, result: Model) -> bytes:
    """Splices in what every modern result must have; the models leave it unset (M-RPC-3s, M-CACHE-1s)."""
    extra = b""
    if isinstance(result, Result) and result.result_type is None:
        extra = b'"resultType":"complete"'
    if isinstance(result, types.CacheableResult):
        extra += b',"ttlMs":0' if result.ttl_ms is None else b""
        extra += b',"cacheScope":"private"' if result.cache_scope is None else b""
    if not extra:
        return raw
    separator = b"" if raw == b"{}" else b","
    return b"{" + extra.removeprefix(b",") + separator + raw[1:]
