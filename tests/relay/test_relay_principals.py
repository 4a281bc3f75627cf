"""Principals of an authenticated proxy are apart, though its server takes all of them for one caller."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
import trio.testing
from asgi_peer import JSON_HEADERS, legacy_call, modern_call, served
from hosts import proxied
from one_era import one_era
from principals import TALKS, Principal, authenticate, principals
from relaying import ALL_SECONDS, FORM, PROMPT, Json, ask
from wire_terms import IDEMPOTENCY_KEY, RELATED_TASK

from trio_mcp import Client, Context, Server, proxy
from trio_mcp.relay.bindings import audience_of
from trio_mcp.relay.rounds import MAX_SEALED
from trio_mcp.relay.upstream import words_of
from trio_mcp.session import AnyChannel, KeyRing
from trio_mcp_transports.http import asgi_app

ERAS = ("legacy", "modern")
hosts = pytest.mark.parametrize("host", ERAS)
servers = pytest.mark.parametrize("server", ERAS)
ways = pytest.mark.parametrize("way", TALKS)

MADE_UP_LINK = "trio-mcp://results/made-up"


def shop(era: str) -> Server:
    server = Server("shop")
    receipts: list[int] = []

    @server.tool
    async def pay(order: int) -> str:
        receipts.append(order)
        return f"receipt {len(receipts)}"

    @server.tool
    async def ask(what: str, ctx: Context) -> str:
        return f"{what} {(await ctx.elicit(what, str)).content}"

    @server.tool(task=True)
    async def job(what: str, ctx: Context) -> str:
        return f"{what} {(await ctx.elicit(what, str)).content}"

    @server.tool(max_result=2048)
    async def big(text: str) -> str:
        return text * 3000

    @server.tool(task=True, max_result=2048)
    async def big_job(text: str) -> str:
        return text * 3000

    return one_era(server, era)


def text_of(reply: Json) -> str:
    return str(reply["result"]["content"][0]["text"])


def link_of(reply: Json) -> str:
    return next(str(block["uri"]) for block in reply["result"]["content"] if block["type"] == "resource_link")


def answer(question: Json, text: str) -> Json:
    """Return the members of a retry that answers the only question."""
    (key,) = question["result"]["inputRequests"]
    return {"inputResponses": accepted(key, text)}


def accepted(key: str, text: str) -> Json:
    return {key: {"action": "accept", "content": {"value": text}}}


# idempotency keys


@hosts
@servers
@ways
async def test_an_idempotency_key_is_that_of_its_principal(host: str, server: str, way: str) -> None:
    async with principals(shop(server), host=host, way=way) as (alice, bob):
        key = {IDEMPOTENCY_KEY: "order 7"}
        first = text_of(await alice.call("pay", key, order=7))
        assert text_of(await bob.call("pay", key, order=7)) != first
        assert text_of(await alice.call("pay", key, order=7)) == first


@hosts
async def test_a_key_of_the_longest_length_goes_through_two_proxies(host: str) -> None:
    async with principals(shop(host), host=host, way="chain") as (alice, bob):
        key = {IDEMPOTENCY_KEY: "k" * 128}
        first = text_of(await alice.call("pay", key, order=7))
        assert text_of(await alice.call("pay", key, order=7)) == first
        assert text_of(await bob.call("pay", key, order=7)) != first
        other = {IDEMPOTENCY_KEY: "k" * 127 + "l"}
        assert text_of(await alice.call("pay", other, order=7)) != first


@hosts
@servers
@pytest.mark.parametrize("key", ["", "k" * 129, 7])
async def test_a_key_that_is_malformed_is_rejected(host: str, server: str, key: object) -> None:
    async with principals(shop(server), host=host) as (alice, _):
        reply = await alice.call("pay", {IDEMPOTENCY_KEY: key}, order=7)
        assert reply["error"]["code"] == -32602
        assert IDEMPOTENCY_KEY in reply["error"]["message"]


@hosts
@servers
async def test_a_principal_of_another_proxy_is_another_one_although_it_has_the_same_name_and_keys(
    host: str, server: str
) -> None:
    ring = KeyRing([bytes(range(32))])
    opened = principals(shop(server), host=host, keys=[ring], names=["shop", "office", "shop"])
    async with opened as (alice, _, namesake, _, again, _):
        key = {IDEMPOTENCY_KEY: "order 7"}
        first = text_of(await alice.call("pay", key, order=7))
        assert text_of(await namesake.call("pay", key, order=7)) != first
        assert text_of(await again.call("pay", key, order=7)) == first
        link = link_of(await alice.call("big", text="a"))
        assert "error" in await namesake.request("resources/read", uri=link)
        assert "result" in await again.request("resources/read", uri=link)
        if host == server == "modern":
            asked = await alice.call("ask", what="who?")
            state = asked["result"]["requestState"]
            tried = {"name": "ask", "arguments": {"what": "who?"}, "requestState": state, **answer(asked, "Bob")}
            assert (await namesake.request("tools/call", **tried))["error"]["code"] == -32602
            assert text_of(await again.request("tools/call", **tried)) == "who? Bob"


def test_the_audience_of_a_proxy_is_its_name_its_server_and_what_it_is_mounted_in_without_secrets() -> None:
    command, url = ["python", "a.py"], "https://user:secret@example.com:8000/mcp?token=x#y"
    assert words_of(Client.connect(url)) == words_of(url) == ("https://example.com:8000/mcp",)
    assert (words_of(command), words_of(Path("a.py")), words_of(Server("s"))) == (("python", "a.py"), ("a.py",), ())
    audiences = [
        audience_of("a", ["b"], []),
        audience_of("a", [], ["b"]),
        audience_of("b", ["b"], []),
        audience_of("a", ["b", "c"], []),
    ]
    assert len(set(audiences)) == 4
    assert audience_of("a", (), ["x", "y"]) == audience_of("a", [], ("y", "x"))


# requestState


@servers
@ways
async def test_a_state_of_another_principal_is_rejected_as_one_that_was_made_up(server: str, way: str) -> None:
    async with principals(shop(server), way=way) as (alice, bob):
        asked = await alice.call("ask", what="who?")
        state = str(asked["result"]["requestState"])
        tried = {"name": "ask", "arguments": {"what": "who?"}, **answer(asked, "bob")}
        made_up = await bob.request("tools/call", **tried, requestState="made-up")
        assert made_up["error"]["code"] == -32602
        assert await bob.request("tools/call", **tried, requestState=state) == made_up
        changed = state[:-9] + ("A" if state[-9] != "A" else "B") + state[-8:]
        assert await alice.request("tools/call", **tried, requestState=changed) == made_up
        other = {**tried, "arguments": {"what": "whom?"}}
        assert await alice.request("tools/call", **other, requestState=state) == made_up
        assert text_of(await alice.request("tools/call", **tried, requestState=state)) == "who? bob"


# links to results


@hosts
@servers
@ways
async def test_a_link_of_another_principal_is_as_unknown_as_a_made_up_one(host: str, server: str, way: str) -> None:
    async with principals(shop(server), host=host, way=way) as (alice, bob):
        preview = await alice.call("big", text="private ")
        link = link_of(preview)
        assert any(link in block.get("text", "") for block in preview["result"]["content"])
        stranger = await bob.request("resources/read", uri=link)
        made_up = await bob.request("resources/read", uri=MADE_UP_LINK)
        assert stranger["error"]["code"] == made_up["error"]["code"] == (-32602 if host == "modern" else -32002)
        assert stranger["error"]["message"].replace(link, "") == made_up["error"]["message"].replace(MADE_UP_LINK, "")
        (contents,) = (await alice.request("resources/read", uri=link))["result"]["contents"]
        assert contents["text"] == "private " * 3000
        assert contents["uri"] == link


# tasks


async def created(principal: Principal, name: str, **arguments: str) -> str:
    """Begin a task, and return its id."""
    params: Json = {"name": name, "arguments": arguments}
    if principal.era == "legacy":
        reply = await principal.request("tools/call", **params, task={})
        return str(reply["result"]["task"]["taskId"])
    return str((await principal.request("tools/call", **params))["result"]["taskId"])


async def state_of(principal: Principal, task_id: str, status: str) -> Json:
    """Return the task when it has this status."""
    with trio.fail_after(5):
        while True:
            found = dict((await principal.request("tasks/get", taskId=task_id))["result"])
            assert found["taskId"] == task_id
            if found["status"] == status:
                return found
            await trio.testing.wait_all_tasks_blocked()


@ways
async def test_a_modern_task_of_another_principal_is_as_unknown_as_one_that_was_made_up(way: str) -> None:
    async with principals(shop("modern"), way=way) as (alice, bob):
        task_id = await created(alice, "job", what="private")
        (key,) = (await state_of(alice, task_id, "input_required"))["inputRequests"]
        for method, more in (
            ("tasks/get", {}),
            ("tasks/cancel", {}),
            ("tasks/update", {"inputResponses": accepted(key, "by bob")}),
        ):
            made_up = await bob.request(method, taskId="made-up", **more)
            assert made_up["error"]["code"] == -32602
            assert await bob.request(method, taskId=task_id, **more) == made_up
        await alice.request("tasks/update", taskId=task_id, inputResponses=accepted(key, "by alice"))
        ended = await state_of(alice, task_id, "completed")
        assert ended["result"]["content"][0]["text"] == "private by alice"
        other = await created(alice, "job", what="second")
        await alice.request("tasks/cancel", taskId=other)
        await state_of(alice, other, "cancelled")


@ways
async def test_the_link_in_the_result_of_a_task_is_that_of_its_principal(way: str) -> None:
    async with principals(shop("modern"), way=way) as (alice, bob):
        ended = await state_of(alice, await created(alice, "big_job", text="private "), "completed")
        link = link_of({"result": ended["result"]})
        assert "error" in await bob.request("resources/read", uri=link)
        (contents,) = (await alice.request("resources/read", uri=link))["result"]["contents"]
        assert contents["text"] == "private " * 3000


@ways
async def test_news_of_tasks_reach_the_principal_whose_tasks_they_are_of(way: str) -> None:
    async with principals(shop("modern"), way=way) as (alice, bob):
        task_id = await created(alice, "job", what="private")
        await state_of(alice, task_id, "input_required")
        heard = []
        for each in (alice, bob):
            stream = each.start("subscriptions/listen", {"notifications": {"taskIds": [task_id]}})
            await stream.until("acknowledged")
            heard.append(stream)
        await alice.request("tasks/cancel", taskId=task_id)
        await heard[0].until("cancelled")
        assert heard[0].events[0]["params"]["notifications"] == {"taskIds": [task_id]}
        assert {event["params"]["taskId"] for event in heard[0].events[1:]} == {task_id}
        assert heard[1].events[0]["params"]["notifications"].get("taskIds", []) == []
        assert len(heard[1].events) == 1


@ways
async def test_a_legacy_task_of_another_principal_is_as_unknown_as_one_that_was_made_up(way: str) -> None:
    async with principals(shop("legacy"), host="legacy", way=way) as (alice, bob):
        task_id = await created(alice, "job", what="private")
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            made_up = await bob.request(method, taskId="made-up")
            assert made_up["error"]["code"] == -32602
            assert await bob.request(method, taskId=task_id) == made_up
        result = alice.start("tasks/result", {"taskId": task_id})
        await result.until("elicitation/create")
        question = next(event for event in result.events if event.get("method") == "elicitation/create")
        related = {RELATED_TASK: {"taskId": task_id}}
        assert question["params"]["_meta"] == related
        given = {"action": "accept", "content": {"value": "by alice"}, "_meta": related}
        posted = await alice.peer.post({"jsonrpc": "2.0", "id": question["id"], "result": given}, alice.headers)
        assert posted.status == 202
        ended = (await result.end()).last["result"]
        assert ended["content"][0]["text"] == "private by alice"
        assert ended["_meta"][RELATED_TASK] == {"taskId": task_id}


async def test_news_of_a_legacy_task_have_the_id_that_its_principal_knows() -> None:
    async with principals(shop("legacy"), host="legacy") as (alice, _):
        stream = alice.peer.start(b"", {**alice.headers, "accept": "text/event-stream"}, method="GET")
        task_id = await created(alice, "job", what="private")
        await alice.request("tasks/cancel", taskId=task_id)
        await stream.until("cancelled")
        announced = [
            event["params"]["taskId"] for event in stream.events if event["method"] == "notifications/tasks/status"
        ]
        assert set(announced) == {task_id}


async def test_tasks_that_may_be_those_of_other_principals_are_not_listed() -> None:
    async with principals(shop("legacy"), host="legacy") as (alice, bob):
        await created(alice, "job", what="private")
        assert (await bob.request("tasks/list"))["error"]["code"] == -32601
        opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}
        reply = (await bob.peer.post(hello, {**JSON_HEADERS, **bob.who})).json
        assert reply["result"]["capabilities"]["tasks"]["cancel"] == {}
        assert "list" not in reply["result"]["capabilities"]["tasks"]


# keys


async def test_proxies_that_share_their_keys_take_what_the_others_have_sealed_and_no_others_do() -> None:
    """The proxy stores nothing: another process of it goes on."""
    ring = KeyRing.random()
    async with principals(shop("modern"), keys=(ring, ring, KeyRing.random())) as found:
        (alice, _, alice_again, bob_again, alice_elsewhere, _) = found
        asked = await alice.call("ask", what="who?")
        state = str(asked["result"]["requestState"])
        tried = {"name": "ask", "arguments": {"what": "who?"}, **answer(asked, "alice"), "requestState": state}
        link = link_of(await alice.call("big", text="private "))
        for each in (bob_again, alice_elsewhere):
            assert "error" in await each.request("resources/read", uri=link)
            assert (await each.request("tools/call", **tried))["error"]["code"] == -32602
        assert "result" in await alice_again.request("resources/read", uri=link)
        assert text_of(await alice_again.request("tools/call", **tried)) == "who? alice"


# sessions


@servers
async def test_a_session_is_unknown_to_another_principal(server: str) -> None:
    async with principals(shop(server), host="legacy") as (alice, bob):
        body = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "pay", "arguments": {"order": 1}}}
        reply = await bob.peer.post(body, {**alice.headers, **bob.who})
        assert reply.status == 404
        assert text_of(await alice.call("pay", order=1)) == "receipt 1"


# what a server may send, line by line

ALICE = {"authorization": "Bearer alice"}
BOB = {"authorization": "Bearer bob"}


def call_of(who: dict[str, str], id: int = 1, **more: object) -> tuple[Json, dict[str, str]]:
    body, headers = modern_call("look", id=id, **more)
    return body, {**headers, **who}


def interim(request_id: object, state: str) -> Json:
    question = {"method": "elicitation/create", "params": {"message": "who?", "requestedSchema": {"type": "object"}}}
    asked = {"resultType": "input_required", "inputRequests": {"q": question}, "requestState": state}
    return {"jsonrpc": "2.0", "id": request_id, "result": asked}


async def test_a_state_as_large_as_a_server_makes_it_passes_and_a_larger_one_is_an_error_that_names_the_limit() -> None:
    async with proxied(authenticate=authenticate) as hosts:
        server = await hosts.discovered(ALICE)
        reply = hosts.peer.start(*call_of(ALICE))
        await server.send(interim((await server.receive())["id"], "s" * 64 * 1024))
        sealed = (await reply.end()).json["result"]["requestState"]
        again = hosts.peer.start(*call_of(ALICE, requestState=sealed, inputResponses={"q": {"action": "decline"}}))
        got = await server.receive()
        assert got["params"]["requestState"] == "s" * 64 * 1024
        assert got["params"]["inputResponses"] == {"q": {"action": "decline"}}
        await server.send(interim(got["id"], "s" * 1024 * 1024))
        error = (await again.end()).json["error"]
        assert error["code"] == -32603
        assert str(MAX_SEALED) in error["message"]


async def test_a_round_that_the_proxy_answers_in_part_is_that_of_its_principal() -> None:
    async with proxied(authenticate=authenticate) as hosts:
        server = await hosts.discovered(ALICE)
        reply = hosts.peer.start(*call_of(ALICE))
        asked = interim((await server.receive())["id"], "secret")
        asked["result"]["inputRequests"]["s"] = {"method": "sampling/createMessage", "params": PROMPT}
        await server.send(asked)
        shown = (await reply.end()).json["result"]
        assert list(shown["inputRequests"]) == ["q"]
        given = {"requestState": shown["requestState"], "inputResponses": {"q": {"action": "decline"}}}
        await hosts.discovered(BOB)
        refused = (await hosts.peer.start(*call_of(BOB, **given)).end()).json["error"]
        made_up = (await hosts.peer.start(*call_of(BOB, **{**given, "requestState": "x"})).end()).json["error"]
        assert refused == made_up
        hosts.peer.start(*call_of(ALICE, **given))
        got = await server.receive()
        assert (got["params"]["requestState"], set(got["params"]["inputResponses"])) == ("secret", {"q", "s"})


async def test_what_belongs_to_a_task_names_it_as_its_principal_knows_it() -> None:
    """In questions, progress, results and answers. A task of the host is left alone, and so is an unknown method."""
    async with proxied(authenticate=authenticate) as hosts:
        headers, server = await hosts.open_session(ALICE)
        stream = hosts.peer.start(b"", {**headers, "accept": "text/event-stream"}, method="GET")
        reply = hosts.peer.start({**legacy_call("look", id=2), "params": {"name": "look", "task": {}}}, headers)
        got = await server.receive()
        task = {"taskId": "t-1", "status": "working"}
        await server.send({"jsonrpc": "2.0", "id": got["id"], "result": {"task": task, "_meta": related("t-1")}})
        created = (await reply.end()).last["result"]
        task_id = created["task"]["taskId"]
        assert "t-1" not in json.dumps(created)
        assert created["_meta"] == related(task_id)
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1, "_meta": related("t-1")}}
        await server.send(note)
        await server.send(ask("q", "elicitation/create", {"message": "?", "_meta": related("t-1")}))
        await stream.until("elicitation/create")
        await server.send(ask("g", "tasks/get", {"taskId": "of the host"}))
        await stream.until("tasks/get")
        announced, asked, about = stream.events
        assert announced["params"]["_meta"] == asked["params"]["_meta"] == related(task_id)
        assert about["params"] == {"taskId": "of the host"}
        await hosts.peer.post({"jsonrpc": "2.0", "id": asked["id"], "result": {"_meta": related(task_id)}}, headers)
        assert (await server.receive())["result"] == {"_meta": related("t-1")}
        own = {"taskId": "of the host", "_meta": related("of the host")}
        await hosts.peer.post({"jsonrpc": "2.0", "id": about["id"], "result": own}, headers)
        assert (await server.receive())["result"] == own
        other = hosts.peer.start({"jsonrpc": "2.0", "id": 3, "method": "x/y", "params": {"taskId": "t-1"}}, headers)
        got = await server.receive()
        assert got["params"] == {"taskId": "t-1"}
        await server.send({"jsonrpc": "2.0", "id": got["id"], "result": {"taskId": "t-1", "requestState": "s"}})
        assert (await other.end()).last["result"] == {"taskId": "t-1", "requestState": "s"}


async def test_the_tasks_of_a_process_that_a_session_has_for_itself_are_listed() -> None:
    async with proxied(authenticate=authenticate) as hosts:
        headers, server = await hosts.open_session(ALICE)
        reply = hosts.peer.start({"jsonrpc": "2.0", "id": 2, "method": "tasks/list"}, headers)
        got = await server.receive()
        await server.send({"jsonrpc": "2.0", "id": got["id"], "result": {"tasks": [{"taskId": "t-1"}], "x": 1}})
        listed = (await reply.end()).last["result"]
        task_id = listed["tasks"][0]["taskId"]
        assert listed == {"tasks": [{"taskId": task_id}], "x": 1}
        body = {"jsonrpc": "2.0", "id": 3, "method": "tasks/get", "params": {"taskId": task_id}}
        hosts.peer.start(body, headers)
        assert (await server.receive())["params"] == {"taskId": "t-1"}


async def test_what_a_server_asks_late_reaches_no_other_principal() -> None:
    """Modern hosts have no sessions, and a legacy server does not say in which call it asks."""
    async with proxied(authenticate=authenticate) as hosts:
        reply = hosts.peer.start(*call_of(ALICE))
        server = await hosts.legacy_server()
        await server.send({"jsonrpc": "2.0", "id": (await server.receive())["id"], "result": {"content": []}})
        assert "result" in (await reply.end()).last
        other = hosts.peer.start(*call_of(BOB))
        server_of_bob = await hosts.legacy_server()
        got = await server_of_bob.receive()
        await server.send(ask("q", "elicitation/create", FORM))
        assert (await server.receive())["error"]["code"] == -32602
        await server_of_bob.send({"jsonrpc": "2.0", "id": got["id"], "result": {"content": []}})
        assert (await other.end()).last["result"]["content"] == []


async def test_a_principal_takes_the_place_of_one_whose_requests_have_ended() -> None:
    async with proxied(authenticate=authenticate, max_sessions=1) as hosts:
        server = await hosts.discovered(ALICE)
        reply = hosts.peer.start(*call_of(ALICE))
        got = await server.receive()
        refused = await hosts.peer.start(*call_of(BOB)).end()
        assert refused.status == 503
        assert "max_sessions" in refused.json["error"]["message"]
        await server.send({"jsonrpc": "2.0", "id": got["id"], "result": {"resultType": "complete", "content": []}})
        assert "result" in (await reply.end()).json
        await hosts.discovered(BOB)
        await server.ends()


class ServerForEach:
    """Serves each connection with a separate server, as a command does."""

    async def serve_channel(self, channel: AnyChannel) -> None:
        far = Server("far")

        @far.tool
        async def unlock() -> None:
            far.add_tool(lambda: "unlocked", name="payroll")

        await far.serve_channel(channel)


@hosts
async def test_what_a_server_lists_for_one_principal_alone_is_not_listed_for_another(host: str) -> None:
    hub = Server("hub")
    hub.mount("far", proxy(ServerForEach()))
    with trio.fail_after(ALL_SECONDS):
        async with served(asgi_app(hub, authenticate=authenticate)) as peer:
            alice, bob = Principal(peer, "alice", host), Principal(peer, "bob", host)
            await alice.open()
            await bob.open()
            await alice.call("far_unlock")
            await trio.testing.wait_all_tasks_blocked()
            tools = (await bob.request("tools/list"))["result"]["tools"]
            assert [each["name"] for each in tools] == ["far_unlock"]


def related(task_id: str) -> Json:
    return {RELATED_TASK: {"taskId": task_id}}


@hosts
@pytest.mark.parametrize("mounted", [False, True], ids=["alone", "mounted"])
async def test_the_server_behind_a_proxy_does_not_know_who_calls(host: str, *, mounted: bool) -> None:
    far, hub = Server("far"), Server("hub")

    @far.tool
    async def who(ctx: Context) -> str:
        return str(ctx.caller)

    @far.tool(scopes=["write"])
    async def scoped() -> str:
        return "scoped"

    @far.tool(visible=lambda caller: caller is not None)
    async def hidden() -> str:
        return "hidden"

    if mounted:
        hub.mount("far", proxy(far))
    app = asgi_app(hub if mounted else proxy(far), authenticate=authenticate)
    prefix = "far_" if mounted else ""
    with trio.fail_after(ALL_SECONDS):
        async with served(app) as peer:
            alice = Principal(peer, "alice", host)
            await alice.open()
            tools = (await alice.request("tools/list"))["result"]["tools"]
            assert {each["name"] for each in tools} == {f"{prefix}who", f"{prefix}scoped"}
            assert text_of(await alice.call(f"{prefix}who")) == "None"
            refused = await alice.call(f"{prefix}scoped")
            assert "error" in refused or refused["result"]["isError"]
