"""Answers that arrive as streams of events, put together to the answers that the APIs send in one piece.

    Anthropic   message_start, then for each block content_block_start, content_block_delta and content_block_stop,
                message_delta with the stop reason, message_stop
    OpenAI      chunks with a delta of the message, one with the finish reason, one with the usage, [DONE]

A stream that ends before its last event has broken off, even between two events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from pydantic_core import from_json

from ..types import JsonObject, JsonValue
from .endpoint import Endpoint, malformed, read_object

MAX_TEXT: Final = 8 * 1024 * 1024
"""Characters of an answer that was put together."""

DONE: Final = "[DONE]"


class StreamedAnswer(Protocol):
    """Puts one answer together."""

    is_complete: bool

    def feed(self, data: str) -> str:
        """Add the data of an event, and return the text in it.

        Raises:
            ProviderError: it is malformed, or an error of the API.
        """
        ...

    def answer(self) -> JsonObject:
        """Return the answer as the API sends it in one piece."""
        ...


class Pieces:
    """Texts in pieces, all of them together up to `MAX_TEXT`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._left = MAX_TEXT

    def add(self, pieces: list[str], piece: JsonValue) -> str:
        """Add a piece, if it is a text, and return it."""
        if not isinstance(piece, str):
            return ""
        self._left -= len(piece)
        if self._left < 0:
            raise malformed(f"it has more than {MAX_TEXT} characters, which is the limit", self._endpoint)
        pieces.append(piece)
        return piece


class AnthropicStream:
    """Puts an answer of Anthropic's messages API together."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._pieces = Pieces(endpoint)
        self._message: JsonObject = {}
        self._blocks: dict[int, tuple[JsonObject, list[str]]] = {}
        self.is_complete = False

    def feed(self, data: str) -> str:
        event = read_object(data.encode(), self._endpoint)
        match event.get("type"):
            case "message_start":
                self._message = dict(_object(event.get("message")))
            case "content_block_start":
                self._blocks[self._index(event)] = dict(_object(event.get("content_block"))), []
            case "content_block_delta":
                return self._add(self._index(event), _object(event.get("delta")))
            case "message_delta":
                self._message.update(_object(event.get("delta")))
                usage = {**_object(self._message.get("usage")), **_object(event.get("usage"))}
                self._message["usage"] = usage
            case "message_stop":
                self.is_complete = True
        return ""

    def answer(self) -> JsonObject:
        blocks = [self._block(*self._blocks[index]) for index in sorted(self._blocks)]
        return {**self._message, "content": list[JsonValue](blocks)}

    def _add(self, index: int, delta: JsonObject) -> str:
        if index not in self._blocks:
            raise malformed(f"a delta for block {index}, which has not started", self._endpoint)
        _, pieces = self._blocks[index]
        match delta.get("type"):
            case "text_delta":
                return self._pieces.add(pieces, delta.get("text"))
            case "input_json_delta":
                self._pieces.add(pieces, delta.get("partial_json"))
        # Others are parts of blocks that are not part of the answer, as thinking is.
        return ""

    def _block(self, start: JsonObject, pieces: list[str]) -> JsonObject:
        text = "".join(pieces)
        if start.get("type") == "tool_use":
            return {**start, "input": self._input(text) if text else start.get("input")}
        return {**start, "text": f"{start.get('text') or ''}{text}"} if start.get("type") == "text" else start

    def _input(self, text: str) -> JsonValue:
        try:
            given: JsonValue = from_json(text, allow_inf_nan=False)
        except ValueError:
            raise malformed("the arguments of a tool call are no JSON", self._endpoint) from None
        return given

    def _index(self, event: JsonObject) -> int:
        return _index(event, self._endpoint)


class OpenAIStream:
    """Puts an answer of OpenAI's chat completions together; of the choices it reads the first."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._pieces = Pieces(endpoint)
        self._members: JsonObject = {}
        self._finish_reason: JsonValue = None
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: dict[int, ToolCall] = {}
        self.is_complete = False

    def feed(self, data: str) -> str:
        if data.strip() == DONE:
            self.is_complete = True
            return ""
        chunk = read_object(data.encode(), self._endpoint)
        self._members.update({name: value for name in ("model", "usage") if (value := chunk.get(name)) is not None})
        choices = chunk.get("choices")
        choice = _object(choices[0]) if isinstance(choices, list) and choices else {}
        if choice.get("index", 0) != 0:
            return ""
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        return self._add(_object(choice.get("delta")))

    def answer(self) -> JsonObject:
        message: JsonObject = {"role": "assistant", "content": "".join(self._text), "refusal": "".join(self._refusal)}
        message["tool_calls"] = [self._calls[index].written() for index in sorted(self._calls)]
        return {**self._members, "choices": [{"index": 0, "message": message, "finish_reason": self._finish_reason}]}

    def _add(self, delta: JsonObject) -> str:
        self._pieces.add(self._refusal, delta.get("refusal"))
        calls = delta.get("tool_calls")
        for position, piece in enumerate(map(_object, calls if isinstance(calls, list) else [])):
            # Some servers of local models leave the index out, and send each call in one piece.
            index = _index({"index": position, **piece}, self._endpoint)
            self._calls.setdefault(index, ToolCall()).add(piece, self._pieces.add)
        return self._pieces.add(self._text, delta.get("content"))


class ToolCall:
    """One tool call of a chat completion."""

    def __init__(self) -> None:
        self._id: JsonValue = None
        self._name: list[str] = []
        self._arguments: list[str] = []

    def add(self, piece: JsonObject, add: Callable[[list[str], JsonValue], str]) -> None:
        """Add what one chunk has of it."""
        self._id = piece.get("id") or self._id
        function = _object(piece.get("function"))
        add(self._name, function.get("name"))
        add(self._arguments, function.get("arguments"))

    def written(self) -> JsonObject:
        """Return it as the API sends it in one piece."""
        function: JsonObject = {"name": "".join(self._name), "arguments": "".join(self._arguments)}
        return {"id": self._id, "type": "function", "function": function}


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _index(source: JsonObject, endpoint: Endpoint) -> int:
    index = source.get("index")
    if not isinstance(index, int):
        raise malformed("an event without the index of its block", endpoint)
    return index
