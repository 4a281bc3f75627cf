"""What each revision lacks, as tables, and the walk that takes it out of a message.

The models are those of the newest revision together with what only older ones have. A message for a revision is the
model's JSON with the members that revision lacks taken out. A *shape* is a kind of JSON object, named as in the
specification's schema files. `CHILDREN` says where shapes stand in one another, `LACKS` which members of the next newer
revision a revision does not have, and `rewrites.REWRITES` what cannot be said by leaving a member out.

Most results need none of this: `plain` decides from the model alone, and then its bytes go out as pydantic wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from ...types import CallToolResult, JsonObject, JsonValue, ListToolsResult, Model, TextContent
from ...types.base import MetaModel
from ..meta import RESERVED
from ..revisions import MODERN, SUPPORTED
from ..strict_json import dumps
from .rewrites import REWRITES, Rewrite

CHILDREN: Final[Mapping[str, Mapping[str, str]]] = {
    "InitializeRequestParams": {"capabilities": "ClientCapabilities", "clientInfo": "Implementation"},
    "InitializeResult": {"capabilities": "ServerCapabilities", "serverInfo": "Implementation"},
    "DiscoverResult": {"capabilities": "ServerCapabilities"},
    "ClientCapabilities": {
        "roots": "RootsCapability",
        "sampling": "SamplingCapability",
        "elicitation": "ElicitationCapability",
    },
    "ListToolsResult": {"tools": "Tool"},
    "CallToolResult": {"content": "ContentBlock"},
    "ContentBlock": {"annotations": "Annotations", "resource": "ResourceContents"},
    "ListResourcesResult": {"resources": "Resource"},
    "Resource": {"annotations": "Annotations"},
    "ListResourceTemplatesResult": {"resourceTemplates": "ResourceTemplate"},
    "ResourceTemplate": {"annotations": "Annotations"},
    "ReadResourceResult": {"contents": "ResourceContents"},
    "ListPromptsResult": {"prompts": "Prompt"},
    "Prompt": {"arguments": "PromptArgument"},
    "GetPromptResult": {"messages": "PromptMessage"},
    "PromptMessage": {"content": "ContentBlock"},
    "CompleteRequestParams": {"ref": "PromptReference"},
    "ElicitRequestFormParams": {"requestedSchema": "RequestedSchema"},
    "CreateMessageRequestParams": {"messages": "SamplingMessage", "tools": "Tool"},
    "SamplingMessage": {"content": "SamplingMessageContentBlock"},
    "CreateMessageResult": {"content": "SamplingMessageContentBlock"},
    "SamplingMessageContentBlock": {"annotations": "Annotations", "content": "ContentBlock"},
    "ListRootsResult": {"roots": "Root"},
}
"""Where shapes stand: shape, member, shape of its value or of each item of it."""

LACKS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    # What 2026-07-28 removed; the chain below does not pass through it.
    MODERN: {
        "Tool": ("execution",),
        "ClientCapabilities": ("tasks",),
        "ServerCapabilities": ("tasks",),
        "RootsCapability": ("listChanged",),
        "ElicitRequestURLParams": ("elicitationId",),
    },
    # From here on: what the revision lacks beside the one after it, and so does every older one.
    "2025-11-25": {
        "ClientCapabilities": ("extensions",),
        "ServerCapabilities": ("extensions",),
    },
    "2025-06-18": {
        "Implementation": ("description", "icons", "websiteUrl"),
        "ClientCapabilities": ("tasks",),
        "ServerCapabilities": ("tasks",),
        "SamplingCapability": ("tools", "context"),
        "ElicitationCapability": ("form", "url"),
        "Tool": ("icons", "execution"),
        "Prompt": ("icons",),
        "Resource": ("icons",),
        "ResourceTemplate": ("icons",),
        "ContentBlock": ("icons",),
        "ElicitRequestFormParams": ("mode",),
        "RequestedSchema": ("$schema",),
        "CreateMessageRequestParams": ("tools", "toolChoice"),
        "SamplingMessage": ("_meta",),
    },
    "2025-03-26": {
        "Implementation": ("title",),
        "ClientCapabilities": ("elicitation",),
        "Annotations": ("lastModified",),
        "Tool": ("title", "outputSchema", "_meta"),
        "CallToolResult": ("structuredContent",),
        "Prompt": ("title", "_meta"),
        "PromptArgument": ("title",),
        "PromptReference": ("title",),
        "Resource": ("title", "_meta"),
        "ResourceTemplate": ("title", "_meta"),
        "ResourceContents": ("_meta",),
        "ContentBlock": ("_meta",),
        "SamplingMessageContentBlock": ("_meta",),
        "Root": ("_meta",),
        "CompleteRequestParams": ("context",),
    },
    "2024-11-05": {
        "ServerCapabilities": ("completions",),
        "Tool": ("annotations",),
        "ProgressNotificationParams": ("message",),
    },
}

LATE_FIELDS: Final = frozenset({"result_type", "ttl_ms", "cache_scope", "input_responses", "request_state"})
"""Fields of every result or request that only the modern era has."""

LATE_MEMBERS: Final = ("resultType", "ttlMs", "cacheScope", "inputResponses", "requestState")


@dataclass(frozen=True, slots=True)
class Shape:
    """What to do to one kind of object: rewrite it, then drop members, then do the same inside it."""

    rewrites: tuple[Rewrite, ...]
    lacks: tuple[str, ...]
    children: tuple[tuple[str, Shape], ...]

    def __bool__(self) -> bool:
        return bool(self.rewrites or self.lacks or self.children)

    def narrow(self, value: JsonValue) -> None:
        """Changes `value`, an object or an array of them, in place."""
        if isinstance(value, list):
            for item in value:
                self.narrow(item)
        elif isinstance(value, dict):
            self._narrow(value)

    def _narrow(self, value: JsonObject) -> None:
        for rewrite in self.rewrites:
            rewrite(value)
        for member in self.lacks:
            value.pop(member, None)
        for member, child in self.children:
            child.narrow(value.get(member))


@cache
def shape(version: str, name: str) -> Shape:
    """The shape of that name in a revision, composed from the tables; children that need nothing are left out."""
    versions = _from_newest(version)
    children = [(member, shape(version, child)) for member, child in CHILDREN.get(name, {}).items()]
    return Shape(
        rewrites=tuple(rewrite for each in versions for rewrite in REWRITES.get(each, {}).get(name, ())),
        lacks=tuple(member for each in versions for member in LACKS.get(each, {}).get(name, ())),
        children=tuple((member, child) for member, child in children if child),
    )


def _from_newest(version: str) -> tuple[str, ...]:
    if version == MODERN:
        return (MODERN,)
    return SUPPORTED[1 : SUPPORTED.index(version) + 1]


class Downlevel:
    """Writes models as one revision has them."""

    __slots__ = ("_legacy", "_version")

    def __init__(self, version: str) -> None:
        self._version = version
        self._legacy = version != MODERN

    def encode(self, model: Model, kind: type[Model], root: str) -> bytes:
        """The bytes of `model`, which is a `kind`; `root` is what an error calls it.

        Raises:
            ValueError: JSON cannot carry a value in it.
            LocalProtocolError: the revision cannot say it.
        """
        form = shape(self._version, kind.__name__)
        if not self._plain(model, kind, form):
            return dumps(self._narrowed(model, form), root)
        try:
            return model.encode()
        except ValueError:
            return dumps(model.wire(), root)  # raises too, and says where

    def wire(self, model: Model, kind: type[Model]) -> JsonObject:
        """The JSON object of `model`. Raises as `encode` does, but looks for nothing that JSON cannot carry."""
        return self._narrowed(model, shape(self._version, kind.__name__))

    def _plain(self, model: Model, kind: type[Model], form: Shape) -> bool:
        if self._legacy and _has_late_members(model):
            return False
        if not form:
            return True
        test = PLAIN.get(kind)
        return test is not None and test(model, form)

    def _narrowed(self, model: Model, form: Shape) -> JsonObject:
        wire = model.wire()
        form.narrow(wire)
        if self._legacy:
            _drop_late_members(wire)
        return wire


def _has_late_members(model: Model) -> bool:
    if not model.model_fields_set.isdisjoint(LATE_FIELDS):
        return True
    return isinstance(model, MetaModel) and bool(model.meta) and not RESERVED.isdisjoint(model.meta or ())


def _drop_late_members(wire: JsonObject) -> None:
    for member in LATE_MEMBERS:
        wire.pop(member, None)
    meta = wire.get("_meta")
    if isinstance(meta, dict) and not RESERVED.isdisjoint(meta):
        kept = {key: value for key, value in meta.items() if key not in RESERVED}
        wire.pop("_meta")
        wire.update({"_meta": kept} if kept else {})


_PLAIN_TEXT: Final = frozenset({"type", "text"})


def _plain_call(model: Model, form: Shape) -> bool:
    """The common answer of a tool is the same in every revision: bare text, and perhaps an object."""
    assert isinstance(model, CallToolResult)
    if "structured_content" in model.model_fields_set:
        known = "structuredContent" not in form.lacks
        if not known or not isinstance(model.structured_content, dict):
            return False
    return all(type(block) is TextContent and block.model_fields_set <= _PLAIN_TEXT for block in model.content)


def _plain_tools(model: Model, form: Shape) -> bool:
    """Modern listings only lose `execution`, which is never set."""
    assert isinstance(model, ListToolsResult)
    rewritten = any(child.rewrites or child.lacks != ("execution",) for _, child in form.children)
    return not rewritten and all(tool.execution is None for tool in model.tools)


PLAIN: Final[Mapping[type[Model], Callable[[Model, Shape], bool]]] = {
    CallToolResult: _plain_call,
    ListToolsResult: _plain_tools,
}
"""For shapes that may need work: whether this model needs none of it."""
