"""Group C: sampling with tools for the model, and structured answers."""

from __future__ import annotations

import json

from trio_mcp.testing.contract.pair import Pair
from trio_mcp.testing.contract.peer import Call, Peer, Question
from trio_mcp.testing.contract.rules import LEGACY, MODERN, rule
from trio_mcp.types import JsonObject, JsonValue

from .sampling import TEXT, answer

WITH_TOOLS = tuple(name for name in (*LEGACY, *MODERN) if name > "2025-06-18")
SINCE = "sampling has tools since 2025-11-25"

SAMPLES: JsonObject = {"sampling": {"tools": {}}}

# tools


@rule("C", revisions=WITH_TOOLS, why=SINCE)
async def a_model_is_offered_tools_with_their_schemas(pair: Pair) -> None:
    async with pair.peer(SAMPLES) as peer:
        call, question = await asked(peer, "ask_with_tools")
        tools = question.params["tools"]
        assert isinstance(tools, list)
        assert [without(tool, "description") for tool in tools] == [
            {"name": "look_up", "inputSchema": LOOK_UP},
            {"name": "search", "inputSchema": {"type": "object"}},
        ]
        assert question.params["toolChoice"] == {"mode": "auto"}
        await call.answer(question, answer(TEXT))
        assert await call.text() == "A line."


@rule("C", revisions=WITH_TOOLS, why=SINCE)
async def calls_come_in_a_block_or_an_array_with_any_stop_reason(pair: Pair) -> None:
    async with pair.peer(SAMPLES) as peer:
        use = tool_use("1", word="fado")
        for said in (answer(use, stopReason="toolUse"), answer([use], stopReason="endTurn"), answer([TEXT, use])):
            call, question = await asked(peer, "ask_with_tools")
            await call.answer(question, said)
            again = await call.question()
            assert results_in(again) == {"1": "fado"}
            await call.answer(again, answer(TEXT))
            assert await call.text() == "A line."


@rule("C", revisions=WITH_TOOLS, why=SINCE)
async def results_go_back_in_one_message_under_the_ids_of_the_calls(pair: Pair) -> None:
    async with pair.peer(SAMPLES) as peer:
        call, question = await asked(peer, "ask_with_tools")
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


@rule("C")
async def a_client_is_sent_neither_tools_nor_context_that_it_did_not_declare(pair: Pair) -> None:
    async with pair.peer({"sampling": {}}) as peer:
        for tool, missing in (("ask_with_tools", "tools"), ("ask_with_context", "context")):
            assert await (await peer.call(tool)).text() == f"without sampling.{missing}"
        assert peer.unread() == []


@rule("C", revisions=WITH_TOOLS, why=SINCE)
async def a_conversation_with_an_unanswered_call_is_not_sent(pair: Pair) -> None:
    async with pair.peer(SAMPLES) as peer:
        call, question = await asked(peer, "forget_a_result")
        await call.answer(question, answer([tool_use("a", word="one"), tool_use("b", word="two")]))
        assert await call.text() == "not sent: b"
        assert peer.unread() == []


@rule("C")
async def results_that_are_orphans_mixed_with_text_partial_or_missing_are_not_sent(pair: Pair) -> None:
    async with pair.peer({"sampling": {}}) as peer:
        for wrong in ("orphan", "mixture", "partial", "text"):
            assert await (await peer.call("send_wrongly", {"wrong": wrong})).text() == "messages[1]"
        assert peer.unread() == []


@rule("C", revisions=WITH_TOOLS, why=SINCE)
async def a_call_may_be_required_or_forbidden(pair: Pair) -> None:
    async with pair.peer(SAMPLES) as peer:
        call, question = await asked(peer, "require_a_call_and_forbid_it")
        assert question.params["toolChoice"] == {"mode": "required"}
        await call.answer(question, answer(tool_use("1", "search")))
        last = await call.question()
        assert last.params["toolChoice"] == {"mode": "none"}
        assert "tools" not in last.params
        await call.answer(last, answer(TEXT))
        assert await call.text() == "A line."


@rule("C", revisions=WITH_TOOLS, why=SINCE)
async def an_answer_with_the_result_of_a_tool_is_malformed(pair: Pair) -> None:
    result: JsonObject = {"type": "tool_result", "toolUseId": "1", "content": []}
    async with pair.peer(SAMPLES) as peer:
        for bad in ([result], [tool_use("1"), tool_use("1")]):
            call, question = await asked(peer, "ask_bravely")
            await call.answer(question, answer(bad))
            assert await call.text() == "malformed"


# structured answers


@rule("C", revisions=WITH_TOOLS, why=SINCE)
async def structured_data_is_the_arguments_of_the_reserved_tool(pair: Pair) -> None:
    async with pair.peer(SAMPLES) as peer:
        call, question = await asked(peer, "ask_for_data")
        tools = question.params["tools"]
        assert isinstance(tools, list)
        assert [tool["name"] for tool in tools if isinstance(tool, dict)] == ["__schema__"]
        assert question.params["toolChoice"] == {"mode": "required"}
        await call.answer(question, answer(schema_use(row=3)))
        assert await call.text() == "row 3"


@rule("C")
async def structured_data_is_json_in_a_text_for_a_client_without_tools(pair: Pair) -> None:
    async with pair.peer({"sampling": {}}) as peer:
        call, question = await asked(peer, "ask_for_data")
        assert not {"tools", "toolChoice"} & question.params.keys()
        sent = question.params["messages"]
        assert "Which row?" in json.dumps(sent)
        assert '\\"row\\"' in json.dumps(sent)
        await call.answer(question, answer({"type": "text", "text": 'Here:\n```json\n{"row": 3}\n```'}))
        assert await call.text() == "row 3"


@rule("C", revisions=WITH_TOOLS, why=SINCE)
async def data_that_does_not_match_is_asked_again_and_then_an_error(pair: Pair) -> None:
    async with pair.peer(SAMPLES) as peer:
        for last, expected in ((schema_use(row=3), "row 3"), (schema_use(), "invalid after 3")):
            call, question = await asked(peer, "ask_for_data")
            for bad in (TEXT, schema_use(row="three")):
                await call.answer(question, answer(bad))
                question = await call.question()
            messages = question.params["messages"]
            assert isinstance(messages, list)
            assert len(messages) == 1
            assert "row:" in json.dumps(messages)
            await call.answer(question, answer(last))
            assert await call.text() == expected


LOOK_UP: JsonObject = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
    "additionalProperties": False,
}


async def asked(peer: Peer, tool: str) -> tuple[Call, Question]:
    """Call a tool; return the call and its first question."""
    call = await peer.call(tool)
    return call, await call.question()


def tool_use(tool_use_id: str, name: str = "look_up", **arguments: JsonValue) -> JsonObject:
    """Return the block with which a model calls a tool."""
    return {"type": "tool_use", "id": tool_use_id, "name": name, "input": arguments}


def schema_use(**data: JsonValue) -> JsonObject:
    """Return the block with which a model gives structured data."""
    return tool_use("s", "__schema__", **data)


def results_in(question: Question) -> JsonObject:
    """Return the texts of the results in the last message of a sample, by the ids of the calls."""
    messages = question.params["messages"]
    assert isinstance(messages, list)
    assert isinstance(messages[-1], dict)
    content = messages[-1]["content"]
    found: JsonObject = {}
    for block in content if isinstance(content, list) else [content]:
        assert isinstance(block, dict)
        assert isinstance(block["content"], list)
        (text,) = block["content"]
        assert isinstance(text, dict)
        found[str(block["toolUseId"])] = text["text"]
    return found


def without(value: JsonValue, name: str) -> JsonObject:
    assert isinstance(value, dict)
    return {key: member for key, member in value.items() if key != name}
