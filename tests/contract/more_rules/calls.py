"""What a call makes of each answer of its user, and of what its tool leaves running."""

from __future__ import annotations

from trio_mcp.client import accept
from trio_mcp.testing.contract import ELICITS, Call, Pair, Peer, accepted, rule
from trio_mcp.testing.contract.groups.peers import undisturbed
from trio_mcp.types import JsonObject, TextContent, TextResourceContents

NO_FORMS = "elicitation was added in 2025-06-18"


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


@rule("B", revisions=ELICITS, why=NO_FORMS)
async def a_prompt_and_a_resource_may_ask_too(pair: Pair) -> None:
    async with pair.client(on_elicit=lambda _: accept(value=6)) as client:
        (message,) = (await client.get_prompt("seated")).messages
        assert message.content == TextContent(text="I sit in row 6.")
        (contents,) = (await client.read_resource("contract://seat")).contents
        assert isinstance(contents, TextResourceContents)
        assert contents.text == "in row 6"


@rule("calls")
async def a_nursery_that_a_tool_leaves_open_is_cancelled(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        await (await peer.call("leave_a_nursery")).result()
        await pair.stage.marked("lingerer finally")


async def answered(peer: Peer, tool: str, answer: JsonObject) -> str:
    """Answer the one question of a tool; return what the tool makes of it."""
    call: Call = await peer.call(tool)
    await call.answer(await call.question(), answer)
    return await call.text()
