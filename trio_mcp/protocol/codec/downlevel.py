"""What each revision lacks, as tables, and the walk that takes it out of a message.

The models are those of the newest revision together with what only older ones have. A message for a revision is the
model's JSON with the members that revision lacks taken out. A *shape* is a kind of JSON object, named as in the
specification's schema files. `CHILDREN` says where shapes stand in one another, `LACKS` which members of the next newer
revision a revision does not have, and `rewrites.REWRITES` what cannot be said by leaving a member out.

Most messages need none of this, and `writing` finds out from the model alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from ...types import JsonObject, JsonValue, Model
from ...types.base import field_name
from ..revisions import MODERN, RESERVED, SUPPORTED
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
    "ListTasksResult": {"tasks": "Task"},
}
"""Where shapes stand: shape, member, shape of its value or of each item of it."""

LACKS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    # What 2026-07-28 removed; the chain below does not pass through it.
    MODERN: {
        "Tool": ("execution",),
        "ClientCapabilities": ("tasks",),
        "ServerCapabilities": ("tasks",),
        "RootsCapability": ("listChanged",),
        "CallToolRequestParams": ("task",),
        "CreateMessageRequestParams": ("task",),
        "ElicitRequestFormParams": ("task",),
        "ElicitRequestURLParams": ("elicitationId", "task"),
    },
    # From here on: what the revision lacks beside the one after it, and so does every older one.
    "2025-11-25": {"ClientCapabilities": ("extensions",), "ServerCapabilities": ("extensions",)},
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
        "CallToolRequestParams": ("task",),
        "ElicitRequestFormParams": ("mode", "task"),
        "RequestedSchema": ("$schema",),
        "CreateMessageRequestParams": ("tools", "toolChoice", "task"),
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

LATE_MEMBERS: Final = ("resultType", "ttlMs", "cacheScope", "inputResponses", "requestState")
"""Members of every result or request that only the modern era has."""


class Shape:
    """What to do to one kind of object: rewrite it, then drop members, then do the same inside it."""

    __slots__ = ("children", "dropped", "lacks", "rewrites")

    def __init__(
        self, rewrites: tuple[Rewrite, ...], lacks: tuple[str, ...], children: tuple[tuple[str, Shape], ...]
    ) -> None:
        self.rewrites = rewrites
        self.lacks = lacks
        self.children = children
        only_drops = not rewrites and not children and all(map(str.isidentifier, lacks))
        self.dropped = frozenset({*lacks, *map(field_name, lacks)}) if only_drops else None
        """Where members are dropped and nothing else is done: their names, also as fields. None elsewhere."""

    def narrow(self, value: JsonValue) -> None:
        """Changes `value`, an object or an array of them, in place."""
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                self._narrow(item)

    def _narrow(self, value: JsonObject) -> None:
        for rewrite in self.rewrites:
            rewrite(value)
        for member in self.lacks:
            value.pop(member, None)
        for member, child in self.children:
            child.narrow(value.get(member))


@cache
def shape(version: str, name: str) -> Shape | None:
    """The shape of that name in a revision, composed from the tables; None where nothing is to be done."""
    versions = _from_newest(version)
    children = [(member, shape(version, child)) for member, child in CHILDREN.get(name, {}).items()]
    composed = Shape(
        rewrites=tuple(rewrite for each in versions for rewrite in REWRITES.get(each, {}).get(name, ())),
        lacks=tuple(member for each in versions for member in LACKS.get(each, {}).get(name, ())),
        children=tuple((member, child) for member, child in children if child is not None),
    )
    return composed if composed.rewrites or composed.lacks or composed.children else None


def _from_newest(version: str) -> tuple[str, ...]:
    if version == MODERN:
        return (MODERN,)
    return SUPPORTED[1 : SUPPORTED.index(version) + 1]


def narrowed(version: str, model: Model, kind: type[Model]) -> JsonObject:
    """The JSON object of `model`, which is a `kind`, as a revision has it.

    Raises:
        LocalProtocolError: the revision cannot say it.
    """
    wire = model.wire()
    form = shape(version, kind.__name__)
    if form is not None:
        form.narrow(wire)
    if version != MODERN:
        drop_late_members(wire)
    return wire


def drop_late_members(wire: JsonObject) -> None:
    """Take out what only the modern era has in every result or request."""
    for member in LATE_MEMBERS:
        wire.pop(member, None)
    meta = wire.get("_meta")
    if isinstance(meta, dict) and not RESERVED.isdisjoint(meta):
        kept = {key: value for key, value in meta.items() if key not in RESERVED}
        wire.pop("_meta")
        wire.update({"_meta": kept} if kept else {})
