"""Group C: what crosses the wire when a tool samples; what becomes of it is held by tests/server and tests/client."""

from __future__ import annotations

from trio_mcp.testing.contract.pair import Pair
from trio_mcp.testing.contract.peer import Peer
from trio_mcp.testing.contract.rules import LEGACY, MODERN, rule
from trio_mcp.types import JsonObject, JsonValue

NO_SOUND = "audio was added in 2025-03-26"

TEXT: JsonObject = {"type": "text", "text": "A line."}
IMAGE: JsonObject = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
AUDIO: JsonObject = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}


@rule("C")
async def all_options_of_a_sample_reach_the_client(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask_in_detail")
        question = await call.question()
        assert {name: value for name, value in question.params.items() if name != "_meta"} == {
            "messages": [
                {"role": role, "content": {"type": "text", "text": text}}
                for role, text in (("user", "Hello"), ("assistant", "Yes?"), ("user", "A line, please"))
            ],
            "maxTokens": 77,
            "systemPrompt": "Be brief.",
            "temperature": 0.5,
            "stopSequences": ["END"],
            "modelPreferences": {"hints": [{"name": "small"}], "speedPriority": 1.0},
            "metadata": {"vendor": {"seed": 1}},
        }
        await call.answer(question, answer(TEXT, stopReason="endTurn"))
        assert await call.text() == "parrot endTurn A line."


@rule("C", revisions=tuple(name for name in (*LEGACY, *MODERN) if name > "2024-11-05"), why=NO_SOUND)
async def a_model_receives_audio_and_answers_with_audio(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await shown(peer, "audio", answer(AUDIO)) == "audio"


@rule(
    "C", revisions=tuple(name for name in (*LEGACY, *MODERN) if name > "2025-06-18"), why="one block until 2025-06-18"
)
async def an_answer_of_several_blocks_keeps_their_order(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await shown(peer, "image", answer([TEXT, IMAGE, AUDIO, TEXT])) == "text, image, audio, text"


@rule("C")
async def unknown_members_of_an_answer_are_ignored(pair: Pair) -> None:
    async with pair.peer() as peer:
        block: JsonObject = {**TEXT, "annotations": {"priority": 1, "odd": [1]}, "vendorPart": {"a": None}}
        assert (
            await shown(peer, "image", answer(block, vendor={"b": []}, _meta={"usage": {"outputTokens": 3}})) == "text"
        )


WITH_TOOLS = tuple(name for name in (*LEGACY, *MODERN) if name > "2025-06-18")
SINCE = "sampling has tools since 2025-11-25"


@rule("C", revisions=WITH_TOOLS, why=SINCE)
async def results_go_back_in_one_message_under_the_ids_of_the_calls(pair: Pair) -> None:
    async with pair.peer({"sampling": {"tools": {}}}) as peer:
        call = await peer.call("ask_with_tools")
        question = await call.question()
        uses: list[JsonObject] = [{**tool_use("b", word="two"), "_meta": {"kept": 1}}, tool_use("a", word="one")]
        await call.answer(question, answer(uses))
        again = await call.question()
        messages = again.params["messages"]
        assert isinstance(messages, list)
        assert messages[1] == {"role": "assistant", "content": uses}
        assert messages[2] == {
            "role": "user",
            "content": [
                {"type": "tool_result", "toolUseId": name, "content": [{"type": "text", "text": text}]}
                for name, text in (("b", "two"), ("a", "one"))
            ],
        }
        await call.answer(again, answer(TEXT))
        assert await call.text() == "A line."


async def shown(peer: Peer, kind: str, said: JsonObject) -> str:
    """Show the model a block of this kind; return the kinds of blocks that the tool reads in this answer."""
    call = await peer.call("show_model", {"sound": kind == "audio"})
    question = await call.question()
    messages = question.params["messages"]
    assert isinstance(messages, list)
    (message,) = messages
    assert isinstance(message, dict)
    assert isinstance(message["content"], dict)
    assert message["content"]["type"] == kind
    await call.answer(question, said)
    return await call.text()


def answer(content: JsonObject | list[JsonObject], role: str = "assistant", **more: JsonValue) -> JsonObject:
    """Return the answer of a model."""
    blocks: JsonValue = [*content] if isinstance(content, list) else content
    return {"role": role, "content": blocks, "model": "parrot", **more}


def tool_use(tool_use_id: str, name: str = "look_up", **arguments: JsonValue) -> JsonObject:
    """Return the block with which a model calls a tool."""
    return {"type": "tool_use", "id": tool_use_id, "name": name, "input": arguments}
