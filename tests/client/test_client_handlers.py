"""How long the handlers of a server's questions run, and how many at once."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from naming import naming, unnamed
from scripted import (
    FORM,
    FORM_QUESTION,
    ROOTS_QUESTION,
    SAMPLE_QUESTION,
    Gathering,
    Json,
    Thinker,
    as_legacy,
    as_modern,
    asking,
    calling,
    conversation,
    interim,
)
from scripted_http import event, in_session
from trio.testing import wait_all_tasks_blocked
from wire_terms import INTERNAL_ERROR, SERVER_BUSY

from trio_mcp import Client, Context, Server
from trio_mcp.client import Handlers, decline
from trio_mcp.client.handlers import Rounds
from trio_mcp.errors import Disconnected, LimitExceeded
from trio_mcp.types import ListRootsRequest
from trio_mcp_transports.http.client.exchange import MAX_RESUME_ATTEMPTS

QUESTIONS = {"on_elicit": FORM_QUESTION, "on_sample": SAMPLE_QUESTION, "on_roots": ROOTS_QUESTION}


class Thinks(Thinker):
    """A handler of any question that never returns."""

    async def __call__(self, *_params: object) -> Any:
        return await super().__call__(None)


@pytest.mark.parametrize("name", QUESTIONS)
async def test_every_handler_is_cancelled_when_its_question_is_withdrawn(name: str) -> None:
    thinks = Thinks()
    async with conversation(as_legacy, **{name: thinks}) as (_client, wire, _start):
        await wire.send({"id": "q", **QUESTIONS[name]})
        await thinks.asked.wait()
        await wire.notify("notifications/cancelled", {"requestId": "q"})
        await wire.silence()
        assert thinks.cancelled


@pytest.mark.parametrize("name", QUESTIONS)
async def test_every_handler_is_cancelled_when_the_connection_is_lost(opening: Any, name: str) -> None:
    thinks = Thinks()
    async with calling(opening, {name: thinks}) as (wire, call, request):
        if opening is as_legacy:
            await wire.send({"id": "q", **QUESTIONS[name]})
        else:
            await wire.respond(request, interim({"q": QUESTIONS[name]}))
        await thinks.asked.wait()
        await wire.close()
        await call.fails(Disconnected, "closed the connection")
        await wait_all_tasks_blocked()
        assert thinks.cancelled


async def test_a_client_that_is_closed_while_its_user_thinks_cancels_the_handler(opening: Any) -> None:
    thinks = Thinks()
    async with conversation(opening, on_elicit=thinks) as (client, wire, start):
        call = start(client.call_tool, "book")
        request = await wire.request("tools/call")
        if opening is as_legacy:
            await wire.send({"id": "q", **FORM_QUESTION})
        else:
            await wire.respond(request, asking("a", state="s"))
        await thinks.asked.wait()
        await client.aclose()
        await call.fails(Disconnected)
        assert thinks.cancelled


async def test_a_round_that_comes_as_the_connection_ends_asks_no_handler() -> None:
    asked: list[object] = []
    no_codec: Any = None
    rounds = Rounds(Handlers(on_roots=lambda: asked.append(1) or []), 1)
    rounds.end(Disconnected("the server closed the connection"))
    with pytest.raises(Disconnected, match="closed the connection"):
        await rounds.answer("book", {"q": ListRootsRequest()}, no_codec)
    assert asked == []


async def test_a_handler_of_a_session_that_was_lost_is_cancelled() -> None:
    thinks = Thinks()
    async with in_session(on_elicit=thinks) as (client, wire, start):
        slow = start(client.call_tool, "slow")
        asking_post = await wire.post()
        asking_post.stream()
        asking_post.say(event({"id": "q", **FORM_QUESTION}))
        await thinks.asked.wait()
        call = start(client.call_tool, "book")
        await wire.lose()
        assert thinks.cancelled
        await wire.finish(call)
        wire.nothing()  # no answer to the question either
        asking_post.end()
        await slow.fails(Disconnected)


async def test_a_handler_is_cancelled_when_the_response_that_brought_its_question_is_lost() -> None:
    thinks, others = Thinks(), Thinks()
    async with in_session(on_elicit=thinks, on_roots=others) as (client, wire, start):
        call = start(client.call_tool, "slow")
        post = await wire.post()
        post.stream()
        post.say(event({"id": "q", **FORM_QUESTION}))
        await thinks.asked.wait()
        other = start(client.call_tool, "other")
        other_post = await wire.post()
        other_post.stream()
        other_post.say(event({"id": "r", **ROOTS_QUESTION}))
        await others.asked.wait()
        post.end()
        await call.fails(Disconnected)
        await wait_all_tasks_blocked()
        assert (thinks.cancelled, others.cancelled) == (True, False)
        wire.nothing()  # no answer to a question of a call that has failed
        other_post.end()
        await other.fails(Disconnected)


async def test_a_handler_is_cancelled_when_its_client_gives_up_the_server() -> None:
    """Until then the server may come back, and still want the answer."""
    thinks = Thinks()
    async with in_session(on_elicit=thinks) as (client, wire, start):
        call = start(client.call_tool, "slow")
        post = await wire.post()
        post.stream()
        post.say(event({"id": "q", **FORM_QUESTION}, id="1-0"))
        await thinks.asked.wait()
        post.end()
        for _ in range(MAX_RESUME_ATTEMPTS):
            assert not thinks.cancelled
            (await wire.next("GET")).answer(503)
        await call.fails(Disconnected)
        await wait_all_tasks_blocked()
        assert thinks.cancelled
        wire.nothing()


async def test_a_handler_that_turns_its_cancel_into_an_error_sends_nothing() -> None:
    asked = trio.Event()

    async def fails_late(_params: object) -> Any:
        asked.set()
        try:
            await trio.sleep_forever()
        finally:
            raise LookupError("late")

    async with conversation(as_legacy, on_elicit=fails_late) as (_client, wire, _start):
        await wire.send({"id": "q", **FORM_QUESTION})
        await asked.wait()
        await wire.notify("notifications/cancelled", {"requestId": "q"})
        await wire.silence()


async def test_a_handler_that_ignores_its_cancel_keeps_no_connection_open() -> None:
    done, asked = trio.Event(), trio.Event()

    async def stubborn(_params: object) -> Any:
        with trio.CancelScope(shield=True):
            asked.set()
            await done.wait()
        return decline()

    async with conversation(as_legacy, on_elicit=stubborn) as (client, wire, _start):
        await wire.send({"id": "q", **FORM_QUESTION})
        await asked.wait()
        before = trio.current_time()
        with trio.move_on_after(60) as waiting:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.aclose)
                await wire.end()
                assert trio.current_time() == before, "the connection ends at once"
        assert not waiting.cancelled_caught, "and to close the client takes a bounded time"
        done.set()


async def test_a_legacy_server_that_asks_too_much_at_once_gets_an_error_with_the_limit() -> None:
    thinks = Thinks()
    async with conversation(as_legacy, on_elicit=thinks, max_handlers=1) as (_client, wire, _start):
        await wire.ask("a", "elicitation/create", FORM)
        await wire.ask("b", "elicitation/create", FORM)
        error = (await wire.answer("b"))["error"]
        assert error["code"] == SERVER_BUSY
        assert unnamed(error["message"], 1, "max_handlers") == []


class Counting:
    """A handler that notes how many of it run at once."""

    def __init__(self) -> None:
        self.running = self.most = 0

    async def __call__(self, _params: object) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        await trio.sleep(1)
        self.running -= 1
        return decline()


async def test_the_questions_of_rounds_above_the_limit_wait_for_their_turn() -> None:
    counting = Counting()
    async with conversation(as_modern, on_elicit=counting, max_handlers=2) as (client, wire, start):
        for _ in range(2):
            start(client.call_tool, "book")
        for _ in range(2):
            await wire.respond(await wire.request("tools/call"), asking("a", "b", "c", state="s"))
        for _ in range(2):
            assert set((await wire.request("tools/call"))["params"]["inputResponses"]) == {"a", "b", "c"}
    assert counting.most == 2


async def test_a_round_that_fails_gives_its_places_back() -> None:
    failing = True

    async def on_elicit(_params: object) -> Any:
        if failing:
            raise LookupError
        return await together(_params)

    together = Gathering(2)
    async with conversation(as_modern, on_elicit=on_elicit, max_handlers=2) as (client, wire, start):
        for keys in (("a", "b", "c"), ("a", "b")):
            call = start(client.call_tool, "book")
            await wire.respond(await wire.request("tools/call"), asking(*keys, state="s"))
            if failing:
                await call.fails(LookupError)
            failing = False
        await wire.request("tools/call")


@pytest.mark.parametrize("name", QUESTIONS)
async def test_a_handler_that_takes_too_long_fails_its_question_and_names_the_limit(opening: Any, name: str) -> None:
    thinks = Thinks()
    handlers: Json = {name: thinks, "timeout": 5}
    async with calling(opening, handlers) as (wire, call, request):
        if opening is as_legacy:
            error = (await wire.answer_to(QUESTIONS[name]))["error"]
            assert error["code"] == INTERNAL_ERROR
            assert unnamed(error["message"], 5, "handler_timeout") == []
        else:
            await wire.respond(request, interim({"q": QUESTIONS[name]}))
            await call.fails(LimitExceeded, naming(5, "handler_timeout"))
    assert thinks.cancelled


async def test_an_exit_in_a_handler_reaches_the_program(mode: str) -> None:
    server = Server("asking")

    @server.tool
    async def book(ctx: Context) -> str:
        return str(await ctx.elicit.strict("Which seat?", str))

    def leave(_form: object) -> Any:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        async with Client.connect(server, mode=mode, on_elicit=leave) as client:
            await client.call_tool("book")
