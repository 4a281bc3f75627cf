"""What an older revision says differently: small functions that change one JSON object in place.

They run from the newest revision to the oldest, before members are left out. What cannot be said at all without
changing its meaning is refused with `LocalProtocolError`, naming the member: a question to a user must not silently
become another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from ...errors import LocalProtocolError
from ...types import JsonObject, JsonValue
from ..jsonrpc import INVALID_PARAMS
from ..strict_json import dumps

Rewrite: TypeAlias = Callable[[JsonObject], None]

OLD_TASK_NAMES: Final[Mapping[str, str]] = {"ttlMs": "ttl", "pollIntervalMs": "pollInterval"}
"""Members of a task, and their names in 2025-11-25."""

TOOL_BLOCKS: Final = ("tool_use", "tool_result")
"""The blocks that sampling has for tools."""


def _only_object_output(tool: JsonObject) -> None:
    """`outputSchema` describes an object until 2025-11-25."""
    schema = tool.get("outputSchema")
    if isinstance(schema, dict) and schema.get("type") != "object":
        del tool["outputSchema"]


def _plain_properties(tool: JsonObject) -> None:
    """A property's schema is an object until 2025-11-25: `true` and `false` are written as such."""
    for name in ("inputSchema", "outputSchema"):
        schema = tool.get(name)
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if isinstance(schema, dict) and isinstance(properties, dict):
            schema["properties"] = {key: _as_object(value) for key, value in properties.items()}


def _as_object(schema: JsonValue) -> JsonValue:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema


def _only_object_content(result: JsonObject) -> None:
    """`structuredContent` is an object until 2025-11-25; the text block beside it says the same."""
    if not isinstance(result.get("structuredContent"), dict):
        result.pop("structuredContent", None)


def _needs_elicitation_id(params: JsonObject) -> None:
    if "elicitationId" not in params:
        raise _refused("params.elicitationId: required until 2025-11-25 for a URL elicitation")


def _only_form_elicitation(capabilities: JsonObject) -> None:
    """In 2025-06-18 any `elicitation` capability means forms: one that is for URLs alone is not declared."""
    elicitation = capabilities.get("elicitation")
    if isinstance(elicitation, dict) and "url" in elicitation and "form" not in elicitation:
        del capabilities["elicitation"]


def _narrow_form(schema: JsonObject) -> None:
    properties = schema.get("properties")
    if isinstance(properties, dict):
        schema["properties"] = {name: _narrow_property(name, value) for name, value in properties.items()}


def _narrow_property(name: str, schema: JsonValue) -> JsonValue:
    """2025-06-18 has defaults for booleans only, labels as `enumNames`, and no choice of several."""
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if kind == "array":
        raise _refused(f"params.requestedSchema.properties.{name}: 2025-06-18 has no choice of several values")
    lost = {"oneOf"} if kind == "boolean" else {"oneOf", "default"}
    narrowed = {key: value for key, value in schema.items() if key not in lost}
    options = schema.get("oneOf")
    if isinstance(options, list):
        narrowed["enum"] = [option["const"] for option in options if isinstance(option, dict)]
        narrowed["enumNames"] = [option["title"] for option in options if isinstance(option, dict)]
    return narrowed


def _no_tools_in_sampling(params: JsonObject) -> None:
    if params.get("tools") or "toolChoice" in params:
        raise _refused("params.tools: sampling has tools since 2025-11-25")


def _single_block(result: JsonObject) -> None:
    """An answer of one block is that block: servers of the official SDK take no array unless they have sent tools."""
    content = result.get("content")
    if isinstance(content, list) and len(content) == 1:
        result["content"] = content[0]


def _single_plain_block(message: JsonObject) -> None:
    """So is a message without tools. Uses and results of tools stay in an array, as the examples of the specification are."""
    content = message.get("content")
    if isinstance(content, list) and len(content) == 1 and _is_plain(content[0]):
        message["content"] = content[0]


def _is_plain(block: JsonValue) -> bool:
    return isinstance(block, dict) and block.get("type") not in TOOL_BLOCKS


def _one_block_for_each_message(params: JsonObject) -> None:
    """A message is one block until 2025-06-18: several blocks become several messages of the same role."""
    messages = params.get("messages")
    if isinstance(messages, list):
        params["messages"] = [single for message in messages for single in _split(message)]


def _split(message: JsonValue) -> list[JsonValue]:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(content, list):
        return [message]
    return [{**message, "content": block} for block in content]


def _one_block(result: JsonObject) -> None:
    """The same for an answer, of which there is only one: several blocks become one text."""
    content = result.get("content")
    if isinstance(content, list):
        result["content"] = _text("\n".join(map(_described, content)))


def _described(block: JsonValue) -> str:
    """Return a block as text."""
    return _BY_TYPE.get(str(block.get("type")), _omitted)(block) if isinstance(block, dict) else ""


def _unknown_to_text(*types: str) -> Rewrite:
    """Blocks of these types become a text that says what they were."""

    def rewrite(block: JsonObject) -> None:
        if block.get("type") not in types:
            return
        kept = {"annotations": block["annotations"]} if "annotations" in block else {}
        text = _described(block)
        block.clear()
        block.update(_text(text), **kept)

    return rewrite


def _omitted(block: JsonObject) -> str:
    return f"[{block.get('type')} content, {block.get('mimeType')}: not shown, this protocol revision cannot carry it]"


def _link(block: JsonObject) -> str:
    about = f": {block['description']}" if "description" in block else ""
    return f"[resource link: {block.get('title') or block.get('name')} <{block.get('uri')}>{about}]"


def _tool_use(block: JsonObject) -> str:
    return f"[call of tool {block.get('name')}, {block.get('id')}: {dumps(block.get('input')).decode()}]"


def _tool_result(block: JsonObject) -> str:
    content = block.get("content")
    said = "\n".join(map(_described, content)) if isinstance(content, list) else ""
    return f"[result of tool call {block.get('toolUseId')}]\n{said}"


_BY_TYPE: Final[Mapping[str, Callable[[JsonObject], str]]] = {
    "text": lambda block: str(block.get("text")),
    "resource_link": _link,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
}


def _old_task(task: JsonObject) -> None:
    """A task names its times otherwise in 2025-11-25, and has neither questions nor an outcome in it."""
    for member in ("inputRequests", "result", "error"):
        task.pop(member, None)
    for name, old in OLD_TASK_NAMES.items():
        if name in task:
            task[old] = task.pop(name)


def _nested_task(result: JsonObject) -> None:
    """The task that was created is a member of the result."""
    task = {name: result.pop(name) for name in list(result) if name != "_meta"}
    task.pop("resultType", None)
    _old_task(task)
    result["task"] = task


def _flat_task(result: JsonObject) -> None:
    """The answer to a cancel is the task."""
    task = result.pop("task", None)
    if not isinstance(task, dict):
        raise LocalProtocolError("result.task: required in 2025-11-25 in the answer to tasks/cancel")
    _old_task(task)
    result.update(task)


def _acknowledgement(result: JsonObject) -> None:
    """The answer to a cancel says nothing of the task."""
    result.pop("task", None)


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _refused(message: str) -> LocalProtocolError:
    return LocalProtocolError(message, code=INVALID_PARAMS)


_SAMPLES: Final[Mapping[str, tuple[Rewrite, ...]]] = {
    "SamplingMessage": (_single_plain_block,),
    "CreateMessageResult": (_single_block,),
}

REWRITES: Final[Mapping[str, Mapping[str, tuple[Rewrite, ...]]]] = {
    "2026-07-28": {"CancelTaskResult": (_acknowledgement,), **_SAMPLES},
    "2025-11-25": {
        **_SAMPLES,
        "Tool": (_only_object_output, _plain_properties),
        "CallToolResult": (_only_object_content,),
        "SamplingMessageContentBlock": (_only_object_content,),
        "ElicitRequestURLParams": (_needs_elicitation_id,),
        "Task": (_old_task,),
        "CreateTaskResult": (_nested_task,),
        "GetTaskResult": (_old_task,),
        "CancelTaskResult": (_flat_task,),
        "TaskStatusNotificationParams": (_old_task,),
    },
    "2025-06-18": {
        "ClientCapabilities": (_only_form_elicitation,),
        "RequestedSchema": (_narrow_form,),
        "CreateMessageRequestParams": (_no_tools_in_sampling, _one_block_for_each_message),
        "CreateMessageResult": (_one_block,),
        "SamplingMessageContentBlock": (_unknown_to_text(*TOOL_BLOCKS),),
    },
    "2025-03-26": {"ContentBlock": (_unknown_to_text("resource_link"),)},
    "2024-11-05": {
        "ContentBlock": (_unknown_to_text("audio"),),
        "SamplingMessageContentBlock": (_unknown_to_text("audio"),),
    },
}
"""By the revision that made them necessary, as in `downlevel.LACKS`."""
