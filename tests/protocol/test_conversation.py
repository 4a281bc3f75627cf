"""The rules for the conversation in a sampling request (L-SMP-3b)."""

import pytest

from trio_mcp.protocol.conversation import answer_problem, conversation_problem
from trio_mcp.types import SamplingContentBlock, SamplingMessage, TextContent, ToolResultContent, ToolUseContent


def text(words: str = "hello") -> TextContent:
    return TextContent(text=words)


def use(name: str) -> ToolUseContent:
    return ToolUseContent(id=name, name="look", input={})


def result(name: str) -> ToolResultContent:
    return ToolResultContent(tool_use_id=name, content=[text()])


def user(*blocks: SamplingContentBlock) -> SamplingMessage:
    return SamplingMessage(role="user", content=list(blocks))


def assistant(*blocks: SamplingContentBlock) -> SamplingMessage:
    return SamplingMessage(role="assistant", content=list(blocks))


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user(text())],
        [SamplingMessage(role="user", content=text())],
        [user(text()), user(text()), assistant(text())],
        [user(text()), assistant(text(), use("a"), use("b")), user(result("b"), result("a"))],
        [assistant(use("0")), user(result("0")), assistant(use("0")), user(result("0")), assistant(text())],
    ],
    ids=["empty", "prompt", "single block", "texts", "balanced", "an id used again"],
)
def test_a_conversation_that_keeps_the_rules_has_no_problem(messages: list[SamplingMessage]) -> None:
    assert conversation_problem(messages) is None


@pytest.mark.parametrize(
    ("messages", "index", "named"),
    [
        ([assistant(use("a")), user(result("a"), text())], 1, "a"),
        ([assistant(use("a"), use("b")), user(result("a"))], 1, "b"),
        ([assistant(use("a")), user(text())], 1, "a"),
        ([assistant(use("a")), assistant(text()), user(result("a"))], 1, "a"),
        ([user(text()), user(result("a"))], 1, "a"),
        ([assistant(use("a")), user(result("a")), user(result("a"))], 2, "a"),
        ([assistant(use("a")), user(result("a"), result("a"))], 1, "a"),
        ([assistant(use("a")), user(result("a"), result("c"))], 1, "c"),
        ([user(text()), assistant(text(), use("a"))], 1, "a"),
        ([assistant(use("a"), use("a"))], 0, "a"),
        ([user(use("a"))], 0, "a"),
        ([assistant(use("a")), assistant(result("a"))], 1, "a"),
    ],
    ids=[
        "results and text",
        "one of two answered",
        "text instead of results",
        "a message between",
        "orphan",
        "answered again later",
        "answered twice",
        "one too many",
        "not answered at the end",
        "one id for two uses",
        "use of the user",
        "result of the assistant",
    ],
)
def test_a_problem_names_the_message_and_the_tool_use(messages: list[SamplingMessage], index: int, named: str) -> None:
    problem = conversation_problem(messages)
    assert problem is not None
    assert problem.startswith(f"messages[{index}]: ")
    assert repr(named) in problem


def test_an_id_in_a_problem_is_bounded() -> None:
    problem = conversation_problem([user(result("x" * 10_000))])
    assert problem is not None
    assert len(problem) < 200


@pytest.mark.parametrize("content", [text(), [], [text(), use("a"), use("b")]], ids=["text", "nothing", "tool uses"])
def test_a_model_answers_with_texts_and_tool_uses(content: SamplingContentBlock | list[SamplingContentBlock]) -> None:
    assert answer_problem("assistant", content) is None


@pytest.mark.parametrize(
    ("role", "content"),
    [("assistant", [result("a")]), ("assistant", [use("a"), use("a")]), ("user", use("a"))],
    ids=["a result", "one id twice", "a use of the user"],
)
def test_an_answer_that_no_conversation_could_have_has_a_problem(
    role: str, content: SamplingContentBlock | list[SamplingContentBlock]
) -> None:
    problem = answer_problem(role, content)
    assert problem is not None
    assert repr("a") in problem
