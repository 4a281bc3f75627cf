"""What the JSON of an answer costs: each part of a text is read once, however often its value is needed."""

from __future__ import annotations

import pytest
import trio

from trio_mcp import SampleInvalid
from trio_mcp.server.sampling import sampler, structured
from trio_mcp.server.sampling.answers import answered
from trio_mcp.testing import MockClient, tool_use
from trio_mcp.types import ClientCapabilities, JsonObject, SamplingCapability, SamplingMessage, ToolUseContent

PLAIN = ClientCapabilities(sampling=SamplingCapability())


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is parsed as JSON of an answer."""
    parsed: list[bytes] = []
    loads = structured.loads

    def counted(data: bytes) -> object:
        parsed.append(data)
        return loads(data)

    monkeypatch.setattr(structured, "loads", counted)
    return parsed


async def test_a_valid_answer_is_parsed_once(read: list[bytes]) -> None:
    client = MockClient(samples=['{"result": 7}'], capabilities=PLAIN)
    async with client.context() as ctx:
        answer = await ctx.sample("How many?", returns=int)
        assert answer.data == 7
        assert len(answer.exchange.messages) == 3
    assert read == [b'{"result": 7}']


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{}{}", ["{}{}"]),
        ("```{}{}```", ["```{}{}```", "{}{}"]),
        ("a ```x``` {}{} b", ["a ```x``` {}{} b", "x", "{}{}"]),
        ("```" * 100 + "{" * 100, ["```" * 100 + "{" * 100, ""]),
    ],
)
async def test_no_part_of_a_text_is_parsed_twice(read: list[bytes], text: str, parts: list[str]) -> None:
    client = MockClient(samples=[text], capabilities=PLAIN)
    async with client.context() as ctx:
        with pytest.raises(SampleInvalid):
            await ctx.sample("How many?", returns=int, retries=0)
    assert [each.decode() for each in read] == parts


LARGE = 5_000
"""Values from which on an answer is large."""


@pytest.mark.parametrize(("values", "turns"), [(10, 0), (LARGE, 2)])
async def test_other_tasks_run_before_and_after_a_large_answer_is_kept(
    values: int, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []

    async def let_others_run() -> None:
        kept.append(len(ctx.messages))
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(sampler, "let_others_run", let_others_run)
    answer = tool_use("look", a=list(range(values)))

    async def look(a: list[int]) -> str:
        return ""

    async with MockClient(samples=[answer]).context() as ctx:
        await ctx.sample("Who?", tools=[look])
    assert kept == [0, 2][:turns]


async def test_other_tasks_run_between_the_check_of_large_data_and_its_keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    async def let_others_run() -> None:
        done.append("kept" if ctx.messages else "turn")
        await trio.lowlevel.checkpoint()

    read = structured.TypedForm.read

    def noted(form: structured.TypedForm[object], data: JsonObject) -> object:
        done.append("checked")
        return read(form, data)

    monkeypatch.setattr(sampler, "let_others_run", let_others_run)
    monkeypatch.setattr(structured.TypedForm, "read", noted)
    async with MockClient(samples=[{"result": list(range(LARGE))}]).context() as ctx:
        await ctx.sample("Which?", returns=list[int])
    assert done == ["turn", "checked", "turn", "kept"]


def test_a_result_that_is_added_copies_none_of_the_messages_before_it() -> None:
    messages = [SamplingMessage(role="assistant", content=[ToolUseContent(id="u", name="look", input={})])]
    assert answered(messages, {"u": "x"})[0] is messages[0]
