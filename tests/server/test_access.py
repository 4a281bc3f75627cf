"""Who sees and uses resources, templates, prompts and completions: `scopes=` and `visible=`, in both eras."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from naming import naming
from peer import message_of, text_of
from talk import Legacy, Modern, Talk, accept, play
from wire_terms import INVALID_PARAMS, INVALID_REQUEST, REQUIRED_SCOPES

from trio_mcp import Caller, Context, Server
from trio_mcp.session import Peer, ServiceOptions
from trio_mcp.session.transport import facts_of

Json = dict[str, Any]

ADMIN, READER = Caller("ada", ["admin", "read"]), Caller("ben", ["read"])


def is_admin(caller: Caller | None) -> bool:
    return caller is not None and "admin" in caller.scopes


def library(**options: Any) -> Server:
    server = Server("library", version="1", list_ttl=60, list_scope="public", options=ServiceOptions(**options))

    @server.resource("notes://open")
    def open_note() -> str:
        return "open"

    @server.resource("notes://scoped", scopes=["admin"])
    def scoped_note() -> str:
        return "scoped"

    @server.resource("notes://hidden", visible=is_admin)
    def hidden_note() -> str:
        return "hidden"

    @server.resource("users://{name}", scopes=["admin", "read"])
    def user(name: str) -> str:
        return name

    @server.resource("secrets://{name}", visible=is_admin)
    def secret(name: str) -> str:
        return name

    server.add_tool(lambda: "anything", name="open")
    server.add_tool(lambda: "scoped", name="scoped", scopes=["admin"])
    server.add_tool(lambda: "hidden", name="hidden", visible=is_admin)

    @server.prompt(scopes=["admin"])
    async def scoped(ctx: Context, topic: str) -> str:
        return topic if topic != "ask" else (await ctx.elicit("Sure?", bool)).action

    @server.prompt(visible=is_admin)
    def hidden(topic: str) -> str:
        return topic

    for prompt in ("scoped", "hidden"):
        server.complete(prompt=prompt, argument="topic")(suggest)
    for template in ("users://{name}", "secrets://{name}"):
        server.complete(resource=template, argument="name")(suggest)
    return server


def suggest(value: str) -> list[str]:
    return [value + "!"]


@asynccontextmanager
async def called_by(caller: Caller | None, server: Server, era: type[Legacy]) -> AsyncIterator[Talk]:
    async with play(server, era) as player:
        become(player.talk, caller)
        if era is Legacy:
            await player.talk.initialize()
        yield player.talk


def become(talk: Talk, caller: Caller | None) -> None:
    talk.peer = Peer() if caller is None else Peer(caller.principal, known_caller=caller)


async def send(talk: Talk, era: type[Legacy], method: str, **params: Any) -> Json:
    """Return the reply to a request."""
    request = talk.ask(method, **params) if era is Modern else talk.request(method, params)
    return await talk.reply_to(request)


def completion(reference: Json, argument: str) -> Json:
    return {"ref": reference, "argument": {"name": argument, "value": "x"}}


BOTH = ["admin", "read"]
SCOPED: list[tuple[str, Json, list[str]]] = [
    ("resources/read", {"uri": "notes://scoped"}, ["admin"]),
    ("resources/read", {"uri": "users://ben"}, ["admin", "read"]),
    # in other spellings of the same URIs
    ("resources/read", {"uri": "NOTES://%73coped"}, ["admin"]),
    ("resources/read", {"uri": "USERS://ben"}, ["admin", "read"]),
    ("prompts/get", {"name": "scoped", "arguments": {"topic": "x"}}, ["admin"]),
    ("completion/complete", completion({"type": "ref/prompt", "name": "scoped"}, "topic"), ["admin"]),
    ("completion/complete", completion({"type": "ref/resource", "uri": "users://{name}"}, "name"), ["admin", "read"]),
]
HIDDEN: list[tuple[str, Json]] = [
    ("resources/read", {"uri": "notes://hidden"}),
    ("resources/read", {"uri": "secrets://x"}),
    ("resources/read", {"uri": "NOTES://%68idden"}),
    ("resources/read", {"uri": "SECRETS://x"}),
    ("prompts/get", {"name": "hidden", "arguments": {"topic": "x"}}),
    ("tools/call", {"name": "hidden", "arguments": {}}),
    ("completion/complete", completion({"type": "ref/prompt", "name": "hidden"}, "topic")),
    ("completion/complete", completion({"type": "ref/resource", "uri": "secrets://{name}"}, "name")),
]


@pytest.mark.parametrize(("method", "params", "scopes"), SCOPED)
async def test_a_request_without_its_scopes_is_an_error_that_names_all_of_them(
    method: str, params: Json, scopes: list[str], era: type[Legacy]
) -> None:
    async with called_by(READER, library(), era) as talk:
        for caller in (READER, None):
            become(talk, caller)
            error = (await send(talk, era, method, **params))["error"]
            assert (error["code"], error["data"]) == (INVALID_REQUEST, {REQUIRED_SCOPES: scopes})
        become(talk, ADMIN)
        assert "result" in await send(talk, era, method, **params)


@pytest.mark.parametrize(("method", "params"), HIDDEN)
async def test_what_is_hidden_is_as_unknown_as_what_does_not_exist(
    method: str, params: Json, era: type[Legacy]
) -> None:
    server = library()
    async with called_by(ADMIN, server, era) as talk:
        assert "result" in await send(talk, era, method, **params)
        become(talk, READER)
        hidden = (await send(talk, era, method, **params))["error"]
        server.remove_tool("hidden")
        server.remove_prompt("hidden")
        server.remove_resource("notes://hidden")
        server.remove_resource("secrets://{name}")
        talk.waiting()
        assert hidden == (await send(talk, era, method, **params))["error"]


@pytest.mark.parametrize(
    ("method", "member", "shown", "remove"),
    [
        ("resources/list", "resources", ["notes://open", "notes://scoped"], "notes://hidden"),
        ("resources/templates/list", "resourceTemplates", ["users://{name}"], "secrets://{name}"),
        ("prompts/list", "prompts", ["scoped"], "hidden"),
        ("tools/list", "tools", ["open", "scoped"], "hidden"),
    ],
)
async def test_a_list_has_what_its_caller_sees_and_is_private(
    method: str, member: str, shown: list[str], remove: str, era: type[Legacy]
) -> None:
    server = library()
    async with called_by(READER, server, era) as talk:
        for caller in (READER, None):
            become(talk, caller)
            listed = (await send(talk, era, method))["result"]
            assert [each.get("uri") or each.get("uriTemplate") or each["name"] for each in listed[member]] == shown
            assert listed.get("cacheScope", "private") == "private"
        become(talk, ADMIN)
        assert len((await send(talk, era, method))["result"][member]) == len(shown) + 1
        {"tools": server.remove_tool, "prompts": server.remove_prompt}.get(member, server.remove_resource)(remove)
        talk.waiting()
        assert (await send(talk, era, method))["result"].get("cacheScope", "public") == "public"


async def test_a_prompt_that_asked_checks_the_caller_of_its_next_request() -> None:
    async with called_by(ADMIN, library(), Modern) as talk:
        params = {"name": "scoped", "arguments": {"topic": "ask"}}
        first = await talk.round(talk.ask("prompts/get", **params))
        answers = {first.key: accept(value=True)}
        become(talk, Caller("ada", ["read"]))
        again = talk.ask("prompts/get", **params, inputResponses=answers, requestState=first.state)
        assert (await talk.error(again))["data"] == {REQUIRED_SCOPES: ["admin"]}


async def test_a_subscription_needs_the_scopes_of_the_resource() -> None:
    server = library()
    async with called_by(READER, server, Legacy) as talk:
        error = (await send(talk, Legacy, "resources/subscribe", uri="users://ben"))["error"]
        assert error["data"] == {REQUIRED_SCOPES: ["admin", "read"]}
        for uri in ("notes://hidden", "secrets://x", "notes://open", "notes://nothing"):
            assert "result" in await send(talk, Legacy, "resources/subscribe", uri=uri)
        for uri in ("notes://hidden", "secrets://x", "users://ben", "notes://open"):
            server.resource_updated(uri)
        assert (await talk.notification("notifications/resources/updated"))["uri"] == "notes://open"
        await talk.silence()


async def test_listening_needs_the_scopes_of_the_resources() -> None:
    server = library()
    async with called_by(READER, server, Modern) as talk:
        wanted = {"resourceSubscriptions": ["users://ben", "notes://open"]}
        error = (await send(talk, Modern, "subscriptions/listen", notifications=wanted))["error"]
        assert error["data"] == {REQUIRED_SCOPES: ["admin", "read"]}


@pytest.mark.parametrize("uri", ["notes://hidden", "secrets://x", "NOTES://%68idden", "notes://nothing"])
async def test_a_subscription_to_what_is_hidden_is_answered_like_one_to_what_does_not_exist(uri: str) -> None:
    one, two = {"resourceSubscriptions": [uri]}, {"resourceSubscriptions": ["notes://open", uri]}
    server = library(watched=1)
    async with called_by(READER, server, Modern) as talk:
        talk.ask("subscriptions/listen", notifications=one)
        assert (await talk.notification("notifications/subscriptions/acknowledged"))["notifications"] == one
        # It counts for the limit, too.
        assert (await send(talk, Modern, "subscriptions/listen", notifications=two))["error"]["code"] == INVALID_PARAMS
        server.resource_updated("notes://hidden")
        server.resource_updated("secrets://x")
        await talk.silence()
    async with called_by(READER, library(watched=1), Legacy) as talk:
        assert "result" in await send(talk, Legacy, "resources/subscribe", uri=uri)
        refused = await send(talk, Legacy, "resources/subscribe", uri="notes://open")
        assert refused["error"]["code"] == INVALID_PARAMS


@pytest.mark.parametrize("caller", [READER, None, ADMIN], ids=["reader", "nobody", "admin"])
@pytest.mark.parametrize("folder", ["notes://all", "NOTES://all"], ids=["as it is", "in another spelling"])
async def test_a_subscription_to_a_folder_says_nothing_of_what_its_caller_may_not_read(
    caller: Caller | None, folder: str, era: type[Legacy]
) -> None:
    server = Server("library", version="1")
    for name, options in {"hidden": {"visible": is_admin}, "scoped": {"scopes": ["admin"]}, "open": {}}.items():
        server.add_resource(f"notes://all/{name}", lambda: "x", **options)  # type: ignore[arg-type]
    uris = [f"notes://all/{name}" for name in ("hidden", "scoped", "open")]
    async with called_by(caller, server, era) as talk:
        if era is Legacy:
            assert "result" in await send(talk, era, "resources/subscribe", uri=folder)
        else:
            talk.ask("subscriptions/listen", notifications={"resourceSubscriptions": [folder]})
            await talk.notification("notifications/subscriptions/acknowledged")
        updated = uris if folder == "notes://all" else uris[:1]  # as one spelling is notified once
        for uri in updated:
            server.resource_updated(uri)
        for uri in [each for each in updated if caller is ADMIN or each.endswith("open")]:
            notice = await talk.notification("notifications/resources/updated")
            assert notice["uri"] == (uri if folder == "notes://all" else folder)
        await talk.silence()


async def test_mounted_items_keep_their_restrictions(era: type[Legacy]) -> None:
    outer = Server("outer", version="1")
    outer.mount("lib", library())
    async with called_by(READER, outer, era) as talk:
        for method, name in (("prompts/get", "hidden"), ("prompts/get", "scoped"), ("tools/call", "hidden")):
            assert "error" in await send(talk, era, method, name=f"lib_{name}", arguments={"topic": "x"})
        scoped = {"name": "lib_scoped", "arguments": {}}
        assert (await send(talk, era, "tools/call", **scoped))["result"]["_meta"][REQUIRED_SCOPES] == ["admin"]
        listed = (await send(talk, era, "resources/list"))["result"]["resources"]
        assert len(listed) == 2
        for each in listed:
            reply = await send(talk, era, "resources/read", uri=each["uri"])
            assert ("result" in reply) is ("open" in each["uri"])
        become(talk, ADMIN)
        assert text_of((await send(talk, era, "tools/call", **scoped))["result"]) == "scoped"


@pytest.mark.parametrize(
    ("method", "params", "scopes"),
    [
        *SCOPED,
        ("resources/subscribe", {"uri": "users://ben"}, ["admin", "read"]),
        ("resources/subscribe", {"uri": "notes://open"}, []),
        ("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["notes://scoped", "users://x"]}}, BOTH),
        ("completion/complete", completion({"type": "ref/resource", "uri": "users://be"}, "name"), ["admin", "read"]),
        *[(method, params, []) for method, params in HIDDEN],
        ("resources/read", {}, []),
        ("resources/read", {"uri": 7}, []),
        ("resources/read", {"uri": "users://" + "x" * 100_000}, []),
        ("prompts/get", {"name": ["scoped"]}, []),
        ("completion/complete", {"ref": "users://ben"}, []),
        ("subscriptions/listen", {"notifications": {"resourceSubscriptions": "users://ben"}}, []),
        ("resources/list", {}, []),
        ("unknown", {"uri": "users://ben"}, []),
    ],
)  # fmt: skip
async def test_a_transport_learns_which_scopes_a_request_lacks(method: str, params: Json, scopes: list[str]) -> None:
    async with library().open_service() as service:
        request = message_of({"id": 1, "method": method, "params": params})
        assert service.missing_scopes(request, lambda: READER) == frozenset(scopes)
        assert service.missing_scopes(request, lambda: None) == frozenset(scopes)
        assert service.missing_scopes(request, lambda: ADMIN) == frozenset()


def test_the_scopes_of_all_items_are_known() -> None:
    server = library()
    server.add_tool(suggest, scopes=["of-a-tool"])
    assert facts_of(server).scopes_by_item() == {
        "the tool scoped": {"admin"},
        "the tool suggest": {"of-a-tool"},
        "the prompt scoped": {"admin"},
        "the resource notes://scoped": {"admin"},
        "the resource template users://{name}": {"admin", "read"},
    }


async def is_async(_caller: Caller | None) -> bool:
    return True


WRONG: dict[str, dict[str, Any]] = {
    "tags as one text": {"tags": "admin"},
    "a tag that is no text": {"tags": [3]},
    "an empty tag": {"tags": [""]},
    "scopes as one text": {"scopes": "books:read"},
    "a scope with a space": {"scopes": ["books read"]},
    "visible that is async": {"visible": is_async},
    "visible that is no function": {"visible": True},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_option_is_refused_at_registration(wrong: dict[str, Any]) -> None:
    server = Server("library")
    option = next(iter(wrong))
    with pytest.raises((TypeError, ValueError), match=naming("clear", option)):
        server.add_tool(lambda: "secret", name="clear", **wrong)
    if option != "tags":  # which only tools have
        with pytest.raises((TypeError, ValueError), match=naming("notes://x", option)):
            server.add_resource("notes://x", lambda: "x", **wrong)
        with pytest.raises((TypeError, ValueError), match=naming("review", option)):
            server.add_prompt(lambda: "x", name="review", **wrong)
