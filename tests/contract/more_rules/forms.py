"""Forms: what becomes of each answer."""

from __future__ import annotations

from trio_mcp.client import accept
from trio_mcp.testing.contract import ELICITS, LEGACY, Call, Pair, Peer, accepted, rule
from trio_mcp.testing.contract.expecting import nothing_more_of
from trio_mcp.testing.contract.groups.structured import withdrawn
from trio_mcp.types import JsonObject, TextContent, TextResourceContents

LIVE_FORMS = tuple(name for name in LEGACY if name in ELICITS)
NO_FORMS = "elicitation was added in 2025-06-18"
TOGETHER = f"{NO_FORMS}, and the questions of a modern round are sent together"


@rule("B", revisions=ELICITS, why=NO_FORMS)
async def a_form_is_filled_in_field_by_field(pair: Pair) -> None:
    form: JsonObject = {"name": "Ada", "row": 3, "weight": 1.5, "window": True, "meal": "fish"}
    async with pair.peer() as peer:
        call = await peer.call("fill_in")
        question = await call.question()
        schema = question.params["requestedSchema"]
        assert isinstance(schema, dict)
        assert isinstance(schema["properties"], dict)
        assert list(schema["properties"]) == list(form)
        await call.answer(question, {"action": "accept", "content": form})
        assert await call.text() == '{"name":"Ada","row":3,"weight":1.5,"window":true,"meal":"fish"}'


@rule("B", revisions=ELICITS, why=NO_FORMS)
async def what_a_user_chooses_reaches_the_tool(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await answered(peer, "ask", {"action": "decline"}) == "decline"
        assert await answered(peer, "ask", {"action": "cancel"}) == "cancel"
        assert await answered(peer, "ask", {"action": "decline", "content": {"row": 3}}) == "decline"
        assert await answered(peer, "wish", {"action": "accept"}) == "nothing"


@rule("B", revisions=ELICITS, why=NO_FORMS)
async def a_form_without_its_required_fields_is_asked_again_with_the_reason(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask")
        empty: JsonObject = {"action": "accept"}
        for bad in (empty, accepted(row="far back")):
            await call.answer(await call.question(), bad)
        question = await call.question()
        assert "row" in str(question.params["message"])
        await call.answer(question, accepted(row=4))
        assert await call.text() == "row 4"


@rule("B", revisions=LIVE_FORMS, why=TOGETHER)
async def a_user_is_asked_one_thing_at_a_time(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask_both")
        first = await call.question()
        await peer.ping()
        assert peer.unread() == []
        await call.answer(first, accepted(value=1))
        await call.answer(await call.question(), accepted(value=2))
        assert await call.text() == ("1 2" if first.params["message"] == "Left?" else "2 1")


@rule("D", revisions=LIVE_FORMS, why=TOGETHER)
async def a_queued_question_of_a_cancelled_call_is_never_asked(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask_both")
        question = await call.question()
        await call.cancel()
        assert await withdrawn(peer) == question.key
        await pair.stage.marked("ask_both finally client")
        await nothing_more_of(peer, call)


@rule("B", revisions=ELICITS, why=NO_FORMS)
async def a_prompt_and_a_resource_may_ask_too(pair: Pair) -> None:
    async with pair.client(on_elicit=lambda _: accept(value=6)) as client:
        (message,) = (await client.get_prompt("seated")).messages
        assert message.content == TextContent(text="I sit in row 6.")
        (contents,) = (await client.read_resource("contract://seat")).contents
        assert isinstance(contents, TextResourceContents)
        assert contents.text == "in row 6"


async def answered(peer: Peer, tool: str, answer: JsonObject) -> str:
    """Answer the one question of a tool; return what the tool makes of it."""
    call: Call = await peer.call(tool)
    await call.answer(await call.question(), answer)
    return await call.text()
