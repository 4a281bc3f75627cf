"""Group B: what happens during a call: questions and answers, progress, and subscriptions."""

from __future__ import annotations

from ....protocol.jsonrpc import RequestId
from ....types import JsonObject, JsonValue
from ..makers import Trait
from ..pair import Pair
from ..peer import Peer, Question, accepted
from ..rules import ELICITS, LEGACY, MODERN, rule
from ..watch import changes, watch

LIVE_FORMS = tuple(name for name in LEGACY if name in ELICITS)
NO_FORMS = "elicitation was added in 2025-06-18"
LIVE = "modern answers are part of the next request of the call"
ROUNDS = "legacy answers are separate messages"

# sampling


@rule("B")
async def two_samples_of_a_call_get_each_its_answer(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask_model_twice")
        for prompt, answer in (("first", "one"), ("second", "two")):
            question = await call.question()
            assert question.method == "sampling/createMessage"
            assert last_text(question) == prompt
            await call.answer(question, sampled(answer))
        assert await call.text() == "one, two"


@rule("B", revisions=MODERN, why=ROUNDS)
async def a_second_answer_to_a_round_has_no_effect(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask_model_twice")
        first, state = await call.question(), call.state
        await call.answer(first, sampled("one"))
        second = await call.question()
        outcome = await peer.result(await again(peer, "ask_model_twice", first, sampled("another"), state))
        assert outcome["requestState"] == call.state
        await call.answer(second, sampled("two"))
        assert await call.text() == "one, two"


# progress


@rule("B")
async def progress_names_the_token_of_its_request_and_rises_and_ends_with_the_reply(pair: Pair) -> None:
    for token in ("a token", 7):
        async with pair.peer() as peer:
            call = await peer.call("progress", {"n": 5}, progress=token)
            assert await call.text() == "done"
            progress = progress_of(peer)
            await peer.ping()
            assert peer.unread() == []
        assert [(said["progressToken"], said["progress"], said["total"]) for said in progress] == [
            (token, done, 5) for done in (1, 2, 3, 4, 5)
        ]


@rule("B")
async def progress_is_sent_only_to_requests_with_a_token(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await (await peer.call("progress", {"n": 5})).text() == "done"
        await peer.ping()
        assert peer.unread() == []


@rule("B")
async def the_progress_of_one_call_is_not_sent_to_another(pair: Pair) -> None:
    async with pair.peer() as peer:
        calls = {name: await peer.call("tell", {"n": 3, "name": name}, progress=name) for name in ("one", "other")}
        for name, call in calls.items():
            await pair.stage.open(f"{name} 0")
            assert await call.text() == f"{name} reported 3"
        progress = progress_of(peer)
        for name in calls:
            assert [said["progress"] for said in progress if said["progressToken"] == name] == [0, 1, 2, 3]


@rule("B", revisions=ELICITS, why=NO_FORMS)
async def progress_continues_after_a_question(pair: Pair) -> None:
    async with pair.peer() as peer:
        await pair.stage.open("tell_and_ask")
        call = await peer.call("tell_and_ask", progress="token")
        before = await peer.message("notifications/progress")
        await call.answer(await call.question(), accepted(value="on"))
        assert await call.text() == "on"
        after = await peer.message("notifications/progress")
        assert [said["params"] for said in (before, after)] == [
            {"progressToken": "token", "progress": done} for done in (1, 2)
        ]


@rule("B")
async def a_client_receives_progress_while_it_waits(pair: Pair) -> None:
    heard: list[tuple[float, float | None]] = []
    async with pair.client() as client:
        result = await client.call_tool(
            "progress", {"n": 3}, on_progress=lambda said: heard.append((said.progress, said.total))
        )
        assert result.text == "done"
    assert heard == [(1, 3), (2, 3), (3, 3)]


# subscriptions


@rule("B")
async def a_subscriber_is_notified_of_a_resource_and_of_its_parts(pair: Pair) -> None:
    async with pair.peer() as peer:
        heard = await watch(peer, uris=["contract://books"])
        for uri in ("contract://books", "contract://books/7"):
            await (await peer.call("update", {"uri": uri})).text()
            assert await heard.heard() == uri


@rule("B")
async def an_unsubscribed_client_receives_no_more_updates(pair: Pair) -> None:
    async with pair.peer() as peer:
        text = await watch(peer, uris=["contract://text"])
        every_byte = await watch(peer, uris=["contract://bytes"])
        await (await peer.call("update", {"uri": "contract://text"})).text()
        assert await text.heard() == "contract://text"
        await text.stop()
        await (await peer.call("update", {"uri": "contract://text"})).text()
        await (await peer.call("update", {"uri": "contract://bytes"})).text()
        assert await every_byte.heard() == "contract://bytes"
        assert changes(peer.unread()) == []


@rule("B", needs=(Trait.SERVES_MANY,))
async def two_subscribers_each_receive_their_own_updates(pair: Pair) -> None:
    async with pair.peer() as one, pair.peer() as other:
        text, every_byte = await watch(one, uris=["contract://text"]), await watch(other, uris=["contract://bytes"])
        for uri in ("contract://text", "contract://bytes"):
            await (await one.call("update", {"uri": uri})).text()
        assert await text.heard() == "contract://text"
        assert await every_byte.heard() == "contract://bytes"
        await one.ping()
        await other.ping()
        assert changes(one.unread()) + changes(other.unread()) == []


@rule("B", needs=(Trait.SERVES_MANY,))
async def a_subscriber_that_disconnects_does_not_affect_another(pair: Pair) -> None:
    async with pair.peer() as stays:
        heard = await watch(stays, uris=["contract://text"])
        async with pair.peer() as leaves:
            await watch(leaves, uris=["contract://text"])
        await (await stays.call("update", {"uri": "contract://text"})).text()
        assert await heard.heard() == "contract://text"


@rule("B", revisions=LEGACY, why="a modern client subscribes with one filter and ends it as a whole")
async def unsubscribing_from_one_resource_keeps_the_others(pair: Pair) -> None:
    async with pair.peer() as peer:
        heard = await watch(peer, uris=["contract://text", "contract://bytes"])
        assert await peer.result(await peer.request("resources/unsubscribe", {"uri": "contract://text"})) == {}
        for uri in ("contract://text", "contract://bytes"):
            await (await peer.call("update", {"uri": uri})).text()
        assert await heard.heard() == "contract://bytes"
        await peer.ping()
        assert changes(peer.unread()) == []


@rule("B")
async def an_invalid_uri_cannot_be_subscribed_to(pair: Pair) -> None:
    async with pair.peer() as peer:
        if peer.modern:
            params: JsonObject = {"notifications": {"resourceSubscriptions": ["no uri"]}}
            error = await peer.error(await peer.request("subscriptions/listen", params))
        else:
            error = await peer.error(await peer.request("resources/subscribe", {"uri": "no uri"}))
        assert error["code"] == -32602


async def again(peer: Peer, tool: str, question: Question, answer: JsonObject, state: JsonValue) -> RequestId:
    """Send one more leg of a modern call with this answer; return the id of the request."""
    carried: JsonObject = {"inputResponses": {str(question.key): answer}, "requestState": state}
    return await peer.request("tools/call", {"name": tool, "arguments": {}, **carried})


def sampled(text: str) -> JsonObject:
    """Return the answer of a model."""
    return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "parrot", "stopReason": "endTurn"}


def last_text(question: Question) -> object:
    """Return the text of the last message that the model receives."""
    messages = question.params["messages"]
    assert isinstance(messages, list)
    last = messages[-1]
    assert isinstance(last, dict)
    content = last["content"]
    assert isinstance(content, dict)
    return content["text"]


def progress_of(peer: Peer) -> list[JsonObject]:
    """Take all the messages that have arrived, which are progress notifications; return their params."""
    messages = peer.unread()
    assert all(message.get("method") == "notifications/progress" for message in messages), messages
    return [message["params"] for message in messages if isinstance(message["params"], dict)]
