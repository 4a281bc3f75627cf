"""`Server.mount`: a server offers what another one offers, and its calls run as they do there."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Annotated, Any, Literal

import pytest
import trio
from connected import connected
from naming import naming, unnamed
from pydantic import BaseModel
from trio.testing import MockClock

from trio_mcp import (
    CallHandler,
    CallRequest,
    CallResult,
    Client,
    Context,
    Elicit,
    HttpOptions,
    HttpRequest,
    HttpResponse,
    PeerError,
    Provide,
    ResourceNotFound,
    Server,
    ServiceOptions,
    ToolError,
    accept,
    tool,
)
from trio_mcp.http.authenticator import Authenticator
from trio_mcp.providers import ScriptedProvider
from trio_mcp.server.lifespan import LIFESPAN_EXIT_SECONDS
from trio_mcp.session.transport import facts_of
from trio_mcp.testing import MockClient, replay_tool, tool_use
from trio_mcp.types import (
    EmbeddedResource,
    Icon,
    Prompt,
    PromptReference,
    Resource,
    ResourceLink,
    ResourceTemplate,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)

BOUND = 20.0


def opening(events: list[str]) -> Callable[[Server], AbstractAsyncContextManager[object]]:
    """Return a lifespan whose state is the name of its server."""

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        events.append(f"{server.identity.name} opens")
        yield f"the state of {server.identity.name}"
        events.append(f"{server.identity.name} closes")

    return lifespan


def notes(*functions: Callable[..., Any], events: list[str] | None = None, **options: Any) -> Server:
    """A server with everything, whose functions return their server's state; with these tools, too."""
    server = Server("notes", lifespan=opening([] if events is None else events), **options)

    @server.tool
    async def find(title: str, ctx: Context[str]) -> str:
        """Find a note."""
        answer = await ctx.elicit(f"Which {title}?", str)
        return f"{answer.content} by {ctx.state}" if answer.action == "accept" else "none"

    @server.prompt
    async def sum_up(title: str, ctx: Context[str]) -> str:
        return f"Sum {title} up: {ctx.state}"

    @server.resource("notes://all", mime_type="text/x-list", ttl=5)
    async def everything(ctx: Context[str]) -> str:
        return ctx.state

    @server.resource("notes://{day}/first")
    async def of_day(day: str, ctx: Context[str]) -> str:
        if day == "never":
            raise ResourceNotFound("notes://never/first")
        return f"{day}: {ctx.state}"

    @server.complete(prompt="sum_up", argument="title")
    async def titles(value: str, ctx: Context[str]) -> list[str]:
        return [f"{value} {ctx.state}"]

    @server.complete(resource="notes://{day}/first", argument="day")
    def days(value: str) -> list[str]:
        return [f"{value}day"]

    for function in functions:
        server.add_tool(function)
    return server


STATE = "the state of notes"


def desk_of(*mounted: tuple[str, Server], **options: Any) -> Server:
    desk = Server("desk", **options)
    for prefix, server in mounted:
        desk.mount(prefix, server)
    return desk


client_of = partial(connected, on_elicit=lambda _question: accept(value="yes"))


async def of_state(ctx: Context[str]) -> str:
    return f"made with {ctx.state}"


class Named(BaseModel):
    name: str


async def greet(params: Named, ctx: Context[str]) -> str:
    return f"{params.name}, {ctx.state}"


# names


@pytest.mark.parametrize("deep", [False, True], ids=["once", "in one that is mounted"])
async def test_everything_is_there_under_its_prefix(mode: Any, deep: bool) -> None:
    desk = desk_of(("n", notes()))
    server, name, place = (desk_of(("d", desk)), "d_n", "d/n") if deep else (desk, "n", "n")
    template = f"notes://{place}/{{day}}/first"
    async with client_of(server, mode) as client:
        assert [each.name for each in await client.list_tools()] == [f"{name}_find"]
        assert [each.name for each in await client.list_prompts()] == [f"{name}_sum_up"]
        assert [each.uri for each in await client.list_resources()] == [f"notes://{place}/all"]
        assert [each.uri_template for each in await client.list_resource_templates()] == [template]
        assert [each.name for each in (*server.tools, *server.prompts)] == [f"{name}_find", f"{name}_sum_up"]
        assert [each.uri for each in server.resources] == [f"notes://{place}/all"]
        assert [each.uri_template for each in server.resource_templates] == [template]
        assert (await client.call_tool(f"{name}_find", {"title": "it"})).text == f"yes by {STATE}"
        (message,) = (await client.get_prompt(f"{name}_sum_up", {"title": "it"})).messages
        assert message.content == TextContent(text=f"Sum it up: {STATE}")
        (contents,) = (await client.read_resource(f"notes://{place}/all")).contents
        assert contents == TextResourceContents(uri=f"notes://{place}/all", mime_type="text/x-list", text=STATE)
        (contents,) = (await client.read_resource(f"notes://{place}/mon/first")).contents
        assert (contents.uri, contents.text) == (f"notes://{place}/mon/first", f"mon: {STATE}")
        found = await client.complete(PromptReference(name=f"{name}_sum_up"), "title", "a")
        assert found.values == [f"a {STATE}"]
        assert (await client.complete(ResourceTemplateReference(uri=template), "day", "a")).values == ["aday"]


@pytest.mark.parametrize(
    ("uri", "mounted"),
    [
        ("notes://all", "notes://n/all"),
        ("file:///etc/notes", "file://n//etc/notes"),
        ("urn:notes:all", "urn:n/notes:all"),
        ("notes://all?x=://y#z", "notes://n/all?x=://y#z"),
    ],
)
async def test_a_uri_of_any_form_has_one_under_the_prefix(uri: str, mounted: str) -> None:
    server = Server("notes")
    server.add_resource(uri, lambda: "text")
    async with client_of(desk_of(("n", server))) as client:
        assert [each.uri for each in await client.list_resources()] == [mounted]
        assert [each.uri for each in (await client.read_resource(mounted)).contents] == [mounted]


async def test_every_option_is_kept() -> None:
    server = Server("notes")
    pages = Elicit("pages", int)
    icons = [Icon(src="https://example.com/x.png")]
    server.add_tool(
        lambda: {"a": 1},
        name="t",
        title="T",
        description="d",
        annotations=ToolAnnotations(read_only_hint=True),
        icons=icons,
        meta={"x": 1},
        elicits=[pages],
        requires={"roots"},
        tags={"a"},
        output_schema={"type": "object"},
        task=True,
        resume="replay",
    )
    server.add_prompt(lambda a: a, name="p", title="P", description="d", icons=icons, meta={"x": 1})
    server.add_resource("r://r", lambda: "", name="r", title="R", size=3, icons=icons, meta={"x": 1})
    server.add_resource("r://{t}", lambda t: t, name="t", title="T", mime_type="a/b", icons=icons, meta={"x": 1})
    renamed = {Tool: "name", Prompt: "name", Resource: "uri", ResourceTemplate: "uri_template"}
    values = {"name": ("t", "p"), "uri": ("r://r",), "uri_template": ("r://{t}",)}

    async def listed(server: Server) -> list[Any]:
        async with client_of(server, on_roots=list) as client:
            found = [*await client.list_tools(), *await client.list_prompts()]
            return [*found, *await client.list_resources(), *await client.list_resource_templates()]

    own, mounted = await listed(server), await listed(desk_of(("n", server)))
    assert len(own) == len(mounted) == 4
    for before, after in zip(own, mounted, strict=True):
        member = renamed[type(before)]
        assert getattr(before, member) in values[member]
        assert after == before.model_copy(update={member: getattr(after, member)})


async def test_links_to_its_resources_can_be_read_in_the_outer_server(mode: Any) -> None:
    text, elsewhere = TextContent(text="notes://all"), ResourceLink(uri="https://example.com/all", name="elsewhere")

    async def links() -> list[ResourceLink | EmbeddedResource | TextContent]:
        known = EmbeddedResource(resource=TextResourceContents(uri="notes://tue/first", text="x"))
        return [ResourceLink(uri="notes://all", name="all"), known, elsewhere, text]

    async with client_of(desk_of(("d", desk_of(("n", notes(links))))), mode) as client:
        link, embedded, *others = (await client.call_tool("d_n_links")).content
        assert (await client.read_resource(link.uri)).contents[0].uri == link.uri == "notes://d/n/all"
        assert embedded.resource.uri == "notes://d/n/tue/first"
        assert others == [elsewhere, text]


async def test_errors_name_what_the_caller_knows(mode: Any) -> None:
    async def fail() -> None:
        raise RuntimeError("secret")

    async with client_of(desk_of(("n", notes(fail)), options=ServiceOptions(tell_errors=False)), mode) as client:
        assert not unnamed((await client.call_tool("n_find", {})).text, "n_find", "title")
        assert not unnamed((await client.call_tool("n_fail")).text, "n_fail")
        with pytest.raises(PeerError, match=naming("notes://n/never/first")) as caught:
            await client.read_resource("notes://n/never/first")
        assert caught.value.data == {"uri": "notes://n/never/first"}
        with pytest.raises(PeerError, match=naming("find")):
            await client.call_tool("find", {"title": "it"})
        with pytest.raises(PeerError, match=naming("notes://all")):
            await client.read_resource("notes://all")


# what belongs to the mounted server


async def test_middleware_of_both_servers_runs_and_each_sees_its_own_names(mode: Any) -> None:
    seen: list[tuple[str, str, str, object]] = []
    inner, outer = notes(), Server("desk", lifespan=opening([]))

    def watched(server: Server) -> None:
        @server.middleware
        async def watch(call: CallRequest, handler: CallHandler) -> CallResult:
            seen.append((server.identity.name, call.kind, call.name, call.ctx.state))
            return await handler()

    watched(outer)
    outer.mount("n", inner)
    watched(inner)  # also after it was mounted
    async with client_of(outer, mode) as client:
        await client.call_tool("n_find", {"title": "it"})
        await client.get_prompt("n_sum_up", {"title": "it"})
        await client.read_resource("notes://n/all")
    own = "the state of desk"
    assert seen == [
        ("desk", "tool", "n_find", own),
        ("notes", "tool", "find", STATE),
        ("desk", "prompt", "n_sum_up", own),
        ("notes", "prompt", "sum_up", STATE),
        ("desk", "resource", "notes://n/all", own),
        ("notes", "resource", "notes://all", STATE),
    ]


async def test_middleware_of_both_servers_may_run_the_body_again(mode: Any) -> None:
    runs: list[str] = []

    async def twice(call: CallRequest, handler: CallHandler) -> CallResult:
        await handler()
        return await handler()

    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Which?", str)
        runs.append(str(answer.content))
        await ctx.step("once", len, runs)
        return "-".join(runs)

    inner = notes(ask, middleware=[twice])
    outer = desk_of(("n", inner), middleware=[twice], options=ServiceOptions(always_replay=True))
    questions: list[str] = []

    def answer(question: Any) -> Any:
        questions.append(question.message)
        return accept(value=str(len(questions)))

    async with client_of(outer, mode, on_elicit=answer) as client:
        result = await client.call_tool("n_ask")
    # Each run has a separate question; a replay, as in the modern era here, asks none of them again.
    assert len(questions) == 4
    assert result.text.split("-")[-4:] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("tool", ["n_read", "read"], ids=["of its own", "of one that is mounted"])
async def test_a_handler_reads_and_renders_what_its_server_has_under_that_name(mode: Any, tool: str) -> None:
    def reading(uri: str, prompt: str) -> Callable[[Context], Awaitable[str]]:
        async def read(ctx: Context) -> str:
            (contents,) = (await ctx.read_resource(uri)).contents
            (message,) = (await ctx.get_prompt(prompt, {"title": "it"})).messages
            return f"{contents.uri}: {contents.text}; {message.content.text}; {ctx.state}"

        return read

    outer = desk_of(("n", notes(reading("notes://all", "sum_up"))))
    outer.add_tool(reading("notes://n/all", "n_sum_up"))
    uri, state = ("notes://all", STATE) if tool == "n_read" else ("notes://n/all", None)
    async with client_of(outer, mode) as client:
        assert (await client.call_tool(tool)).text == f"{uri}: {STATE}; Sum it up: {STATE}; {state}"


async def test_a_tool_loop_offers_the_tools_of_its_own_server(mode: Literal["legacy", "modern"]) -> None:
    async def add(a: int) -> int:
        return a + 1

    async def loop(ctx: Context) -> str:
        return (await ctx.run_tool_loop("Add.", ["add"])).text

    server = notes(add, loop, sampling=ScriptedProvider([tool_use("add", a=1), "done"]))
    async with client_of(desk_of(("n", server)), mode) as client:
        assert (await client.call_tool("n_loop")).text == "done"


async def state(ctx: Context[str]) -> str:
    return ctx.state


async def test_a_tool_loop_of_the_outer_server_runs_a_mounted_tool_with_its_own_state() -> None:
    desk = desk_of(("n", notes(state)))

    @desk.tool
    async def loop(ctx: Context) -> str:
        return (await ctx.run_tool_loop("Go.", ["n_state"])).text

    client = MockClient(samples=[tool_use("n_state"), "done"])
    assert (await client.call((desk, "loop"))).text == "done"
    assert STATE in str(client.questions[1].params)


async def test_the_model_of_the_mounted_server_comes_first_and_else_that_of_the_outer_one() -> None:
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("Who?")).text

    own, plain = Server("own", sampling=ScriptedProvider(["mine"])), Server("plain")
    for server in (own, plain):
        server.add_tool(ask, requires={"sampling"})
    outer = desk_of(("own", own), ("plain", plain), sampling=ScriptedProvider(["yours"]))
    async with client_of(outer) as client:
        assert [(await client.call_tool(name)).text for name in ("own_ask", "plain_ask")] == ["mine", "yours"]


async def test_each_kind_of_tool_has_the_state_of_its_server() -> None:
    async def made(value: Annotated[str, Provide(of_state)]) -> str:
        return value

    async def fail(ctx: Context[str]) -> None:
        raise ToolError(ctx.state)

    server = notes(made, fail, tool("built").parameters(Named).execute(greet))
    server.add_tool(state, task="required")
    async with client_of(desk_of(("n", server)), "modern") as client:
        assert (await client.call_tool("n_made")).text == f"made with {STATE}"
        assert (await client.call_tool("n_built", {"name": "Ann"})).text == f"Ann, {STATE}"
        assert (await client.call_tool("n_fail")).text == STATE
        assert (await (await client.start_tool("n_state")).result()).text == STATE


async def test_a_handoff_tool_has_its_state_in_every_phase(mode: Any) -> None:
    server, phases = notes(), []

    async def pick(value: str, ctx: Context[str]) -> str:
        phases.append(ctx.state)
        return str((await ctx.elicit("Sure?", str)).content)

    async def after(value: str, answer: str, ctx: Context[str]) -> str:
        phases.append(ctx.state)
        return f"{value} {answer}"

    @server.handoff_tool(client=pick, after=after)
    async def move(to: str, ctx: Context[str]) -> str:
        phases.append(ctx.state)
        return to

    async with client_of(desk_of(("n", server)), mode) as client:
        assert (await client.call_tool("n_move", {"to": "bin"})).text == "bin yes"
    assert set(phases) == {STATE}


async def test_a_long_result_of_a_mounted_tool_is_cut_and_kept(mode: Any) -> None:
    server = Server("notes")
    server.add_tool(lambda: "x" * 10_000, name="long", max_result=4096)
    async with client_of(desk_of(("n", server)), mode) as client:
        link = (await client.call_tool("n_long")).content[-1]
        assert isinstance(link, ResourceLink)
        (contents,) = (await client.read_resource(link.uri)).contents
        assert contents.text == "x" * 10_000


# lifespans


async def test_lifespans_are_nested_and_each_server_has_one(mode: Any) -> None:
    events: list[str] = []
    inner = notes(events=events)
    outer = Server("all", lifespan=opening(events))
    outer.mount("d", desk_of(("n", inner), lifespan=opening(events)))
    outer.mount("again", inner)
    async with client_of(outer, mode) as client:
        assert events == ["all opens", "desk opens", "notes opens"]
        for name in ("d_n_find", "again_find"):
            assert (await client.call_tool(name, {"title": "it"})).text == f"yes by {STATE}"
    assert events[3:] == ["notes closes", "desk closes", "all closes"]


def test_the_ends_of_all_lifespans_are_counted_where_a_process_is_ended_by_force() -> None:
    middle = desk_of(("n", notes()), lifespan=opening([]))
    assert facts_of(desk_of(("d", middle))).lifespan_seconds == 2 * LIFESPAN_EXIT_SECONDS


async def test_a_lifespan_that_fails_ends_the_outer_server_and_closes_the_others() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def broken(server: Server) -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    outer = Server("all", lifespan=opening(events))
    outer.mount("n", Server("notes", lifespan=broken))
    with pytest.raises(OSError, match="no database"):
        async with outer.open_service():
            pass
    assert events == ["all opens", "all closes"]


async def test_a_mounted_server_may_be_served_by_itself_at_the_same_time() -> None:
    events: list[str] = []
    inner = notes(events=events)
    async with client_of(desk_of(("n", inner))) as outside, client_of(inner) as inside:
        for client, name in ((outside, "n_find"), (inside, "find")):
            assert (await client.call_tool(name, {"title": "it"})).text == f"yes by {STATE}"
    assert events.count("notes opens") == events.count("notes closes") == 2


# limits and access


async def test_the_limit_of_a_tool_counts_its_calls_under_all_its_names(mode: Any) -> None:
    server, gate, began = Server("notes"), trio.Event(), trio.Event()

    @server.tool(limit=1)
    async def work() -> str:
        began.set()
        await gate.wait()
        return "worked"

    outer = desk_of(("a", server), ("b", server))
    async with client_of(outer, mode) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "a_work")
            await began.wait()
            with pytest.raises(PeerError, match=naming("work", "limit")):
                await client.call_tool("b_work")
            gate.set()
        assert (await client.call_tool("b_work")).text == "worked"


async def test_the_threads_of_mounted_servers_are_counted() -> None:
    server, began, gate = Server("notes"), threading.Event(), threading.Event()

    @server.tool
    def work() -> str:
        began.set()
        gate.wait(BOUND)
        return "worked"

    outer = desk_of(("n", server))
    async with client_of(outer) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "n_work")
        await trio.to_thread.run_sync(began.wait, BOUND)
        (service,) = outer.services
        assert service.statistics().threads.running == 1
        gate.set()


async def test_a_timeout_is_kept(autojump_clock: MockClock) -> None:
    server = Server("notes")

    @server.tool(timeout=3)
    async def sleep() -> None:
        await trio.sleep_forever()

    async with client_of(desk_of(("n", server))) as client:
        result = await client.call_tool("n_sleep")
        assert result.is_error
        assert not unnamed(result.text, "n_sleep", "3")


async def test_a_replay_finds_what_a_mounted_tool_has_recorded() -> None:
    async def book(ctx: Context[str]) -> str:
        seat = await ctx.step("hold", lambda: "12A")
        sure = await ctx.elicit("Sure?", str)
        return f"{seat} {sure.content} {ctx.state}"

    server = notes()
    server.add_tool(book, resume="replay")
    report = await replay_tool(desk_of(("n", server)), "n_book", on_elicit=lambda _question: accept(value="yes"))
    assert report.result.text == f"12A yes {STATE}"
    assert not report.divergences


async def test_a_page_of_a_mounted_server_can_be_completed_at_either(mock_clock: MockClock) -> None:
    server = Server("notes")
    outer = desk_of(("n", server))

    @server.tool
    async def connect(ctx: Context) -> str:
        return (await ctx.elicit_url("Open it", "https://example.com/", elicitation_id="one")).action

    def opened(_question: Any) -> Any:
        trio.lowlevel.spawn_system_task(finish)
        return accept()

    async def finish() -> None:
        while not server.complete_elicitation("one"):
            await trio.lowlevel.checkpoint()

    async with client_of(outer, on_elicit_url=opened) as client:
        assert (await client.call_tool("n_connect")).text == "accept"


# changes


async def test_what_is_added_and_removed_later_is_added_and_removed_in_the_outer_server(mode: Any) -> None:
    inner = notes()
    outer = desk_of(("d", desk_of(("n", inner))))

    async def names(client: Client) -> list[str]:
        listed = [each.name for each in (*await client.list_tools(), *await client.list_prompts())]
        uris = [each.uri for each in await client.list_resources()]
        return [*listed, *uris, *[each.uri_template for each in await client.list_resource_templates()]]

    async with client_of(outer, mode) as client:
        before = await names(client)
        async with client.listen(tools=True, prompts=True, resources=True) as changes:
            inner.add_tool(lambda: "", name="t")
            inner.add_prompt(lambda: "", name="p")
            inner.add_resource("r://r", lambda: "")
            inner.add_resource("r://r/{t}", lambda t: t)
            assert {(await anext(changes)).kind for _ in range(3)} == {"tools", "prompts", "resources"}
            added = {"d_n_t", "d_n_p", "r://d/n/r", "r://d/n/r/{t}"}
            assert set(await names(client)) == {*before, *added}
            inner.remove_tool("t")
            inner.remove_prompt("p")
            inner.remove_resource("r://r")
            inner.remove_resource("r://r/{t}")
            assert {(await anext(changes)).kind for _ in range(3)} == {"tools", "prompts", "resources"}
        assert await names(client) == before


async def test_updates_of_its_resources_reach_the_subscribers_of_the_outer_server(mode: Any) -> None:
    inner = notes()
    uri = "notes://d/n/all"
    async with client_of(desk_of(("d", desk_of(("n", inner)))), mode) as client:
        async with client.listen(uris=[uri]) as changes:
            inner.resource_updated("notes://all")
            assert (await anext(changes)).uri == uri


async def test_a_kind_that_it_gets_later_is_declared() -> None:
    inner = Server("notes")
    outer = desk_of(("n", inner))
    async with outer.open_service() as service:
        assert service.capabilities.prompts is service.capabilities.completions is None
        inner.add_prompt(lambda a: a, name="p")
        inner.complete(prompt="p", argument="a")(lambda value: [value])
        assert service.capabilities.prompts is not None
        assert service.capabilities.completions is not None


async def test_a_copy_of_the_outer_server_has_what_is_mounted() -> None:
    outer = desk_of(("n", notes())).copy(options=ServiceOptions())
    async with client_of(outer) as client:
        assert (await client.call_tool("n_find", {"title": "it"})).text == f"yes by {STATE}"


# what is refused


ADD: dict[str, Callable[[Server, str], object]] = {
    "tool": lambda server, name: server.add_tool(lambda: "", name=name),
    "prompt": lambda server, name: server.add_prompt(lambda: "", name=name),
    "resource": lambda server, name: server.add_resource(f"x://{name}", lambda: ""),
    "template": lambda server, name: server.add_resource(f"x://{name}/{{v}}", lambda v: v),
}


def add_item(server: Server, kind: str, name: str) -> None:
    ADD[kind](server, name)


def counts(server: Server) -> list[int]:
    return [len(each) for each in (server.tools, server.prompts, server.resources, server.resource_templates)]


def outer_name(kind: str, *parts: str) -> str:
    return ("_" if kind in ("tool", "prompt") else "/").join(["n", *parts])


@pytest.mark.parametrize("kind", ADD)
def test_a_name_that_is_taken_refuses_the_mount_and_names_both_owners(kind: str) -> None:
    outer, inner = Server("desk"), Server("notes")
    add_item(outer, kind, outer_name(kind, "b"))
    for name in "abc":
        add_item(inner, kind, name)
    before = counts(outer)
    with pytest.raises(ValueError, match=naming(outer_name(kind, "b"), "desk", "notes")):
        outer.mount("n", inner)
    assert counts(outer) == before
    add_item(inner, kind, "d")  # it does not follow
    assert counts(outer) == before


@pytest.mark.parametrize("kind", ADD)
@pytest.mark.parametrize("deep", [False, True])
def test_a_later_name_that_is_taken_is_refused_at_either_server(kind: str, deep: bool) -> None:
    outer, inner = Server("desk"), Server("notes")
    outer.mount("n", desk_of(("b", inner)) if deep else inner)
    below = ["b"] if deep else []
    add_item(outer, kind, outer_name(kind, *below, "x"))
    before = counts(outer), counts(inner)
    with pytest.raises(ValueError, match=naming("desk", "notes")):
        add_item(inner, kind, "x")
    assert (counts(outer), counts(inner)) == before
    add_item(inner, kind, "y")
    with pytest.raises(ValueError, match=naming("desk", "notes")):
        add_item(outer, kind, outer_name(kind, *below, "y"))


def test_two_mounted_servers_may_not_have_one_name_or_prefix() -> None:
    first, second = Server("first"), Server("second")
    first.add_tool(lambda: "", name="b_c")
    second.add_tool(lambda: "", name="c")
    outer = desk_of(("a", first))
    with pytest.raises(ValueError, match=naming("a_b_c", "first", "second")):
        outer.mount("a_b", second)
    with pytest.raises(ValueError, match=naming("a", "first", "other", "desk")):
        outer.mount("a", Server("other"))


@pytest.mark.parametrize("prefix", ["", "a/b", "a b", "_a", "ä", "a" * 65, "{a}"])
def test_a_prefix_is_a_part_of_names_and_of_uris(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        Server("desk").mount(prefix, Server("notes"))


@pytest.mark.parametrize("other", [None, Server, "http://localhost/mcp", object()])
def test_only_a_server_is_mounted(other: Any) -> None:
    with pytest.raises(TypeError, match=naming("mount()", "Server")):
        Server("desk").mount("n", other)


def test_a_server_is_never_in_itself() -> None:
    first, second, third = Server("first"), Server("second"), Server("third")
    first.mount("a", second)
    second.mount("b", third)
    for outer, inner in ((first, first), (second, first), (third, first), (third, second)):
        with pytest.raises(ValueError, match=naming(outer.identity.name, inner.identity.name)):
            outer.mount("x", inner)


def test_what_cannot_have_a_prefix_is_refused_by_name() -> None:
    long = Server("long")
    long.add_tool(lambda: "", name="t" * 127)
    with pytest.raises(ValueError, match="t" * 127):
        Server("desk").mount("n", long)


async def watch_calls(call: CallRequest, handler: CallHandler) -> CallResult:
    return await handler()


async def hook(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@pytest.mark.parametrize(
    "register",
    [
        lambda server: server.mount("x", Server("late")),
        lambda server: server.middleware(watch_calls),
        lambda server: server.message_middleware(print),
        lambda server: server.route("/hook")(hook),
    ],
    ids=["mount", "middleware", "message_middleware", "route"],
)
async def test_what_surrounds_all_calls_is_registered_before_the_server_is_served(
    register: Callable[[Server], object],
) -> None:
    inner = Server("notes")
    outer = desk_of(("n", inner))
    async with outer.open_service():
        for server in (outer, inner):
            with pytest.raises(RuntimeError, match=r"served|desk"):
                register(server)


async def nobody(_headers: Any) -> str | None:
    return None


def protected(name: str, *scopes: str) -> Server:
    """A server that authenticates its callers, and requires scopes."""
    return Server(name, http=HttpOptions(authenticate=Requiring(*scopes)))


def test_a_server_that_authenticates_is_not_mounted_in_an_open_one() -> None:
    for outer in (Server("desk"), Server("desk", http=HttpOptions(path="/x"))):
        with pytest.raises(ValueError, match=naming("secret", "desk", "authenticate")):
            outer.mount("s", protected("secret"))
    protected("desk").mount("s", protected("secret"))
    protected("desk").mount("open", Server("open"))


class Requiring(Authenticator):
    def __init__(self, *scopes: str) -> None:
        self.scopes = scopes

    @property
    def required(self) -> frozenset[str]:
        return frozenset(self.scopes)

    async def __call__(self, _headers: Any) -> str | None:
        return None


def test_the_scopes_that_a_mounted_server_requires_are_required_by_the_outer_one() -> None:
    unscoped = Server("desk", http=HttpOptions(authenticate=nobody))
    for outer in (protected("desk", "read"), protected("desk"), unscoped):
        with pytest.raises(ValueError, match=naming("secret", "desk", "write", "required=", "scopes=")):
            outer.mount("s", protected("secret", "read", "write"))
    protected("desk", "read", "write", "more").mount("s", protected("secret", "read", "write"))
    protected("desk", "read").mount("s", protected("secret"))


def test_message_middleware_is_for_the_outer_server() -> None:
    with pytest.raises(ValueError, match=naming("notes", "message")):
        Server("desk").mount("n", Server("notes", message_middleware=[lambda _message: None]))
    inner = Server("notes")
    Server("desk").mount("n", inner)
    with pytest.raises(RuntimeError, match=naming("notes", "desk")):
        inner.message_middleware(lambda _message: None)


def test_completions_are_registered_where_their_prompt_is() -> None:
    outer = desk_of(("n", notes()))
    with pytest.raises(LookupError, match="n_sum_up"):
        outer.complete(prompt="n_sum_up", argument="title")(lambda value: [value])


@pytest.mark.parametrize(
    ("args", "options"),
    [
        (("other",), {}),
        (("other", "x"), {}),
        (("other",), {"namespace": "x"}),
        (("other",), {"prefix": "x"}),
        (("x",), {}),
        (("x", "other", "y"), {}),
        ((), {"server": "other", "prefix": "x"}),
    ],
    ids=str,
)
def test_other_arguments_than_a_prefix_and_a_server_are_answered_with_what_to_write(
    args: tuple[str, ...], options: dict[str, str]
) -> None:
    outer, values = Server("outer"), {"other": notes()}
    mount: Callable[..., None] = outer.mount
    with pytest.raises(TypeError, match=naming("Server.mount()", 'server.mount("weather", weather)', "FastMCP")):
        mount(*(values.get(each, each) for each in args), **{name: values.get(v, v) for name, v in options.items()})
    assert outer.tools == ()
    mount(prefix="x", other=values["other"])
    assert {each.name.partition("_")[0] for each in outer.tools} == {"x"}
