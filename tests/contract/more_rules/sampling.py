"""Group C: sampling without tools for the model."""

from __future__ import annotations

from trio_mcp.errors import PeerError
from trio_mcp.testing.contract.expecting import failure
from trio_mcp.testing.contract.groups.streaming import again
from trio_mcp.testing.contract.pair import Pair
from trio_mcp.testing.contract.peer import Peer, Question
from trio_mcp.testing.contract.rules import LEGACY, MODERN, rule
from trio_mcp.types import CreateMessageRequestParams, CreateMessageResult, JsonObject, JsonValue, TextContent

NO_SOUND = "audio was added in 2025-03-26"
SILENT = "a modern client that cannot answer does not retry"

TEXT: JsonObject = {"type": "text", "text": "A line."}
IMAGE: JsonObject = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
AUDIO: JsonObject = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}

# what is asked


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


@rule("C")
async def a_model_receives_an_image_and_answers_with_one(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await shown(peer, "image", answer(IMAGE)) == "image"


@rule("C", revisions=tuple(name for name in (*LEGACY, *MODERN) if name > "2024-11-05"), why=NO_SOUND)
async def a_model_receives_audio_and_answers_with_audio(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await shown(peer, "audio", answer(AUDIO)) == "audio"


# what is answered


@rule("C")
async def an_answer_of_one_block_may_come_in_an_array(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await shown(peer, "image", answer([TEXT])) == "text"


@rule(
    "C",
    revisions=tuple(name for name in (*LEGACY, *MODERN) if name > "2025-06-18"),
    why="one block until 2025-06-18",
)
async def an_answer_of_several_blocks_keeps_their_order(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await shown(peer, "image", answer([TEXT, IMAGE, AUDIO, TEXT])) == "text, image, audio, text"


@rule("C")
async def a_stop_reason_may_be_any_text_or_missing(pair: Pair) -> None:
    async with pair.peer() as peer:
        for members, expected in (({"stopReason": "refusal"}, "refusal"), ({}, "None")):
            call = await peer.call("ask_in_detail")
            await call.answer(await call.question(), answer(TEXT, **members))
            assert await call.text() == f"parrot {expected} A line."


@rule("C")
async def unknown_members_of_an_answer_are_ignored(pair: Pair) -> None:
    async with pair.peer() as peer:
        block: JsonObject = {**TEXT, "annotations": {"priority": 1, "odd": [1]}, "vendorPart": {"a": None}}
        assert (
            await shown(peer, "image", answer(block, vendor={"b": []}, _meta={"usage": {"outputTokens": 3}})) == "text"
        )


@rule("C")
async def the_usage_that_a_model_reports_is_charged_to_the_branch_that_asked(pair: Pair) -> None:
    used: JsonObject = {"usage": {"inputTokens": 5, "outputTokens": 4}}
    async with pair.peer() as peer:
        for tokens, expected in ((18, "A line., A line."), (17, "tokens: 18 of 17")):
            call = await peer.call("ask_within", {"tokens": tokens})
            for _ in range(2):
                await call.answer(await call.question(), answer(TEXT, _meta=used))
            assert await call.text() == expected


# what goes wrong


@rule("C")
async def a_client_without_a_model_is_asked_nothing(pair: Pair) -> None:
    async with pair.peer({"roots": {}}) as peer:
        assert await (await peer.call("ask_bravely")).text() == "without sampling"
        assert peer.unread() == []


@rule("C")
async def the_caller_of_a_tool_that_needs_a_model_learns_which_capability_is_missing(pair: Pair) -> None:
    async with pair.peer({"roots": {}}) as peer:
        await (await peer.call("ask_model", {"prompt": "Hello"})).lacks(sampling={})


@rule("C", revisions=LEGACY, why=SILENT)
async def an_error_of_the_client_reaches_the_tool_with_its_code(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await refused(peer, -32603, "no credit left") == "refused with -32603: no credit left"


@rule("C", revisions=LEGACY, why=SILENT)
async def a_rejected_sample_is_not_an_answer_of_the_model(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await refused(peer, -1, "User rejected sampling request") == (
            "refused with -1: User rejected sampling request"
        )


@rule("C", revisions=LEGACY, why=SILENT)
async def a_failed_sample_fails_only_its_own_call(pair: Pair) -> None:
    async with pair.peer() as peer:
        failed, asks = await peer.call("ask_model", {"prompt": "one"}), await peer.call("ask_model", {"prompt": "two"})
        questions = sorted([await failed.question(), await asks.question()], key=prompted)
        await peer.refuse(questions[0].key, -32603, "no credit left")
        assert "no credit left" in await failed.failure()
        await asks.answer(questions[1], answer(TEXT))
        assert await asks.text() == "A line."


@rule("C", revisions=LEGACY, why=SILENT)
async def the_caller_reads_why_the_client_did_not_answer(pair: Pair) -> None:
    async with pair.peer() as peer:
        for code, why in ((-1, "User rejected sampling request"), (-32601, "Method not found")):
            call = await peer.call("ask_model", {"prompt": "Hello"})
            await peer.refuse((await call.question()).key, code, why)
            text = await call.failure()
            assert why in text, text
            assert str(code) in text, text


@rule("C", revisions=LEGACY, why="a modern answer is part of a request, which can be rejected")
async def a_malformed_answer_fails_the_call_that_asked(pair: Pair) -> None:
    async with pair.peer() as peer:
        for bad in ({}, answer({"type": "smell"}), answer(TEXT, role="oracle")):
            call = await peer.call("ask_bravely")
            await call.answer(await call.question(), bad)
            assert await call.text() == "malformed"


@rule("C", revisions=MODERN, why="a legacy answer is not a request, so it cannot be rejected")
async def a_malformed_answer_is_rejected_and_the_call_keeps_waiting(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask_bravely")
        question = await call.question()
        for bad in ({}, answer({"type": "smell"}), answer(TEXT, role="oracle")):
            error = await peer.error(await again(peer, "ask_bravely", question, bad, call.state))
            assert error["code"] == -32602
            assert str(question.key) in str(error["message"])
        await call.answer(question, answer(TEXT))
        assert await call.text() == "A line."


# our client


@rule("C")
async def a_client_answers_with_text_or_with_a_complete_message(pair: Pair) -> None:
    whole = CreateMessageResult(role="assistant", content=TextContent(text="whole"), model="parrot", stop_reason="x")
    for made, expected in (("a line", "unnamed endTurn a line"), (whole, "parrot x whole")):
        async with pair.client(on_sample=lambda _, made=made: made) as client:  # type: ignore[misc]
            assert (await client.call_tool("ask_in_detail")).text == expected


@rule("C")
async def a_client_receives_the_messages_of_the_tool(pair: Pair) -> None:
    asked: list[CreateMessageRequestParams] = []

    def answers(params: CreateMessageRequestParams) -> str:
        asked.append(params)
        return "a line"

    async with pair.client(on_sample=answers) as client:
        await client.call_tool("ask_in_detail")
    (params,) = asked
    assert (params.max_tokens, params.system_prompt, params.temperature) == (77, "Be brief.", 0.5)
    assert params.stop_sequences == ["END"]
    assert [message.role for message in params.messages] == ["user", "assistant", "user"]


@rule("C", revisions=LEGACY, why=SILENT)
async def a_client_whose_user_rejects_sends_its_error_code(pair: Pair) -> None:
    async with pair.client(on_sample=rejects) as client:
        assert (await client.call_tool("ask_bravely")).text == "refused with -1: User rejected sampling request"


@rule("C", revisions=MODERN, why="a legacy server is waiting, and the call goes on", options={"park_ttl": 0.2})
async def a_call_of_a_client_whose_user_rejects_ends_with_its_error(pair: Pair) -> None:
    async with pair.client(on_sample=rejects) as client:
        error = await failure(PeerError, client.call_tool("ask_model", {"prompt": "Hello"}))
        assert (error.code, error.message) == (-1, "User rejected sampling request")


def rejects(_params: CreateMessageRequestParams) -> str:
    raise PeerError(-1, "User rejected sampling request")


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


async def refused(peer: Peer, code: int, message: str) -> str:
    """Answer a sample with an error; return what the tool makes of it."""
    call = await peer.call("ask_bravely")
    await peer.refuse((await call.question()).key, code, message)
    return await call.text()


def answer(content: JsonObject | list[JsonObject], role: str = "assistant", **more: JsonValue) -> JsonObject:
    """Return the answer of a model."""
    blocks: JsonValue = [*content] if isinstance(content, list) else content
    return {"role": role, "content": blocks, "model": "parrot", **more}


def prompted(question: Question) -> str:
    """Return the prompt, by which a rule tells questions apart."""
    return str(question.params["messages"])
