"""What the JSON of an answer costs: each part of a text is read once, however often its value is needed."""

from __future__ import annotations

import pytest

from trio_mcp import SampleInvalid
from trio_mcp.server.sampling import structured
from trio_mcp.testing import MockClient
from trio_mcp.types import ClientCapabilities, SamplingCapability

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
