"""The probes on which other MCP libraries for Python fail, each with the outcome that is right.

Each drove a server whose tool asks in the middle, as a client of either era, a retrying proxy or an attacker does. What a
probe says about the wire is tried over real HTTP. A row, and what covers it:

    a tool that calls `ctx.elicit`, both eras            test_one_tool_asks_clients_of_both_eras
                                                         test_what_was_done_before_the_question_is_done_once
    questions that depend on each other                  test_what_does_not_ask_runs_once_however_many_questions_depend_on_it
    a hand-made interim result                           test_a_hand_made_interim_result_is_an_error_that_names_the_way_to_ask
                                                         test_a_tool_cannot_promise_an_interim_result
    no channel back to a legacy client                   test_a_legacy_client_is_asked_on_the_response_of_its_call
    the body and its dependencies once per round         test_the_body_and_what_it_depends_on_run_once_for_all_rounds

    second leg at another server, with its own key       test_a_leg_at_a_server_with_another_key_is_refused
    second leg at another server, shared keys and name   test_a_leg_at_a_server_with_the_same_keys_goes_on
                                                         test_the_same_keys_under_another_name_are_refused
    the same leg sent twice                              test_a_leg_that_is_sent_again_charges_nobody_again
                                                         test_copies_of_a_leg_at_the_same_time_charge_once
                                                         test_a_leg_that_is_sent_to_two_servers_charges_once
    the same state with other arguments                  test_a_state_is_refused_with_other_arguments
    answers without a state                              test_answers_to_what_was_never_asked_are_not_taken
    an answer that breaks the schema                     test_an_answer_that_breaks_the_schema_is_asked_for_again
                                                         (and the same of a legacy client)
                                                         test_a_user_who_never_answers_well_ends_the_call_with_an_error
    a question with a timestamp in it                    test_a_question_that_never_reads_the_same_is_asked_once
    a loop of twelve rounds                              test_a_loop_of_twelve_questions_takes_a_client_that_allows_twelve_rounds
                                                         test_a_loop_of_twelve_questions_is_nothing_to_a_legacy_client
    a client that did not declare elicitation            test_a_client_that_cannot_ask_its_user_is_told_so
    the size of the state                                test_a_state_is_small_whatever_the_call_holds
    a sampled completion in later states                 test_what_was_answered_does_not_ride_in_the_state_of_a_parked_call
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from serving import Json, http_client, retry, served

from trio_mcp import Client, Context, LimitExceeded, PeerError, Server, ServiceOptions, accept
from trio_mcp.errors import InvalidRequestState
from trio_mcp.protocol.jsonrpc import MISSING_CAPABILITY
from trio_mcp.protocol.sealing.request_state import KeyRing
from trio_mcp.types import ElicitRequestFormParams, ElicitResult, InputRequiredResult

STATE_ERROR = {"code": -32602, "message": InvalidRequestState.TEXT}
MODES = {"legacy": "legacy", "modern": "2026-07-28"}
BOUND = 30.0

both_eras = pytest.mark.parametrize("era", ["legacy", "modern"])


class Till:
    """A server whose tools have effects before, between and after their questions; `effects` records them."""

    def __init__(self, name: str = "till", **options: Any) -> None:
        self.effects: list[str] = []
        self.server = Server(name, options=ServiceOptions(**options))
        self.server.tool(self.charge)
        self.server.tool(resume="replay")(self.order)
        self.server.tool(self.trip)
        self.server.tool(self.age)
        self.server.tool(self.now)
        self.server.tool(self.loop)
        self.server.tool(self.laden)
        self.server.tool(self.story)
        self._time = itertools.count(1)

    async def charge(self, ctx: Context, amount: int = 5) -> str:
        self.effects.append(f"reserved {amount}")
        sure = await ctx.elicit("Sure?", bool)
        if sure.action != "accept" or not sure.content:
            return "not charged"
        self.effects.append(f"charged {amount}")
        return f"charged {amount}"

    async def order(self, ctx: Context, amount: int = 5) -> str:
        await ctx.step("charge", self.effects.append, f"charged {amount}")
        sure = await ctx.elicit("Sure?", bool)
        return f"charged {amount}, {sure.action}"

    async def trip(self, ctx: Context) -> str:
        """Two questions, of which the second depends on the answer to the first, and a look-up that asks nothing."""
        self.effects.append("body")
        currency = self.look_up()
        city = await self.ask("Where to?", ctx)
        street = await self.ask(f"Where in {city}?", ctx)
        return f"{street}, {city}, {currency}"

    def look_up(self) -> str:
        self.effects.append("looked up")
        return "EUR"

    async def ask(self, question: str, ctx: Context) -> str:
        self.effects.append(question)
        answer = await ctx.elicit(question, str)
        return answer.content if answer.action == "accept" else "nowhere"

    async def age(self, ctx: Context) -> str:
        answer = await ctx.elicit("How old?", int)
        return f"{answer.content + 1} next year" if answer.action == "accept" else "unknown"

    async def now(self, ctx: Context) -> str:
        sure = await ctx.elicit(f"It is {next(self._time)} o'clock. Sure?", bool)
        return sure.action

    async def loop(self, n: int, ctx: Context) -> int:
        return sum([int(await self.ask(f"Number {number}?", ctx)) for number in range(n)])

    async def laden(self, ctx: Context, kilobytes: int = 0) -> int:
        cargo = bytes(1024 * kilobytes)
        await ctx.elicit("Go on?", bool)
        return len(cargo)

    async def story(self, ctx: Context) -> int:
        told = await ctx.sample("Tell me a long story.", max_tokens=10_000)
        await ctx.elicit("Was it good?", bool)
        return len(told.text)


class User:
    """Answers in order, then yes; remembers what was asked."""

    def __init__(self, *values: object) -> None:
        self.asked: list[str] = []
        self._values = list(values)

    def elicit(self, params: ElicitRequestFormParams) -> ElicitResult:
        self.asked.append(params.message)
        value: Any = self._values.pop(0) if self._values else True
        return accept(value=value)


@asynccontextmanager
async def client_of(till: Till, era: str, **handlers: Any) -> AsyncIterator[Client]:
    """A client in the same process."""
    with trio.fail_after(BOUND):
        async with Client.connect(till.server, mode=MODES[era], **handlers) as client:
            yield client


@asynccontextmanager
async def client_over_http(till: Till, era: str, user: User) -> AsyncIterator[Client]:
    with trio.fail_after(BOUND):
        async with served(till.server) as url, Client.connect(url, mode=MODES[era], on_elicit=user.elicit) as client:
            yield client


def text_of(result: Json) -> str:
    text: str = result["content"][0]["text"]
    return text


# one way to ask, for clients of both eras


@both_eras
async def test_one_tool_asks_clients_of_both_eras(era: str) -> None:
    async with client_over_http(till := Till(), era, User()) as client:
        assert (await client.call_tool("charge")).text == "charged 5"
    assert till.effects == ["reserved 5", "charged 5"]


@both_eras
async def test_what_was_done_before_the_question_is_done_once(era: str) -> None:
    user = User("no", 1, False)  # two answers are not a truth value, the third is
    async with client_over_http(till := Till(), era, user) as client:
        assert (await client.call_tool("charge")).text == "not charged"
    assert till.effects == ["reserved 5"]
    assert len(user.asked) == 3


@both_eras
async def test_what_does_not_ask_runs_once_however_many_questions_depend_on_it(era: str) -> None:
    user = User("Lisbon", "Rua Augusta")
    async with client_of(till := Till(), era, on_elicit=user.elicit) as client:
        assert (await client.call_tool("trip")).text == "Rua Augusta, Lisbon, EUR"
    assert user.asked == ["Where to?", "Where in Lisbon?"]
    assert till.effects.count("looked up") == 1


@both_eras
async def test_the_body_and_what_it_depends_on_run_once_for_all_rounds(era: str) -> None:
    async with client_of(till := Till(), era, on_elicit=User("Lisbon", "Rua Augusta").elicit) as client:
        await client.call_tool("trip")
    assert till.effects == ["body", "looked up", "Where to?", "Where in Lisbon?"]


@both_eras
async def test_a_hand_made_interim_result_is_an_error_that_names_the_way_to_ask(era: str) -> None:
    till = Till()

    @till.server.tool
    async def handmade():  # type: ignore[no-untyped-def]
        return InputRequiredResult.model_validate({"requestState": "made by hand"})

    async with client_of(till, era) as client:
        result = await client.call_tool("handmade")
    assert result.is_error
    assert "ctx.elicit" in result.text


def test_a_tool_cannot_promise_an_interim_result() -> None:
    async def handmade() -> InputRequiredResult:
        raise NotImplementedError

    with pytest.raises(TypeError, match=r"ctx\.elicit"):
        Server("till").tool(handmade)


async def test_a_legacy_client_is_asked_on_the_response_of_its_call() -> None:
    """There is no mode without a way back: every legacy call has its own stream, whatever else the client has open."""
    async with client_over_http(Till(), "legacy", User()) as client:
        texts: list[str] = []

        async def call(amount: int) -> None:
            texts.append((await client.call_tool("charge", {"amount": amount})).text)

        async with trio.open_nursery() as nursery:
            for amount in (1, 2, 3):
                nursery.start_soon(call, amount)
    assert sorted(texts) == ["charged 1", "charged 2", "charged 3"]


# the state, and who sends it where


async def test_a_leg_at_a_server_with_another_key_is_refused() -> None:
    one, other = Till(), Till()
    async with served(one.server) as here, served(other.server) as there, http_client() as http:
        asked = await http.round(here, "charge")
        refused = await http.call(there, "charge", **retry(asked, True))
    assert refused["error"] == STATE_ERROR
    assert other.effects == []


async def test_a_leg_at_a_server_with_the_same_keys_goes_on() -> None:
    keys = KeyRing.random()
    one, other = Till(keys=keys), Till(keys=keys)
    async with served(one.server) as here, served(other.server) as there, http_client() as http:
        asked = await http.round(here, "order")
        result = await http.result(there, "order", **retry(asked, True))
    assert text_of(result) == "charged 5, accept"
    assert one.effects + other.effects == ["charged 5"]


async def test_the_same_keys_under_another_name_are_refused() -> None:
    keys = KeyRing.random()
    one, other = Till(keys=keys), Till("another till", keys=keys)
    async with served(one.server) as here, served(other.server) as there, http_client() as http:
        asked = await http.round(here, "order")
        refused = await http.call(there, "order", **retry(asked, True))
    assert refused["error"] == STATE_ERROR
    assert other.effects == []


async def test_a_leg_that_is_sent_again_charges_nobody_again() -> None:
    async with served((till := Till()).server) as url, http_client() as http:
        asked = await http.round(url, "charge")
        first = await http.result(url, "charge", **retry(asked, True))
        again = await http.result(url, "charge", **retry(asked, True))
        with_other_answers = await http.result(url, "charge", **retry(asked, False))
    assert first == again == with_other_answers
    assert till.effects == ["reserved 5", "charged 5"]


async def test_copies_of_a_leg_at_the_same_time_charge_once() -> None:
    async with served((till := Till()).server) as url, http_client() as http:
        asked = await http.round(url, "charge")
        results: list[Json] = []

        async def send() -> None:
            results.append(await http.result(url, "charge", **retry(asked, True)))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(send)
    assert [text_of(result) for result in results] == ["charged 5"] * 10
    assert till.effects == ["reserved 5", "charged 5"]


async def test_a_leg_that_is_sent_to_two_servers_charges_once() -> None:
    """A tool that says nothing of itself is not run again: the server that does not have its call says that it is lost."""
    keys = KeyRing.random()
    one, other = Till(keys=keys), Till(keys=keys)
    async with served(one.server) as here, served(other.server) as there, http_client() as http:
        asked = await http.round(here, "charge")
        lost = await http.result(there, "charge", **retry(asked, True))
        done = await http.result(here, "charge", **retry(asked, True))
    assert lost["isError"] is True
    assert "lost" in text_of(lost)
    assert text_of(done) == "charged 5"
    assert one.effects + other.effects == ["reserved 5", "charged 5"]


@pytest.mark.parametrize("arguments", [{"amount": 500}, {}, {"amount": 5.0}, {"amount": 5, "to": "me"}], ids=str)
async def test_a_state_is_refused_with_other_arguments(arguments: Json) -> None:
    async with served((till := Till()).server) as url, http_client() as http:
        asked = await http.round(url, "charge", {"amount": 5})
        refused = await http.call(url, "charge", arguments, **retry(asked, True))
        assert refused["error"] == STATE_ERROR
        result = await http.result(url, "charge", {"amount": 5}, **retry(asked, True))
    assert text_of(result) == "charged 5"
    assert till.effects == ["reserved 5", "charged 5"]


async def test_answers_to_what_was_never_asked_are_not_taken() -> None:
    async with served((till := Till()).server) as url, http_client() as http:
        asked = await http.round(url, "charge")
        forged = retry(asked, True)["answers"]
        again = await http.round(url, "charge", answers=forged)
    assert list(again["inputRequests"]) == list(asked["inputRequests"])
    assert till.effects == ["reserved 5", "reserved 5"]


# answers


@pytest.mark.parametrize("wrong", ["notanint", True, 1.5, None, ["a"], {}], ids=str)
async def test_an_answer_that_breaks_the_schema_is_asked_for_again(wrong: Any) -> None:
    async with served(Till().server) as url, http_client() as http:
        asked = await http.round(url, "age")
        asked = await http.round(url, "age", **retry(asked, wrong))
        (question,) = asked["inputRequests"].values()
        assert "How old?\n\nThe last answer could not be used: value" in question["params"]["message"]
        assert text_of(await http.result(url, "age", **retry(asked, 41))) == "42 next year"


async def test_an_answer_that_breaks_the_schema_is_asked_for_again_of_a_legacy_client_too() -> None:
    user = User("notanint", 41)
    async with client_over_http(Till(), "legacy", user) as client:
        assert (await client.call_tool("age")).text == "42 next year"
    assert len(user.asked) == 2


@both_eras
async def test_a_user_who_never_answers_well_ends_the_call_with_an_error(era: str) -> None:
    user = User("a", "b", "c", "d")
    async with client_over_http(Till(), era, user) as client:
        result = await client.call_tool("age")
    assert result.is_error
    assert "still invalid after 3 attempts" in result.text
    assert len(user.asked) == 3


@both_eras
async def test_a_question_that_never_reads_the_same_is_asked_once(era: str) -> None:
    user = User()
    async with client_over_http(Till(), era, user) as client:
        assert (await client.call_tool("now")).text == "accept"
    assert user.asked == ["It is 1 o'clock. Sure?"]


async def test_a_loop_of_twelve_questions_takes_a_client_that_allows_twelve_rounds() -> None:
    user = User(*["1"] * 24)
    async with client_over_http(Till(), "modern", user) as client:
        assert (await client.call_tool("loop", {"n": 12}, max_rounds=12)).structured_content == {"result": 12}
        with pytest.raises(LimitExceeded, match="10 rounds"):
            await client.call_tool("loop", {"n": 12})
    assert len(user.asked) == 12 + 10


async def test_a_loop_of_twelve_questions_is_nothing_to_a_legacy_client() -> None:
    async with client_over_http(Till(), "legacy", User(*["1"] * 12)) as client:
        assert (await client.call_tool("loop", {"n": 12})).structured_content == {"result": 12}


@both_eras
async def test_a_client_that_cannot_ask_its_user_is_told_so(era: str) -> None:
    async with client_of(till := Till(), era) as client:
        with pytest.raises(PeerError) as refused:
            await client.call_tool("charge")
    assert "elicitation" in refused.value.message
    assert refused.value.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}
    if era == "modern":
        assert refused.value.code == MISSING_CAPABILITY
    assert till.effects == ["reserved 5"]


# what the state weighs


async def test_a_state_is_small_whatever_the_call_holds() -> None:
    async with served(Till().server) as url, http_client() as http:
        sizes = [
            len((await http.round(url, "laden", {"kilobytes": kilobytes}))["requestState"]) for kilobytes in (1, 9999)
        ]
    assert sizes[0] == pytest.approx(sizes[1], abs=8)
    assert max(sizes) < 512


async def test_what_was_answered_does_not_ride_in_the_state_of_a_parked_call() -> None:
    story = {"role": "assistant", "content": {"type": "text", "text": "x" * 20_000}, "model": "m"}
    async with served(Till().server) as url, http_client() as http:
        first = await http.round(url, "story")
        answers = dict.fromkeys(first["inputRequests"], story)
        second = await http.round(url, "story", state=first["requestState"], answers=answers)
        assert len(second["requestState"]) < 512
        result = await http.result(url, "story", **retry(second, True))
    assert result["structuredContent"] == {"result": 20_000}
