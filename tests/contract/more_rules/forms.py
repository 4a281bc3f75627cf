"""Forms: what becomes of each answer."""

from __future__ import annotations

from trio_mcp.client import accept, accept_defaults, decline
from trio_mcp.testing.contract import ELICITS, LEGACY, Call, Pair, Peer, accepted, rule
from trio_mcp.types import ElicitRequestFormParams, ElicitResult, JsonObject, TextContent, TextResourceContents

LIVE_FORMS = tuple(name for name in LEGACY if name in ELICITS)
NO_FORMS = "elicitation was added in 2025-06-18"


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
async def a_declined_form_reaches_the_tool_as_declined(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await answered(peer, "ask", {"action": "decline"}) == "decline"


@rule("B", revisions=ELICITS, why=NO_FORMS)
async def a_dismissed_form_reaches_the_tool_as_dismissed(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await answered(peer, "ask", {"action": "cancel"}) == "cancel"


@rule("B", revisions=ELICITS, why=NO_FORMS)
async def the_content_of_a_declined_form_is_ignored(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await answered(peer, "ask", {"action": "decline", "content": {"row": 3}}) == "decline"


@rule("B", revisions=ELICITS, why=NO_FORMS)
async def a_form_without_required_fields_may_be_accepted_without_content(pair: Pair) -> None:
    async with pair.peer() as peer:
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
async def repeated_invalid_answers_are_an_error_of_the_call(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask")
        for _ in range(3):
            await call.answer(await call.question(), accepted(row="far back"))
        assert "after 3 attempts" in await call.failure()


@rule("B", revisions=LIVE_FORMS, why=f"{NO_FORMS}, and a modern client cannot answer a question with an error")
async def an_error_instead_of_a_form_is_not_a_choice_of_the_user(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask")
        await peer.refuse((await call.question()).key, -1, "User rejected the request")
        assert "User rejected" in await call.failure()
        await pair.stage.marked("ask finally done")


@rule("B", revisions=LIVE_FORMS, why=f"{NO_FORMS}, and the questions of a modern round are sent together")
async def a_user_is_asked_one_thing_at_a_time(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask_both")
        first = await call.question()
        await peer.ping()
        assert peer.unread() == []
        await call.answer(first, accepted(value=1))
        await call.answer(await call.question(), accepted(value=2))
        assert await call.text() == ("1 2" if first.params["message"] == "Left?" else "2 1")


@rule("B", revisions=ELICITS, why=NO_FORMS)
async def a_client_answers_a_form_in_the_middle_of_a_call(pair: Pair) -> None:
    asked: list[str] = []

    async def ask_me(question: ElicitRequestFormParams) -> ElicitResult:
        asked.append(question.message)
        return accept(row=5)

    async with pair.client(on_elicit=ask_me) as client:
        assert (await client.call_tool("ask")).text == "row 5"
    assert asked == ["Which seat?"]


@rule("B", revisions=ELICITS, why=NO_FORMS)
async def a_client_can_decline_a_form_and_can_accept_its_defaults(pair: Pair) -> None:
    async with pair.client(on_elicit=lambda _: decline()) as client:
        assert (await client.call_tool("ask")).text == "decline"
    async with pair.client(on_elicit=accept_defaults) as client:
        assert (await client.call_tool("wish")).text == "nothing"


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
