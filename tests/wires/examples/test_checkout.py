"""The checkout example: it asks in the middle, survives the end of its process, and never charges twice."""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from connected import connected
from serving import ROOT, HttpProcess, http_client, http_process, retry
from users import User, Written

from examples.checkout import server
from trio_mcp import Disconnected, accept, decline, dismiss
from trio_mcp.errors import LimitExceeded
from trio_mcp.types import ElicitRequestFormParams, ElicitResult

CHECKOUT = ROOT / "examples" / "checkout.py"
YES, NO = accept(value=True), accept(value=False)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    path = tmp_path / "ledger"
    monkeypatch.setenv("CHECKOUT_LEDGER", str(path))
    return Written(path)


@pytest.fixture
def keys() -> str:
    return urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")


async def call(mode: str, user: User, tool: str, **arguments: int) -> str:
    async with connected(server, mode, on_elicit=user.answer) as client:
        result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.text
    return result.text


# each tool, in both eras


async def test_a_charge_is_made_once_and_then_confirmed(mode: str, ledger: Written) -> None:
    seen: list[list[str]] = []

    def look(_params: ElicitRequestFormParams) -> ElicitResult:
        seen.append(ledger.lines)
        return YES

    async with connected(server, mode, on_elicit=look) as client:
        assert (await client.call_tool("charge", {"amount": 5})).text == "Charged 5 euros, confirmed."
    assert (seen, ledger.lines) == ([["charged 5"]], ["charged 5", "confirmed"])


@pytest.mark.parametrize("answer", [NO, decline(), dismiss()], ids=["no", "declined", "dismissed"])
async def test_without_a_yes_a_charge_is_not_confirmed(mode: str, answer: ElicitResult, ledger: Written) -> None:
    assert await call(mode, User(answer), "charge", amount=5) == "Charged 5 euros, not confirmed."
    assert ledger.lines == ["charged 5"]


async def test_a_poll_asks_in_turn_and_a_vote_at_once(mode: str) -> None:
    user = User(YES, NO, YES)
    assert await call(mode, user, "poll", n=3) == "2 of 3 were liked."
    assert [params.message[-2:] for params in user.asked] == ["1?", "2?", "3?"]
    assert await call(mode, User(NO), "vote", n=100) == "99 of 100 are in favour."
    assert await call(mode, User(), "poll", n=10) == "10 of 10 were liked."
    async with connected(server, mode, on_elicit=User().answer) as client:
        if mode == "modern":
            assert (await client.call_tool("vote", {"n": 100}, max_rounds=1)).text == "100 of 100 are in favour."
            with pytest.raises(LimitExceeded, match="max_rounds"):
                await client.call_tool("poll", {"n": 11})


@pytest.mark.parametrize("wrong", [accept(age=151), accept(age="ten"), accept()])
async def test_an_invalid_age_is_asked_for_again(mode: str, wrong: ElicitResult) -> None:
    user = User(wrong, accept(age=150))
    assert await call(mode, user, "quiz") == "You are 150."
    age = user.asked[0].requested_schema.properties["age"]
    assert (age.type, age.minimum, age.maximum) == ("integer", 0, 150)
    assert "The last answer could not be used: age" in user.asked[1].message


# the process is killed in the middle


@asynccontextmanager
async def checkout(ledger: Written, keys: str) -> AsyncIterator[HttpProcess]:
    async with http_process(CHECKOUT, CHECKOUT_LEDGER=str(ledger.path), TRIO_MCP_KEYS=keys) as process:
        yield process


async def test_a_server_that_is_killed_while_the_user_thinks_goes_on_with_the_call(ledger: Written, keys: str) -> None:
    async with checkout(ledger, keys) as process:

        async def restart(_params: ElicitRequestFormParams) -> ElicitResult:
            assert ledger.lines == ["charged 5"]
            await process.restart()
            return YES

        async with connected(process.url, "modern", on_elicit=restart) as client:
            assert (await client.call_tool("charge", {"amount": 5})).text == "Charged 5 euros, confirmed."
    assert ledger.lines == ["charged 5", "confirmed"]


async def test_a_legacy_client_learns_that_its_server_is_gone_and_nothing_is_done_twice(
    ledger: Written, keys: str
) -> None:
    async with checkout(ledger, keys) as process:

        async def restart(_params: ElicitRequestFormParams) -> ElicitResult:
            await process.restart()
            return YES

        async with connected(process.url, "legacy", on_elicit=restart) as client:
            with pytest.raises(Disconnected):
                await client.call_tool("charge", {"amount": 5})
    assert ledger.lines == ["charged 5"]


async def test_processes_with_the_same_keys_may_take_turns(ledger: Written, keys: str) -> None:
    async with checkout(ledger, keys) as first, checkout(ledger, keys) as second, http_client() as http:
        asked = await http.round(first.url, "poll", {"n": 3})
        asked = await http.round(second.url, "poll", {"n": 3}, **retry(asked, True))
        asked = await http.round(first.url, "poll", {"n": 3}, **retry(asked, False))
        result = await http.result(second.url, "poll", {"n": 3}, **retry(asked, True))
    assert result["content"][0]["text"] == "2 of 3 were liked."
