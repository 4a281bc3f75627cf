"""A hostile server: mutated answers, questions and notifications for our client, whose every call has to end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import httpx2
import trio
from checks import Oracle, check, records
from dressing import DRESSES, standalone
from ends import memory_end
from hypothesis import note, strategies as st
from hypothesis.errors import InvalidArgument
from literals import literal
from mutations import KINDS, Mutation, copied, mutated
from peer import Json, arrived, is_malformed
from scripted import living
from scripted_http import http_channel
from seeds import filled_in, jsonrpc, results, to_a_client
from server_stage import fuzzed_server
from spec_schemas import VERSIONS
from trio.testing import MockClock, wait_all_tasks_blocked
from wire_terms import METHOD_NOT_FOUND, MODERN, PROTOCOL_VERSION

from trio_mcp import Client, accept
from trio_mcp.client import ClientOptions, Handlers
from trio_mcp.errors import LocalProtocolError, McpError, RequestTimeout
from trio_mcp.session import AnyChannel
from trio_mcp.types import Implementation, PromptReference, Root

TIMEOUT = 20.0
"""Seconds that each call of the client has."""
OPENING = 200.0
"""Seconds within which an opening has to end by itself: every probe and handshake has its own timeout."""
TURNS = 200
"""Turns of the event loop that a call of another client may take."""
BUFFER = 1000
MODES = ("auto", "modern", "legacy", *VERSIONS)


class Reply(NamedTuple):
    """What the server says to one request: other messages first, and then a mutated right answer.

    Attributes:
        pick: which of the right answers, modulo their number; -1 for none.
        dress: over HTTP, how the response looks; see `DRESSES`.
    """

    before: tuple[bytes, ...] = ()
    pick: int = 0
    mutations: tuple[Mutation, ...] = ()
    dress: int = 0

    def __repr__(self) -> str:
        before = "".join(f"{literal(each)}, " for each in self.before)
        return f"Reply(({before}), {self.pick}, {self.mutations}, {self.dress})"


class ClientCase(NamedTuple):
    """What one client does, and what its server says to each of its requests.

    Attributes:
        together: make all calls at the same time.
        rest: what the server does when it has no replies left: it goes on with right ones, says nothing, or ends.
    """

    wire: str
    mode: str
    calls: tuple[str, ...]
    replies: tuple[Reply, ...]
    together: bool = False
    rest: str = "right"


async def listen(client: Client) -> None:
    with trio.move_on_after(TIMEOUT):
        async with client.listen(tools=True, resources=True, uris=["note:today"]) as changes:
            async for _ in changes:
                pass


async def page_through(client: Client) -> None:
    async for _ in client.iter_resources(timeout=TIMEOUT):
        pass


CALLS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "list_tools": lambda client: client.list_tools(timeout=TIMEOUT),
    "list_prompts": lambda client: client.list_prompts(timeout=TIMEOUT),
    "list_resource_templates": lambda client: client.list_resource_templates(timeout=TIMEOUT),
    "iter_resources": page_through,
    "call_tool": lambda client: client.call_tool("a", {"x": None}, timeout=TIMEOUT, on_progress=str),
    "idle_call": lambda client: client.call_tool("a", idle_timeout=5, timeout=TIMEOUT),
    "get_prompt": lambda client: client.get_prompt("a", {"x": "y"}, timeout=TIMEOUT),
    "read_resource": lambda client: client.read_resource("file:///a", timeout=TIMEOUT),
    "complete": lambda client: client.complete(PromptReference(name="a"), "x", "y", timeout=TIMEOUT),
    "ping": lambda client: client.ping(timeout=TIMEOUT),
    "set_log_level": lambda client: client.set_log_level("debug", timeout=TIMEOUT),
    "subscribe": lambda client: client.subscribe("file:///a", timeout=TIMEOUT),
    "listen": listen,
}


def run(case: ClientCase) -> None:
    """Raise unless our client holds what it promises, whatever its server says."""
    said: list[Reply] = []
    with records() as log:
        try:
            trio.run(attack, case, said, clock=MockClock(autojump_threshold=0))
            log.check()
        except BaseException:
            with suppress(InvalidArgument):  # outside of Hypothesis
                note(f"For the table of regressions: {case._replace(replies=tuple(said))}")
            raise


async def attack(case: ClientCase, said: list[Reply]) -> None:
    """Let a client talk to its hostile server; what the server says, without mutations, is appended to `said`."""
    async with other_client() as works:
        before = living()
        server = HostileServer(case, works, said)
        async with trio.open_nursery() as nursery:
            connect = over_http if case.wire == "http" else over_memory
            client = Client(connect(server, nursery), options(case.mode))
            ended = partial(ends, server)
            opened = await ended("open", OPENING, client.open())
            if opened and case.together:
                async with trio.open_nursery() as calls:
                    for name in case.calls:
                        calls.start_soon(ended, name, 3 * TIMEOUT, CALLS[name](client))
            elif opened:
                for name in case.calls:
                    await ended(name, 3 * TIMEOUT, CALLS[name](client))
            await ended("aclose", OPENING, client.aclose())
            nursery.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        await works()
        check(living() == before, "tasks are left", living(), before)


async def ends(server: HostileServer, name: str, seconds: float, call: Awaitable[object]) -> bool:
    """Wait for the end of a call, which is a result or one of our errors; return whether it is a result."""
    try:
        with trio.fail_after(seconds):
            await call
    except trio.TooSlowError:
        check(condition := False, f"{name} did not end within {seconds} s")
        return condition
    except McpError as error:
        check(
            server.was_silent or not isinstance(error, RequestTimeout), f"{name} waited although it was answered", error
        )
        check(not isinstance(error, LocalProtocolError), f"{name} broke a rule itself", error)
        return False
    return True


def options(mode: str) -> ClientOptions:
    handlers = Handlers(
        lambda _form: accept(value=7),
        lambda _params: "so be it",
        lambda: [Root(uri="file:///a")],
        lambda _page: accept(),
    )
    info = Implementation(name="fuzzed", version="1")
    return ClientOptions(handlers=handlers, on_log=str, on_change=str, mode=mode, info=info)  # type: ignore[arg-type]


@asynccontextmanager
async def other_client() -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """A client of another server in the same process, and a check that its calls are answered."""
    async with Client.connect(fuzzed_server().server) as client, trio.open_nursery() as nursery:

        async def call(texts: list[str]) -> None:
            texts.append((await client.call_tool("echo", {"text": "here"})).text)

        async def works() -> None:
            # Its own, because a server over HTTP answers several requests at the same time, and checks at each.
            texts: list[str] = []
            nursery.start_soon(call, texts)
            for _ in range(TURNS):
                await trio.lowlevel.checkpoint()
                if texts:
                    break
            check(texts == ["here"], f"another client was not answered within {TURNS} turns of the loop", texts)

        await works()
        yield works


class HostileServer:
    """Says what its case tells it to, and holds the messages of the client against the schema files."""

    def __init__(self, case: ClientCase, works: Callable[[], Awaitable[None]], said: list[Reply]) -> None:
        self._said = said
        self._replies: Iterator[Reply] = iter(case.replies)
        self._rest = case.rest
        self._works = works
        self._exhausted = False
        self._legacy = "2025-11-25"
        self._oracle = ClientOracle()

        self.was_silent = False
        """Whether a request had no answer that names it: then its call may wait for as long as its timeout."""

    @property
    def ended(self) -> bool:
        return self._rest == "ended"

    async def replies_to(self, message: Json) -> tuple[Reply, list[bytes]]:
        """Return what is said to one message of the client."""
        self._oracle.heard(message)
        await self._works()
        if "method" not in message or "id" not in message:
            return Reply(), []
        reply = next(self._replies, None)
        if reply is None:
            self._exhausted = True
            reply = Reply() if self._rest == "right" else Reply(pick=-1)
            self._rest = "ended" if self._rest == "end" else self._rest
        meta = message.get("params", {}).get("_meta", {})
        said = {"id": message["id"], "token": meta.get("progressToken", 0)}
        answers = [self._answer(message, reply)] if reply.pick >= 0 else []
        messages = (*reply.before, *answers)
        self._said.append(Reply(messages, -1, (), reply.dress))
        full = [filled_in(each, said) for each in messages]
        for each in full:
            self._oracle.sent(each)
        answered = any(answers_to(message["id"], each) for each in full)
        self.was_silent |= not answered or reply.dress % len(DRESSES) != 0
        return reply, full

    def _answer(self, request: Json, reply: Reply) -> bytes:
        method, params = request["method"], request.get("params", {})
        version = params.get("_meta", {}).get(PROTOCOL_VERSION, self._legacy)
        if method == "initialize":
            version = self._legacy = params["protocolVersion"]
        refusal: Json = {"error": {"code": METHOD_NOT_FOUND, "message": "no"}}
        answers = [*({"result": each} for each in results(version, method)), refusal]
        chosen = copied(answers[reply.pick % len(answers)])
        if self._exhausted:  # else a list would never end, and only the client's own limit would end the case
            chosen.get("result", {}).pop("nextCursor", None)
        return mutated(jsonrpc({"id": "@id@", **chosen}), reply.mutations, to_a_client())


def answers_to(request_id: object, data: bytes) -> bool:
    """Whether a message is an answer to this request, or is unreadable and names it."""
    message: Any = arrived(data).message
    if is_malformed(message):
        return message.answers == request_id
    return not hasattr(message, "method") and message.id == request_id


class ClientOracle(Oracle):
    """Of a connection whose questions are the hostile server's."""

    @property
    def _versions(self) -> list[str]:
        return list(VERSIONS)


@asynccontextmanager
async def over_memory(server: HostileServer, nursery: trio.Nursery) -> AsyncIterator[AnyChannel]:
    to_server, received = trio.open_memory_channel[bytes](BUFFER)
    sends, to_client = trio.open_memory_channel[bytes](BUFFER)

    async def serve() -> None:
        with suppress(trio.BrokenResourceError):
            async for data in received:
                for each in (await server.replies_to(json.loads(data)))[1]:
                    await sends.send(each)
                if server.ended:
                    break
        sends.close()

    nursery.start_soon(serve)
    async with memory_end(to_server, to_client) as channel:
        yield channel


@asynccontextmanager
async def over_http(server: HostileServer, _nursery: trio.Nursery) -> AsyncIterator[AnyChannel]:
    async def handle(request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        if server.ended:
            raise httpx2.ConnectError("the server is gone")
        if request.method != "POST":
            return standalone(request)
        reply, messages = await server.replies_to(json.loads(request.content))
        return DRESSES[reply.dress % len(DRESSES)](messages)

    async with http_channel(httpx2.MockTransport(handle), "http://fuzzed.test/mcp") as channel:
        yield channel


# what is tried

MUTATIONS = st.lists(
    st.builds(Mutation, st.sampled_from(KINDS), st.integers(0, 60), st.integers(0, 400)), max_size=3
).map(tuple)


@st.composite
def unasked(draw: st.DrawFn) -> bytes:
    pool = to_a_client()
    return mutated(pool[draw(st.integers(0, len(pool) - 1))], draw(MUTATIONS), pool)


REPLIES = st.builds(
    Reply,
    st.lists(unasked(), max_size=2).map(tuple),
    st.integers(0, 10),
    MUTATIONS,
    st.one_of(st.just(0), st.integers(0, len(DRESSES) - 1)),
)


@st.composite
def cases(draw: st.DrawFn) -> ClientCase:
    # The first replies open the session: a mutation there mostly ends the case, so that most cases have none.
    right = [Reply(pick=draw(st.sampled_from([0, 0, 0, 1])))] * draw(st.sampled_from([2, 2, 1, 1, 0]))
    return ClientCase(
        draw(st.sampled_from(["memory", "http"])),
        draw(st.sampled_from(MODES)),
        tuple(draw(st.lists(st.sampled_from(sorted(CALLS)), min_size=1, max_size=4))),
        (*right, *draw(st.lists(REPLIES, min_size=1, max_size=6))),
        draw(st.booleans()),
        draw(st.sampled_from(["right", "silence", "end"])),
    )


assert MODERN in MODES
