"""A question that fails, because the client answers it with an error or with something else, or cannot be asked it at all."""

from __future__ import annotations

import logging

import pytest
from naming import unnamed
from peer import text_of
from talk import Json, Legacy, Talk, offering, play, session_with
from wire_terms import INTERNAL_ERROR, INVALID_REQUEST, NEWEST_LEGACY

from trio_mcp import Context, PeerError, Server
from trio_mcp.errors import CapabilityError, RemoteProtocolError

WRITES_NO_FORMS = "2025-03-26"


async def elicit(ctx: Context) -> str:
    return (await ctx.elicit("How many?", int)).action


async def sample(ctx: Context) -> str:
    return (await ctx.sample("A line, please")).text


async def roots(ctx: Context) -> str:
    return str(len(await ctx.roots()))


async def sample_in_branches(ctx: Context) -> str:
    async with ctx.branches() as group:
        group.start(sample)
    return "done"


QUESTIONS = [
    pytest.param(elicit, "elicitation/create", "its user's answer", id="elicit"),
    pytest.param(sample, "sampling/createMessage", "its model's answer", id="sample"),
    pytest.param(roots, "roots/list", "its folders", id="roots"),
    pytest.param(sample_in_branches, "sampling/createMessage", "its model's answer", id="branch"),
]
ERRORS = [(-1, "User rejected sampling request"), (-32601, "Method not found"), (-32603, "no credit left")]


@pytest.fixture(autouse=True)
def no_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What went wrong is the client's choice: no traceback, and nothing for the operator of the server."""
    caplog.set_level(logging.INFO)
    return caplog


def records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name.startswith("trio_mcp") and record.levelno > logging.INFO]


def fail(talk: Talk, question: Json, code: int, message: str) -> None:
    talk.send({"id": question["id"], "error": {"code": code, "message": message, "data": {"why": "so"}}})


@pytest.mark.parametrize(("code", "message"), ERRORS)
@pytest.mark.parametrize(("tool", "method", "answer"), QUESTIONS)
async def test_an_error_instead_of_an_answer_is_an_error_result_that_names_both(
    tool: object, method: str, answer: str, code: int, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with session_with(offering(tool)) as talk:  # type: ignore[arg-type]
        call = talk.call(tool.__name__)  # type: ignore[attr-defined]
        fail(talk, await talk.question(method), code, message)
        assert unnamed(await talk.failure(call), answer, message, str(code)) == []
        await talk.silence()
    assert records(caplog) == []


@pytest.mark.parametrize(
    ("method", "params"), [("prompts/get", {"name": "sample"}), ("resources/read", {"uri": "note://a"})]
)
async def test_a_prompt_or_a_resource_fails_with_the_same_words(
    method: str, params: Json, caplog: pytest.LogCaptureFixture
) -> None:
    """Not with the code of the client: -32601 would say that the server has no such method."""
    server = Server("tester")
    server.add_prompt(sample)
    server.add_resource("note://a", sample)
    async with session_with(server) as talk:
        for code, message in ERRORS:
            request = talk.request(method, params)
            fail(talk, await talk.question("sampling/createMessage"), code, message)
            error = await talk.error(request)
            assert error["code"] == INTERNAL_ERROR
            assert unnamed(error["message"], "its model's answer", message, str(code)) == []
    assert records(caplog) == []


async def test_a_malformed_answer_is_an_error_result_that_names_the_member(caplog: pytest.LogCaptureFixture) -> None:
    async with session_with(offering(elicit)) as talk:
        call = talk.call("elicit")
        talk.answer(await talk.question(), {"action": "perhaps"})
        assert unnamed(await talk.failure(call), "its user's answer", "result.action", "perhaps") == []
    assert records(caplog) == []


async def test_a_malformed_answer_is_still_an_error_of_the_protocol_for_a_handler() -> None:
    async def copes(ctx: Context) -> str:
        with pytest.raises(RemoteProtocolError):
            await ctx.sample("A line, please")
        return "coped"

    async with session_with(offering(copes)) as talk:
        call = talk.call("copes")
        talk.answer(await talk.question("sampling/createMessage"), {})
        assert await talk.text(call) == "coped"


async def test_an_error_of_another_server_is_an_internal_one(
    era: type[Legacy], caplog: pytest.LogCaptureFixture
) -> None:
    """The caller has nothing to do with it, and its text may not be meant for the caller."""

    async def relays() -> str:
        raise PeerError(-32000, "the database hunter2 is down")

    async with play(offering(relays), era) as player:
        await player.call("relays")
        assert "hunter2" not in await player.failure()
    assert [record.exc_info is not None for record in records(caplog)] == [True]


# what the client cannot be asked


async def test_a_question_that_the_revision_lacks_is_not_asked_although_the_client_declares_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A host declares all it has, and then agrees on an older revision."""
    async with session_with(offering(elicit), WRITES_NO_FORMS, {"elicitation": {"form": {}}}) as talk:
        call = talk.call("elicit")
        assert unnamed(await talk.failure(call), WRITES_NO_FORMS, "elicitation/create") == []
    assert records(caplog) == []


async def test_a_capability_that_is_missing_is_an_error_result_in_a_session(caplog: pytest.LogCaptureFixture) -> None:
    ran: list[str] = []

    async def gated() -> str:
        ran.append("gated")
        return "done"

    server = offering(elicit)
    server.add_tool(gated, requires={"elicitation.form", "sampling"})
    async with session_with(server, NEWEST_LEGACY, {"roots": {}}) as talk:
        assert unnamed(await talk.failure(talk.call("elicit")), "elicitation", "not declare") == []
        result = await talk.result(talk.call("gated"))
        assert unnamed(text_of(result), "gated", "elicitation.form", "sampling") == []
        assert result["isError"]
        assert result["_meta"] == {"trio-mcp/requiredCapabilities": {"elicitation": {"form": {}}, "sampling": {}}}
        await talk.silence()
    assert ran == []
    assert records(caplog) == []


async def test_a_capability_that_is_missing_is_a_protocol_error_of_a_prompt() -> None:
    server = Server("tester")
    server.add_prompt(sample)
    async with session_with(server, NEWEST_LEGACY, {}) as talk:
        error = await talk.error(talk.request("prompts/get", {"name": "sample"}))
    assert (error["code"], error["data"]) == (INVALID_REQUEST, {"requiredCapabilities": {"sampling": {}}})


async def test_a_capability_error_that_a_tool_raises_itself_is_like_one_of_its_questions(era: type[Legacy]) -> None:
    async def needs() -> str:
        raise CapabilityError("this needs a camera", {"experimental": {"camera": {}}})

    async with play(offering(needs), era) as player:
        await player.call("needs")
        if era is Legacy:
            assert await player.failure() == "this needs a camera"
        else:
            error = await player.error()
            assert (error["code"], error["message"]) == (-32021, "this needs a camera")
