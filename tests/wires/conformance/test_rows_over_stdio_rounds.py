"""The rows about requests that take several rounds, over stdio."""

from __future__ import annotations

from typing import Any

from driven import FOLDER, SAID, DrivenServer, Wire, recorded
from rows import MODERN, row
from talk import EVERYTHING, accept

from trio_mcp.types import TextContent

Json = dict[str, Any]

ELICITATION = "test_input_required_result_elicitation"


async def two_rounds(server: DrivenServer, tool: str, *filled_in: Json) -> tuple[Json, Json, str]:
    """Our client calls a tool that asks once: what it was asked, what it sent back, and the text at the end."""
    client = await server.client()
    server.filled_in += filled_in
    result = await client.call_tool(tool)
    assert not result.is_error
    asked, done = server.wire.results("tools/call")
    assert (asked["resultType"], done["resultType"]) == ("input_required", "complete")
    return asked, server.wire.sent("tools/call")[1]["params"], result.text


# each kind of question


@row("input-required-result-basic-elicitation", MODERN)
async def test_a_form_ends_the_first_round_and_its_answer_completes_the_second(server: DrivenServer) -> None:
    asked, sent, text = await two_rounds(server, ELICITATION, {"name": "Alice"})
    assert asked["inputRequests"].keys() == {"user_name"}
    assert asked["inputRequests"]["user_name"]["method"] == "elicitation/create"
    assert asked["inputRequests"]["user_name"]["params"]["requestedSchema"]["required"] == ["name"]
    assert sent["inputResponses"] == {"user_name": accept(name="Alice")}
    assert text == "Hello, Alice!"


@row("input-required-result-basic-sampling", MODERN)
async def test_a_question_to_the_model_ends_a_round(server: DrivenServer) -> None:
    asked, sent, text = await two_rounds(server, "test_input_required_result_sampling")
    ((key, question),) = asked["inputRequests"].items()
    assert question["method"] == "sampling/createMessage"
    assert question["params"]["maxTokens"] == 100
    assert question["params"]["messages"][0]["content"]["text"] == "What is the capital of France?"
    assert sent["inputResponses"].keys() == {key}
    assert text == SAID


@row("input-required-result-basic-list-roots", MODERN)
async def test_a_question_for_the_folders_ends_a_round(server: DrivenServer) -> None:
    asked, sent, text = await two_rounds(server, "test_input_required_result_list_roots")
    ((key, question),) = asked["inputRequests"].items()
    assert question["method"] == "roots/list"
    assert sent["inputResponses"].keys() == {key}
    assert text == FOLDER.uri


@row("input-required-result-multiple-input-requests", MODERN)
async def test_a_round_asks_the_user_the_model_and_the_client_at_once(server: DrivenServer) -> None:
    asked, sent, text = await two_rounds(server, "test_input_required_result_multiple_inputs", {"name": "Alice"})
    methods = sorted(question["method"] for question in asked["inputRequests"].values())
    assert methods == ["elicitation/create", "roots/list", "sampling/createMessage"]
    assert asked["requestState"]
    assert sent["inputResponses"].keys() == asked["inputRequests"].keys()
    assert text == f"Hello, Alice! {SAID} {FOLDER.uri}"


@row("input-required-result-non-tool-request", MODERN)
async def test_a_prompt_asks_before_it_is_written(server: DrivenServer) -> None:
    client = await server.client()
    server.filled_in.append({"context": "test context"})
    (message,) = (await client.get_prompt("test_input_required_result_prompt")).messages
    assert message.content == TextContent(text="Use the following context: test context")
    asked, done = server.wire.results("prompts/get")
    assert (asked["resultType"], done["resultType"]) == ("input_required", "complete")
    (question,) = asked["inputRequests"].values()
    assert question["method"] == "elicitation/create"
    assert question["params"]["requestedSchema"]["required"] == ["context"]


# the state


@row("input-required-result-request-state", MODERN)
async def test_the_state_that_is_sent_back_carries_the_call_on(server: DrivenServer) -> None:
    asked, sent, text = await two_rounds(server, "test_input_required_result_request_state", {"ok": True})
    assert isinstance(asked["requestState"], str)
    assert asked["requestState"]
    assert asked["inputRequests"].keys() == {"confirm"}
    assert sent["requestState"] == asked["requestState"]
    assert text == "state-ok: accept"


@row("input-required-result-multi-round", MODERN)
async def test_a_second_round_has_another_question_and_another_state(server: DrivenServer) -> None:
    client = await server.client()
    server.filled_in += [{"name": "Alice"}, {"color": "blue"}]
    result = await client.call_tool("test_input_required_result_multi_round")
    first, second, done = server.wire.results("tools/call")
    assert (first["resultType"], second["resultType"], done["resultType"]) == (
        "input_required",
        "input_required",
        "complete",
    )
    assert (first["inputRequests"].keys(), second["inputRequests"].keys()) == ({"step1"}, {"step2"})
    assert len({first["requestState"], second["requestState"]}) == 2
    assert "Alice" in result.text
    assert "blue" in result.text


@row("input-required-result-tampered-state", MODERN)
async def test_a_state_that_was_changed_is_an_error(server: DrivenServer) -> None:
    peer = await server.peer()
    tool = "test_input_required_result_tampered_state"
    state = (await peer.call(tool))["requestState"]
    middle = len(state) // 2
    flipped = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]
    for changed in (f"{state}-TAMPERED", flipped, state[:-8], ""):
        params: Json = {"name": tool, "arguments": {}, "inputResponses": {"confirm": accept(ok=True)}}
        reply = await peer.ask("tools/call", **params, requestState=changed)
        assert reply["error"]["code"] == -32602, reply
    assert (await peer.ask("tools/call", **params, requestState=state))["result"]["resultType"] == "complete"


# what comes back may be wrong


@row("input-required-result-missing-input-response", MODERN)
async def test_an_answer_to_something_else_is_asked_for_again(server: DrivenServer) -> None:
    peer = await server.peer()
    wrong = {"wrong_key": accept(data="wrong")}
    assert asks_for_the_name(await peer.call(ELICITATION, inputResponses=wrong))
    state = (await peer.call(ELICITATION))["requestState"]
    again = await peer.call(ELICITATION, inputResponses=wrong, requestState=state)
    assert asks_for_the_name(again)


@row("input-required-result-ignore-extra-params", MODERN)
async def test_an_answer_that_nobody_asked_for_is_ignored(server: DrivenServer) -> None:
    """The suite answers before it was asked, and sends no state; here the question comes first."""
    peer = await server.peer()
    extra = {"unknown_extra_key": accept(foo="bar"), "another_unexpected": accept(baz=123)}
    answers = {"user_name": accept(name="Alice"), **extra}
    asked = await peer.call(ELICITATION)
    done = await peer.call(ELICITATION, inputResponses=answers, requestState=asked["requestState"])
    assert done["resultType"] == "complete"
    assert done["content"][0]["text"] == "Hello, Alice!"


@row("input-required-result-validate-input", MODERN)
async def test_answers_of_another_shape_never_complete_a_call(server: DrivenServer) -> None:
    peer = await server.peer()
    for answers in ({"user_name": 12345}, None, [], "Alice", {"user_name": {"action": "maybe"}}):
        for state in ({}, {"requestState": (await peer.call(ELICITATION))["requestState"]}):
            params: Json = {"name": ELICITATION, "arguments": {}, "inputResponses": answers, **state}
            reply = await peer.ask("tools/call", **params)
            assert "error" in reply or asks_for_the_name(reply["result"]), reply


def asks_for_the_name(result: Json) -> bool:
    return result["resultType"] == "input_required" and result["inputRequests"].keys() == {"user_name"}


# who is asked, and in what


@row("input-required-result-result-type", MODERN)
async def test_a_result_says_which_type_it_is_of(server: DrivenServer) -> None:
    peer = await server.peer()
    asked = await peer.call(ELICITATION)
    assert asked["resultType"] == "input_required"
    answers = {"user_name": accept(name="Alice")}
    done = await peer.call(ELICITATION, inputResponses=answers, requestState=asked["requestState"])
    assert done["resultType"] == "complete"


@row("input-required-result-unsupported-methods", MODERN)
async def test_a_list_is_never_a_round(server: DrivenServer) -> None:
    peer = await server.peer()
    for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "server/discover"):
        result = await peer.result(method)
        assert result["resultType"] == "complete", method
        assert "inputRequests" not in result


@row("input-required-result-capability-check", MODERN)
async def test_only_what_the_client_has_declared_is_asked(server: DrivenServer) -> None:
    tool = "test_input_required_result_capabilities"
    peer = await server.peer()
    for declared, methods in (
        ({"sampling": {}}, {"sampling/createMessage"}),
        ({"elicitation": {}}, {"elicitation/create"}),
        (EVERYTHING, {"elicitation/create", "sampling/createMessage"}),
    ):
        result = await peer.call(tool, declared)
        assert result["resultType"] == "input_required"
        assert {question["method"] for question in result["inputRequests"].values()} == methods


@row("input-required-result-capability-check", MODERN)
async def test_a_client_without_a_user_is_not_asked_for_one(server: DrivenServer) -> None:
    wire = Wire()
    async with recorded(wire, mode=MODERN, on_sample=lambda _request: SAID) as client:
        result = await client.call_tool("test_input_required_result_capabilities")
    assert result.text == SAID
    asked, _ = wire.results("tools/call")
    assert [question["method"] for question in asked["inputRequests"].values()] == ["sampling/createMessage"]
    wire.check()
