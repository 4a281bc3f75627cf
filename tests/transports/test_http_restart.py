"""Legacy sessions whose server is killed and started again, with a durable store: nothing is asked or done twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from asgi_peer import JSON_HEADERS, AsgiPeer, Reply, initialize, legacy_call, served
from crashing_store import Change, CrashingStore, Disk, plain_text, sealed
from late_store import NEVER, Lateness, LateStore
from naming import unnamed
from wire_terms import IDEMPOTENCY_KEY, OUTCOME_UNKNOWN, SERVER_BUSY

from trio_mcp import Context, Server
from trio_mcp.session import KeyRing, ServiceOptions
from trio_mcp.stores import Put, Record, Remove, StoreError, StoreFull
from trio_mcp.stores.adapters import StoredEvents
from trio_mcp_transports.http import HttpLimits, asgi_app

KEYS = KeyRing.random()
LIMITS = HttpLimits(session_idle=100, disconnect_grace=30)
Json = dict[str, Any]


class Shop:
    """The tools of a server, in all its processes.

    Attributes:
        headers: those of the session that a test has opened.
    """

    headers: dict[str, str]

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.effects: list[str] = []
        self.started = trio.Event()
        self.go_on = trio.Event()
        self.says = "progress"

    def server(self, store: CrashingStore | None) -> Server:
        server = self.newest = Server("shop", options=ServiceOptions(keys=KEYS, store=store))
        for tool in (self.order, self.count, self.two, self.slow, self.steady, self.sampled):
            server.tool(resume="replay")(tool)
        server.tool(resume="replay")(self.asks)
        server.tool(task=True, resume="replay", name="two_as_task")(self.two)
        server.tool(self.parked)
        server.tool(self.logs)
        server.tool(self.unrepeatable)
        server.tool(self.reports)
        return server

    async def order(self, ctx: Context) -> str:
        await ctx.step("charge", self.charge)
        sure = await ctx.elicit("Sure?", bool)
        await ctx.step("ship", lambda: self.effects.append("shipped"))
        return f"{sure.action}"

    def charge(self) -> None:
        self.effects.append("charged")

    async def two(self, ctx: Context) -> str:
        first = await ctx.elicit("First?", bool)
        second = await ctx.elicit("Second?", bool)
        return f"{first.action} {second.action}"

    async def count(self, ctx: Context) -> str:
        for number in range(1, 5):
            await ctx.progress(number, 5)
        await self.wait()
        await ctx.progress(5, 5)
        return "counted"

    async def slow(self, ctx: Context) -> str:
        await ctx.progress(1, 2)
        await ctx.step("charge", self.slowly)
        return "done"

    async def steady(self, ctx: Context) -> str:
        for number in range(1, 21):
            await ctx.progress(number, 20)
            await trio.sleep(0.3)
        await ctx.step("charge", self.charge)
        return "done"

    async def slowly(self) -> None:
        self.charge()
        await self.wait()

    async def sampled(self, ctx: Context) -> str:
        return (await ctx.sample("Say yes")).text

    async def unrepeatable(self) -> str:
        await self.wait()
        return "done"

    async def asks(self, ctx: Context) -> str:
        await self.wait()
        if self.says == "progress":
            await ctx.progress(1, 2)
            await trio.sleep_forever()
        return (await ctx.elicit("Sure?", bool)).action

    async def reports(self, ctx: Context) -> None:
        await self.wait()
        await ctx.progress(1, 2)
        await trio.sleep_forever()

    async def logs(self, ctx: Context) -> str:
        await ctx.info("hello")
        return "logged"

    async def parked(self, ctx: Context) -> str:
        return (await ctx.elicit("Sure?", bool)).action

    @property
    def kept(self) -> list[str]:
        """The kinds of the records in the store."""
        return [kind for kind, _ in self.disk.records]

    async def wait(self) -> None:
        self.started.set()
        await self.go_on.wait()

    @asynccontextmanager
    async def process(self, *, graceful: bool = False, own_log: bool = False, **options: Any) -> AsyncIterator[Process]:
        """A process; with `own_log`, the events of its streams are in another store on the disk."""
        store = LateStore(self.disk)
        if own_log:
            options["event_store"] = StoredEvents(CrashingStore(self.disk))
        async with served(asgi_app(self.server(store), limits=LIMITS, **options)) as peer:
            yield Process(peer, store, self)
            if not graceful:
                store.crash()
        await store.aclose()

    async def open(self) -> None:
        """Open the session in a process that is over."""
        async with self.opened():
            pass

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[Process]:
        """A process in which the session has been opened."""
        async with self.process(**options) as opening:
            self.headers = await opening.peer.open_session()
            yield opening


class Process:
    """One process of the server, until the end of its block, where it is killed."""

    def __init__(self, peer: AsgiPeer, store: LateStore, shop: Shop) -> None:
        self.peer, self.store, self.shop = peer, store, shop

    async def call(self, tool: str, *, id: int = 2, meta: Json | None = None) -> Reply:
        """Call a tool, with a progress token."""
        return self.peer.start(
            legacy_call(tool, id=id, _meta={"progressToken": "t", **(meta or {})}), self.shop.headers
        )

    async def asked(self, tool: str, text: str = "Sure?", *, id: int = 2) -> tuple[Reply, Json]:
        """Call a tool that asks this; return the call and the question."""
        call = await self.call(tool, id=id)
        return call, await asked(call, text)

    def resume(self, after: Reply | str) -> Reply:
        """Read on after an event, or after the last one that a response has brought."""
        last = after if isinstance(after, str) else after.ids[-1]
        return self.peer.start({}, {**self.shop.headers, "last-event-id": last}, method="GET", sends_body=False)

    async def answer(self, question: Json, *, status: int = 202) -> None:
        """Accept a question, which has this status."""
        result = {"action": "accept", "content": {"value": True}}
        message = {"jsonrpc": "2.0", "id": question["id"], "result": result}
        assert (await self.peer.post(message, self.shop.headers)).status == status

    async def counted(self, meta: Json | None = None) -> Reply:
        """Call `count`; return the call when it has reported 4 of 5."""
        call = await self.call("count", meta=meta)
        await call.until('"progress":4')
        return call

    async def finish(self, after: Reply | str, *questions: Json | str) -> str:
        """Resume a call and accept these questions, some of which come with these texts; return the text of its result."""
        rest = self.resume(after)
        for question in questions:
            await self.answer(await asked(rest, question) if isinstance(question, str) else question)
        return text_of((await rest.end()).last)

    async def ping(self, id: int = 9, *, seconds: float = 5) -> Reply:
        return await self.peer.start(request("ping", id), self.shop.headers).end(seconds=seconds)

    async def delete(self) -> Reply:
        """Delete the session."""
        return await self.peer.start({}, self.shop.headers, method="DELETE", sends_body=False).end()


def request(method: str, id: int, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def text_of(message: Json) -> str:
    text: str = message["result"]["content"][0]["text"]
    return text


async def asked(call: Reply, text: str = "Sure?") -> Json:
    """The question of a call, which has come."""
    await call.until(text)
    (question,) = (each for each in call.events if each.get("params", {}).get("message") == text)
    return question


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def shop(disk: Disk) -> Shop:
    return Shop(disk)


@pytest.mark.parametrize("graceful", [False, True], ids=["killed", "shut down"])
async def test_a_waiting_call_goes_on_in_the_next_process(shop: Shop, graceful: bool) -> None:
    async with shop.opened(graceful=graceful) as first:
        call, question = await first.asked("order")
    assert [each["method"] for each in call.events] == ["elicitation/create"]
    async with shop.process() as second:
        rest = second.resume(call)
        await second.answer(question)
        await rest.end()
    assert [each.get("id") for each in rest.events] == [2], "neither the question nor anything else is sent again"
    assert text_of(rest.last) == "accept"
    assert shop.effects == ["charged", "shipped"]


async def test_an_answer_may_come_before_the_stream_is_resumed(shop: Shop) -> None:
    async with shop.opened() as first:
        call, question = await first.asked("two", "First?")
    async with shop.process() as second:
        await second.answer(question)
        assert await second.finish(call, "Second?") == "accept accept"


async def test_the_wait_for_the_result_of_a_task_goes_on_in_the_next_process(shop: Shop) -> None:
    async with shop.opened() as first:
        call = first.peer.start(request("tools/call", 2, name="two_as_task", arguments={}, task={}), shop.headers)
        await call.end()
        result = first.peer.start(request("tasks/result", 3, **call.last["result"]["task"]), shop.headers)
        question = await asked(result, "First?")
    async with shop.process() as second:
        await second.answer(question)
        assert await second.finish(result, "Second?") == "accept accept"


@pytest.mark.parametrize("meta", [{}, {IDEMPOTENCY_KEY: "key"}], ids=["without a key", "with a key"])
async def test_a_task_belongs_to_its_session_in_the_next_process(shop: Shop, meta: Json) -> None:
    async with shop.opened() as first:
        create = request("tools/call", 2, name="two_as_task", arguments={}, task={}, _meta=meta)
        call = first.peer.start(create, shop.headers)
        await call.end()
    async with shop.process() as second:
        task = second.peer.start(request("tasks/get", 3, taskId=call.last["result"]["task"]["taskId"]), shop.headers)
        await task.end()
    assert "result" in task.last


@pytest.mark.parametrize("fails", [False, True], ids=["at once", "when the store works again"])
async def test_an_answer_is_acknowledged_when_it_is_kept_and_survives_a_crash_right_after_it(
    shop: Shop, fails: bool
) -> None:
    async with shop.opened() as first:
        call, question = await first.asked("two", "First?")
        last = call.ids[-1]
        if fails:
            first.store.failing = True
            await first.answer(question, status=503)
            first.store.failing = False
        await first.answer(question)
        first.store.crash()
    async with shop.process() as second:
        assert await second.finish(last, "Second?") == "accept accept"


async def test_a_question_of_the_next_process_has_a_new_id(shop: Shop) -> None:
    async with shop.opened() as first:
        _, before = await first.asked("two", "First?")
    async with shop.process() as second:
        _, after = await second.asked("parked", id=3)
    assert after["id"] > before["id"]


async def test_a_stream_goes_on_with_its_numbers_and_its_progress(shop: Shop) -> None:
    async with shop.opened() as first:
        call = await first.counted()
    shop.go_on.set()
    half = call.ids[2]
    async with shop.process() as second:
        rest = await second.resume(half).end()
    reported = [each["params"]["progress"] for each in rest.events if each.get("method") == "notifications/progress"]
    numbers = [int(each.partition("-")[2].partition(".")[0]) for each in rest.ids]
    assert reported == list(range(int(half.partition("-")[2]) + 1, 6))
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert text_of(rest.last) == "counted"


async def test_a_call_that_was_in_a_step_ends_with_an_error_that_names_the_step(shop: Shop) -> None:
    async with shop.opened() as first:
        call = await first.call("slow")
        await call.until('"progress":1')
        with trio.fail_after(5):
            await shop.started.wait()
    shop.go_on.set()
    async with shop.process() as second:
        rest = await second.resume(call).end()
    assert rest.last["result"]["isError"]
    assert "step 'charge' may have run" in text_of(rest.last)
    assert shop.effects == ["charged"]


async def test_a_call_that_must_not_run_twice_ends_with_an_error(shop: Shop) -> None:
    async with shop.opened() as first:
        call = await first.call("parked")
        await asked(call)
    async with shop.process() as second:
        rest = await second.resume(call).end()
    assert rest.last["result"]["isError"]
    assert "restarted" in text_of(rest.last)


async def test_an_answer_that_was_not_read_is_read_in_the_next_process(shop: Shop) -> None:
    async with shop.opened() as first:
        call = await first.counted()
        shop.go_on.set()
        await call.end()
    async with shop.process() as second:
        assert await second.finish(call.ids[1]) == "counted"
    assert shop.effects == []


async def test_a_session_keeps_what_its_client_set(shop: Shop) -> None:
    async with shop.opened() as first:
        level = {"jsonrpc": "2.0", "id": 3, "method": "logging/setLevel", "params": {"level": "error"}}
        assert (await first.peer.post(level, shop.headers)).status == 200
    async with shop.process() as second:
        quiet = await second.peer.post(legacy_call("logs", id=4), shop.headers)
    assert quiet.headers["content-type"] == "application/json", "no message of a lower level came before the result"
    assert text_of(quiet.last) == "logged"


async def test_a_deleted_session_is_unknown_in_the_next_process(disk: Disk, shop: Shop) -> None:
    async with shop.opened() as first:
        await first.asked("parked")
        await first.delete()
    assert disk.records == {}
    async with shop.process() as second:
        assert (await second.peer.post(legacy_call("two"), shop.headers)).status == 404


async def test_an_unknown_session_is_looked_for_once_a_second(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    async with shop.process() as first:
        headers = {**(await first.peer.open_session()), "mcp-session-id": "a" * 32}
        looked, read = list[str](), first.store.read

        async def counted(kind: str, key: str) -> Record | None:
            looked.append(kind)
            return await read(kind, key)

        monkeypatch.setattr(first.store, "read", counted)
        for times in (1, 2):
            for number in range(5):
                assert (await first.peer.post(request("ping", number), headers)).status == 404
            assert looked.count("session") == times
            await trio.sleep(1.1)


async def test_a_request_that_runs_when_its_stored_session_is_deleted_gets_an_error(shop: Shop) -> None:
    async with shop.opened() as first:
        call = first.peer.start(legacy_call("unrepeatable"), shop.headers)
        await shop.started.wait()
        await first.delete()
        await call.end()
    assert call.json["error"]["data"] == {OUTCOME_UNKNOWN: True}


async def test_the_stream_for_what_belongs_to_no_request_is_resumed(shop: Shop) -> None:
    async with shop.opened() as first:
        listening = first.peer.start({}, shop.headers, method="GET", sends_body=False)
        await listening.until("id: ")
    async with shop.process() as second:
        again = second.resume(listening)
        await trio.sleep(1)
        assert again.status == 200
        assert not again.ended.is_set()


async def test_another_principal_does_not_get_the_session(disk: Disk, shop: Shop) -> None:
    async def who(headers: Mapping[str, str]) -> str | None:
        return headers.get("authorization")

    async with shop.process(authenticate=who) as first:
        headers = await first.peer.open_session(who={"authorization": "alice"})
    async with shop.process(authenticate=who) as second:
        theirs = await second.peer.post(legacy_call("two"), {**headers, "authorization": "mallory"})
        assert theirs.status == 404
        assert (await second.peer.post(legacy_call("missing"), headers)).status == 200
    assert not any(b"alice" in record.value for record in disk.records.values())


async def test_no_credential_is_stored(disk: Disk, shop: Shop) -> None:
    async def who(headers: Mapping[str, str]) -> str | None:
        return "alice" if headers.get("authorization") == "Bearer secret" else None

    async with shop.process(authenticate=who) as first:
        shop.headers = await first.peer.open_session(who={"authorization": "Bearer secret"})
        await first.asked("order")
    # A sealed record discloses nothing: this checks what a reader with the keys could see.
    written = plain_text(disk, KEYS)
    assert b"alice" in written
    assert b"secret" not in written


async def test_a_session_of_a_living_process_is_not_taken(shop: Shop) -> None:
    async with shop.opened() as first:
        async with shop.process() as other:
            refused = await other.peer.post(legacy_call("two"), shop.headers)
            assert refused.status == 503
            assert "retry-after" in refused.headers
        assert (await first.peer.post(legacy_call("missing"), shop.headers)).status == 200


async def test_a_request_waits_until_the_lease_of_the_process_that_had_its_session_has_lapsed(shop: Shop) -> None:
    async with shop.opened() as first:
        killed = first.peer.app.service.calls.node
    shop.disk.alive.add(killed)
    async with shop.process() as second:
        requests = [second.peer.start(request("ping", number), shop.headers) for number in (3, 4)]
        await trio.sleep(1.5)
        shop.disk.alive.discard(killed)
        assert [(await each.end()).status for each in requests] == [200, 200]


async def test_a_session_that_cannot_be_restored_takes_no_memory_and_may_be_asked_for_again(shop: Shop) -> None:
    async with shop.opened() as first:
        call, question = await first.asked("order")
    async with shop.process() as second:
        (service,) = shop.newest.services
        entries, memory = second.store.entries, service.options.memory
        before, subscribers = memory.drawn, len(service.subscriptions._subscribers)  # noqa: SLF001  nothing else tells

        async def fail(kind: str, *args: Any) -> Sequence[bytes]:
            if kind != "call":
                raise StoreError("the disk is slow")
            return await entries(kind, *args)

        second.store.entries = fail  # type: ignore[method-assign]
        for _ in range(3):
            assert (await second.peer.post(legacy_call("two"), shop.headers)).status == 503
        assert memory.drawn == before
        assert len(service.subscriptions._subscribers) == subscribers  # noqa: SLF001
        second.store.entries = entries  # type: ignore[method-assign]
        await second.answer(question)
        await second.resume(call).end()


async def test_a_session_that_cannot_be_read_is_unknown(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    await shop.open()
    ((key, record),) = shop.disk.records.items()
    shop.disk.records[key] = record._replace(value=b"{}")
    async with shop.process() as second:
        assert (await second.peer.post(legacy_call("two"), shop.headers)).status == 404
    assert "session cannot be read" in caplog.text


async def test_a_call_whose_answer_was_logged_does_not_go_on(shop: Shop) -> None:
    """The process ended between the answer and the end of what it had kept of the call."""
    async with shop.opened() as first:
        call, question = await first.asked("order")
        last = call.ids[-1]

        def crash(changes: Sequence[Change]) -> None:
            if removes("call")(changes):
                first.store.crash()

        first.store.on_write = crash
        await first.answer(question)
        await call.end()
    assert shop.kept.count("call") == 1
    async with shop.process() as second:
        rest = await second.resume(last).end()
        assert [each.get("id") for each in rest.events] == [2]
        assert shop.kept.count("call") == 0
    assert shop.effects == ["charged", "shipped"]


async def test_a_question_that_was_recorded_and_not_sent_is_sent(disk: Disk, shop: Shop) -> None:
    events = CrashingStore(disk)
    async with shop.opened(event_store=StoredEvents(events)) as first:

        def crash(_changes: Sequence[Change]) -> None:
            recorded = sum(len(log) for (kind, _), log in disk.logs.items() if kind == "call")
            # The intent and the result of the step, and the question.
            if recorded == 3:
                events.crash()
                first.store.crash()

        events.on_write = crash
        call = await first.call("order")
        await call.until("id: ")
        last = call.ids[0]
        await trio.sleep(1)
        assert first.store.has_crashed
    async with shop.process(event_store=StoredEvents(CrashingStore(disk))) as second:
        assert await second.finish(last, "Sure?") == "accept"


def poison_record(disk: Disk, key: tuple[str, str]) -> None:
    """As another version may have written it; it opens with the keys."""
    disk.records[key] = disk.records[key]._replace(value=sealed(b'{"secret":1}', KEYS, *key))


def poison_log(disk: Disk, key: tuple[str, str]) -> None:
    disk.logs[key][0] = b"poison"


@pytest.mark.parametrize("poison", [poison_record, poison_log])
async def test_a_call_that_cannot_be_read_is_set_aside_and_the_others_go_on(
    disk: Disk, shop: Shop, poison: Callable[[Disk, tuple[str, str]], None], caplog: pytest.LogCaptureFixture
) -> None:
    async with shop.opened() as first:
        bad = await first.call("order")
        await asked(bad)
        (key,) = (key for key in disk.records if key[0] == "call")
        good = await first.call("two", id=3)
        question = await asked(good, "First?")
    poison(disk, key)
    async with shop.process() as second:
        rest = second.resume(good)
        await second.answer(question)
        await second.answer(await asked(rest, "Second?"))
        await rest.end()
        if poison is poison_log:
            # The owner of the call is known, and is notified.
            lost = await second.resume(bad).end()
            assert lost.last["id"] == 2
            assert lost.last["result"]["isError"]
    assert text_of(rest.last) == "accept accept"
    assert shop.effects == ["charged"]
    assert "call cannot be read" in caplog.text
    assert "secret" not in caplog.text


async def test_a_call_that_opens_no_stream_writes_nothing(disk: Disk, shop: Shop) -> None:
    async with shop.opened() as first:
        before = len(disk.writes)
        assert (await first.peer.post(legacy_call("missing"), shop.headers)).status == 200
        assert len(disk.writes) == before


async def test_a_session_survives_several_restarts(shop: Shop) -> None:
    async with shop.opened() as first:
        call, question = await first.asked("two", "First?")
        last = call.ids[-1]
    for _ in range(3):
        async with shop.process() as again:
            rest = again.resume(last)
            await trio.sleep(1)
            assert rest.events == []
    async with shop.process() as final:
        await final.answer(question)
        assert await final.finish(last, "Second?") == "accept accept"


async def test_an_answered_call_leaves_nothing_but_the_session(disk: Disk, shop: Shop) -> None:
    async with shop.opened() as first:
        call = await first.call("two")
        await first.answer(await asked(call, "First?"))
        await first.answer(await asked(call, "Second?"))
        await call.end()
        assert shop.kept == ["session"]
        assert [kind for kind, _ in disk.logs] == ["events"]


async def test_a_process_that_lost_its_session_ends_it_and_leaves_the_store_alone(disk: Disk, shop: Shop) -> None:
    level = {"jsonrpc": "2.0", "id": 3, "method": "logging/setLevel", "params": {"level": "error"}}
    async with shop.opened() as first:
        call, question = await first.asked("order")
        last = call.ids[-1]
        await asked(await first.call("parked", id=3))
        # As a machine that was frozen: others have found its lock released.
        disk.alive.clear()
        async with shop.process() as second:
            rest = second.resume(last)
            await trio.sleep(1)
            written = len(disk.writes)
            await first.peer.post(level, shop.headers)
            await call.end()
            assert len(disk.writes) == written
            assert [each["method"] for each in call.events] == ["elicitation/create"], "it says nothing of its end"
            await second.answer(question)
            assert text_of((await rest.end()).last) == "accept"
    assert shop.effects == ["charged", "shipped"]


async def test_a_client_that_waits_at_a_process_that_lost_its_session_goes_on_at_the_other_one(shop: Shop) -> None:
    async with shop.process() as first, shop.process() as second:
        shop.headers = await first.peer.open_session()
        call, question = await first.asked("order")
        # Its lock file has vanished, and is recreated after the other one has looked.
        first.store.lapse()
        await second.answer(question)
        first.store.lapses += 1
        await call.end(seconds=20)
        assert [each["method"] for each in call.events] == ["elicitation/create"], "it says nothing of its end"
        assert await second.finish(call) == "accept"
    assert shop.effects == ["charged", "shipped"]


@pytest.mark.parametrize("restored", [False, True], ids=["opened here", "taken over before"])
async def test_a_process_that_lost_its_session_runs_no_further_step_of_it(shop: Shop, restored: bool) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(shop.process())
        shop.headers = await first.peer.open_session()
        call, question = await first.asked("order")
        last = call.ids[-1]
        if restored:
            first.store.crash()
            first = await stack.enter_async_context(shop.process())
            call = first.resume(last)
            await trio.sleep(1)
        shop.disk.alive.clear()
        second = await stack.enter_async_context(shop.process())
        rest = second.resume(last)
        await trio.sleep(1)
        await first.answer(question, status=503)
        await call.end()
        assert shop.effects == ["charged"]
        await second.answer(question)
        assert text_of((await rest.end()).last) == "accept"
    assert shop.effects == ["charged", "shipped"]


LOGS = pytest.mark.parametrize("own_log", [False, True], ids=["log in the store", "log in another store"])


@LOGS
async def test_a_process_that_lost_its_session_writes_nothing_of_it_again(
    disk: Disk, shop: Shop, own_log: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with shop.opened(own_log=own_log) as first:
        (service,) = shop.newest.services
        call = await first.call("unrepeatable")
        await call.until("id: ")
        disk.alive.clear()
        async with shop.process(own_log=own_log) as second:
            await second.resume(call).end()
            shop.go_on.set()
            await call.end()
            assert len(service.calls.settling) == 0
            await trio.sleep(60)
    assert "a record was not written" not in caplog.text


async def test_a_process_that_lost_its_session_does_not_remove_it_when_it_is_idle(disk: Disk, shop: Shop) -> None:
    async with shop.opened() as first:
        disk.alive.clear()
        async with shop.process() as second:
            call, question = await second.asked("order")
            await trio.sleep(1.5 * LIMITS.session_idle)
            assert (await first.peer.post(legacy_call("missing"), shop.headers)).status in (404, 503)
            await second.answer(question)
            assert text_of((await call.end()).last) == "accept"


async def test_the_requests_of_a_batch_are_answered_together(shop: Shop) -> None:
    async with shop.process() as first:
        shop.headers = await first.peer.open_session(version="2025-03-26", capabilities={"sampling": {}})
        batch = [legacy_call("sampled", id=5), legacy_call("unrepeatable", id=6)]
        call = first.peer.start(batch, shop.headers)
        await call.until("Say yes")
        (question,) = (each for each in call.events if each.get("method") == "sampling/createMessage")
    async with shop.process() as second:
        rest = second.resume(call)
        answer = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "yes"}}
        await second.peer.post({"jsonrpc": "2.0", "id": question["id"], "result": answer}, shop.headers)
        answers = {each["id"]: each for each in (await rest.end()).last}
    assert text_of(answers[5]) == "yes"
    assert "restarted" in text_of(answers[6])


async def test_a_session_in_use_is_kept_for_longer(disk: Disk, shop: Shop) -> None:
    async with shop.opened() as first:
        (before,) = disk.records.values()
        await first.asked("parked")
        await trio.sleep(LIMITS.session_idle)
        after = disk.records["session", before.key]
    assert after.version > before.version


async def test_an_idle_session_is_removed(disk: Disk, shop: Shop) -> None:
    async with shop.process() as first:
        await first.peer.open_session()
        await trio.sleep(2 * LIMITS.session_idle)
        assert disk.records == {}


async def test_no_session_is_opened_that_the_store_does_not_keep(shop: Shop) -> None:
    async with shop.process() as first:
        first.store.failing = True
        refused = await first.peer.post(initialize({}), JSON_HEADERS)
        assert refused.status == 503
        assert "mcp-session-id" not in refused.headers


async def test_a_store_that_hangs_holds_up_no_call(shop: Shop) -> None:
    async with shop.opened() as first:
        first.store.hang = trio.Event()
        call, question = await first.asked("parked")
        await first.answer(question)
        assert text_of((await call.end()).last) == "accept"


def kinds_of(changes: Sequence[Change]) -> set[str]:
    return {change.record.kind if isinstance(change, Put) else change.kind for change in changes}


def puts(kind: str) -> Callable[[Sequence[Change]], bool]:
    return lambda changes: any(isinstance(change, Put) and change.record.kind == kind for change in changes)


def removes(kind: str) -> Callable[[Sequence[Change]], bool]:
    return lambda changes: any(isinstance(change, Remove) and change.kind == kind for change in changes)


def late_once(concerns: Callable[[Sequence[Change]], bool], seconds: float) -> Lateness:
    """Let the first write that this concerns be late."""
    left = [seconds]
    return lambda changes: left.pop() if left and concerns(changes) else None


METAS = pytest.mark.parametrize("meta", [{}, {IDEMPOTENCY_KEY: "key"}], ids=["without a key", "with a key"])


@METAS
@pytest.mark.parametrize("seconds", [0.0, 2.0, NEVER])
async def test_a_call_that_was_answered_does_not_run_again_however_late_its_record_was_made(
    shop: Shop, seconds: float, meta: Json
) -> None:
    async with shop.opened() as first:
        first.store.lateness = late_once(puts("call"), seconds)
        call = await first.call("steady", meta=meta)
        assert text_of((await call.end(seconds=60)).last) == "done"
        assert first.store.given_up == 1
    first.store.make_late()
    async with shop.process() as second:
        await second.ping()
        await trio.sleep(60)
    assert shop.effects == ["charged"]
    assert "call" not in shop.kept


async def test_a_keyed_call_is_kept_whose_stream_was_opened_while_its_key_was_being_claimed(shop: Shop) -> None:
    async with shop.opened() as first:
        hang = first.store.hang = trio.Event()
        call = first.peer.start(legacy_call("order", _meta={IDEMPOTENCY_KEY: "key"}), shop.headers)
        await trio.sleep(3)
        first.store.hang = None
        hang.set()
        question = await asked(call)
    async with shop.process() as second:
        assert await second.finish(call, question) == "accept"
    assert shop.effects == ["charged", "shipped"]


async def test_a_keyed_call_that_was_handed_to_its_session_late_is_not_left_to_a_repeat_too(shop: Shop) -> None:
    meta = {IDEMPOTENCY_KEY: "key"}
    async with shop.process(graceful=True) as first:
        headers = await first.peer.open_session()
        first.store.lateness = late_once(puts("call"), 5.0)
        call = first.peer.start(legacy_call("order", _meta=meta), headers)
        await call.until("Sure?")
    async with shop.process() as second:
        headers = await second.peer.open_session()
        second.peer.start(legacy_call("order", _meta=meta), headers)
        await trio.sleep(60)
    assert shop.effects == ["charged"]


@METAS
async def test_a_response_goes_on_after_its_record_was_made_late(shop: Shop, meta: Json) -> None:
    async with shop.opened() as first:
        first.store.lateness = late_once(puts("call"), 0.0)
        call = await first.call("count", meta=meta)
        await trio.sleep(5)
        shop.go_on.set()
        await call.end(seconds=60)
    assert [each["params"]["progress"] for each in call.events if "params" in each] == [1, 2, 3, 4, 5]
    assert text_of(call.last) == "counted"


async def test_a_step_does_not_run_while_the_record_of_its_call_may_be_made_without_it(shop: Shop) -> None:
    async with shop.opened() as first:
        first.store.lateness = lambda changes: 1.0 if "call" in kinds_of(changes) else None
        call = await first.call("steady")
        assert (await call.end(seconds=60)).last["result"]["isError"]
    assert shop.effects == []


async def test_a_call_that_a_full_store_did_not_keep_runs_its_steps_as_without_a_store(disk: Disk, shop: Shop) -> None:
    def refuse_calls(changes: Sequence[Change]) -> None:
        if "call" in kinds_of(changes):
            raise StoreFull("the disk is full")

    async with shop.opened() as first:
        first.store.lateness = refuse_calls
        call = await first.call("steady")
        assert text_of((await call.end(seconds=60)).last) == "done"
    assert shop.effects == ["charged"]


async def test_the_record_of_an_answered_call_is_removed_when_the_store_works_again(shop: Shop) -> None:
    async with shop.opened() as first:
        call, question = await first.asked("parked")
        first.store.lateness = late_once(removes("call"), NEVER)
        await first.answer(question)
        await call.end()
        await trio.sleep(60)
        assert shop.kept == ["session"]


async def test_a_session_that_was_deleted_while_the_store_failed_is_removed_when_it_works_again(shop: Shop) -> None:
    async with shop.opened() as first:
        first.store.failing = True
        await first.delete()
        first.store.failing = False
        await trio.sleep(60)
        assert shop.disk.records == {}


async def test_an_answered_call_does_not_run_again_if_the_log_in_another_store_has_lost_its_beginning(
    disk: Disk, shop: Shop
) -> None:
    async with shop.opened(event_store=short_log(disk)) as first:
        first.store.lateness = late_once(removes("call"), NEVER)
        call = await first.call("steady")
        await call.end(seconds=60)
    async with shop.process(event_store=short_log(disk)) as second:
        assert await second.finish(call.ids[-2]) == "done"
        await trio.sleep(60)
    assert shop.effects == ["charged"]
    assert shop.kept == ["session"]


async def test_a_stream_that_has_lost_its_beginning_goes_on_with_its_numbers(disk: Disk, shop: Shop) -> None:
    async with shop.opened() as first:
        call = await first.counted()
    ((place, log),) = ((place, log) for place, log in disk.logs.items() if place[0] == "events")
    disk.dropped[place] = 2
    del log[:2]
    shop.go_on.set()
    async with shop.process() as second:
        rest = await second.resume(call).end()
    assert text_of(rest.last) == "counted"
    assert rest.ids == ["1-5.1", "1-6.1"]


async def test_a_call_whose_answer_may_be_in_what_a_log_has_lost_ends_with_an_error(disk: Disk, shop: Shop) -> None:
    async with shop.opened(event_store=short_log(disk)) as first:
        call = await first.counted()
    shop.go_on.set()
    async with shop.process(event_store=short_log(disk)) as second:
        rest = await second.resume(call).end()
    assert rest.last["result"]["isError"]


async def test_an_answer_that_came_while_the_store_hung_is_read_when_it_works_again(shop: Shop) -> None:
    async with shop.opened() as server:
        call = await server.counted()
        await trio.sleep(1)
        call.gone.set()
        server.store.failing = True
        shop.go_on.set()
        await trio.sleep(0.5)
        server.store.failing = False
        await trio.sleep(5)
        assert await server.finish(call) == "counted"
    assert shop.kept == ["session"]


async def test_a_client_gets_what_the_next_process_says_under_numbers_of_events_that_were_not_kept(shop: Shop) -> None:
    async with shop.opened() as first:
        call, question = await first.asked("two", "First?")
        first.store.lateness = lambda changes: NEVER if "events" in kinds_of(changes) else None
        await first.answer(question)
        await asked(call, "Second?")
    async with shop.process() as second:
        assert await second.finish(call, "Second?") == "accept accept"


async def report_that_is_not_kept(shop: Shop, tool: str) -> Reply:
    """Call a tool in a process that ends; its report of progress is sent, and the store never has it."""
    async with shop.opened() as first:
        call = await first.call(tool)
        await call.until("id: ")
        await trio.sleep(1)
        first.store.lateness = lambda _changes: NEVER
        shop.go_on.set()
        await call.until('"progress":1')
    return call


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_client_gets_an_answer_under_the_number_of_an_event_that_was_not_kept_also_when_its_stream_has_ended(
    shop: Shop, processes: int
) -> None:
    call = await report_that_is_not_kept(shop, "reports")
    for _ in range(processes):
        async with shop.process() as later:
            await later.ping()
            # The stream has no reader, and ends with the error that the call is lost.
            await trio.sleep(1)
            if processes == 1:
                rest = await later.resume(call).end()
    if processes == 2:
        async with shop.process() as last:
            rest = await last.resume(call).end()
    assert rest.last["result"]["isError"]


async def test_a_client_gets_a_question_under_the_number_of_an_event_that_was_not_kept_also_two_processes_later(
    shop: Shop,
) -> None:
    call = await report_that_is_not_kept(shop, "asks")
    shop.says = "question"
    async with shop.process() as second:
        await second.ping()
        await trio.sleep(1)
    async with shop.process() as third:
        rest = third.resume(call)
        question = await asked(rest)
        await third.answer(question)
        assert text_of((await rest.end()).last) == "accept"
        # A client of this process has it, and does not get it again.
        again = await third.resume(rest.ids[-2]).end()
        assert [each for each in again.events if "method" in each] == []


async def test_a_session_that_was_deleted_does_not_come_back_while_the_store_fails(disk: Disk, shop: Shop) -> None:
    async with shop.opened() as first:
        first.store.lateness = late_once(removes("session"), 2.0)
        await first.delete()
        assert (await first.ping()).status == 404
        await trio.sleep(60)
        assert disk.records == {}


async def test_two_requests_for_a_session_that_cannot_be_claimed_get_the_same_rejection(shop: Shop) -> None:
    await shop.open()
    async with shop.process() as second:
        second.store.failing = True
        requests = [second.peer.start(request("ping", number), shop.headers) for number in (3, 4)]
        assert [(await each.end()).status for each in requests] == [503, 503]


async def test_a_session_that_cannot_be_claimed_as_the_store_fails_is_rejected_with_the_name_of_the_store(
    shop: Shop,
) -> None:
    async with shop.opened():
        async with shop.process() as second:
            held = await second.ping(3)
            assert unnamed(held.json["error"]["message"], "another process") == []
    async with shop.process() as second:
        second.store.failing = True
        failed = await second.ping(3)
        second.store.failing, second.store.hang = False, trio.Event()
        slow = await second.ping(4, seconds=20)
        second.store.hang.set()
    for reply in (held, failed, slow):
        assert (reply.status, reply.json["error"]["code"]) == (503, SERVER_BUSY)
    for reply in (failed, slow):
        assert unnamed(reply.json["error"]["message"], "store") == []
        assert unnamed(reply.json["error"]["message"], "another process") == ["another process"]


async def test_an_id_that_was_made_up_ends_no_session(disk: Disk, shop: Shop) -> None:
    store = LateStore(disk)
    async with served(asgi_app(shop.server(store), limits=HttpLimits(sessions=1))) as peer:
        headers = await peer.open_session()
        made_up = {**headers, "mcp-session-id": headers["mcp-session-id"][::-1]}
        assert (await peer.start(request("ping", 9), made_up).end()).status == 404
        assert (await peer.start(request("ping", 9), headers).end()).status == 200


async def test_a_session_that_is_not_restored_is_left_to_another_process(shop: Shop) -> None:
    await shop.open()
    async with shop.process() as second, shop.process() as third:
        second.store.lateness = late_once(puts("session"), 5.0)
        assert (await second.ping(3, seconds=20)).status == 503
        await trio.sleep(20)
        assert (await third.ping(4)).status == 200


async def test_a_session_that_is_asked_for_again_before_it_is_given_back_is_not_taken_from_its_client(
    disk: Disk, shop: Shop
) -> None:
    await shop.open()
    async with shop.process() as second:
        store = second.store

        def fail(_changes: Sequence[Change]) -> None:
            store.failing = True
            raise StoreError("the disk is full")

        store.on_write = fail
        assert (await second.ping(3)).status == 503
        store.failing, store.on_write = False, lambda _changes: None
        # It waits until the session is given back.
        assert (await second.ping(4)).status == 200
        await trio.sleep(60)
        call, question = await second.asked("parked")
        await trio.sleep(60)
        await second.answer(question)
        assert text_of((await call.end()).last) == "accept"


async def test_a_slow_store_opens_sessions(shop: Shop) -> None:
    async with shop.process() as first:
        hang = first.store.hang = trio.Event()
        opened = first.peer.start(initialize({}), JSON_HEADERS)
        await trio.sleep(1)
        hang.set()
        assert (await opened.end()).status == 200


async def test_a_call_that_there_is_no_room_for_goes_on_when_there_is(shop: Shop) -> None:
    async with shop.opened() as first:
        call, question = await first.asked("parked")
    async with shop.process() as full:
        (service,) = shop.newest.services
        service.supervisor.refuse_new()
        assert (await full.resume(call).end()).status == 503
    async with shop.process() as third:
        assert "restarted" in await third.finish(call, question)


@LOGS
async def test_a_client_hears_that_a_call_is_lost_which_the_store_did_not_keep(shop: Shop, own_log: bool) -> None:
    async with shop.opened(own_log=own_log) as first:
        first.store.lateness = lambda _changes: NEVER
        call = await first.counted()
    async with shop.process(own_log=own_log) as second:
        rest = await second.resume(call).end()
    assert rest.status == 400


async def test_a_stream_that_was_answered_ends_empty_for_a_client_that_has_all_of_it(shop: Shop) -> None:
    async with shop.opened() as first:
        call = await (await first.call("steady")).end(seconds=60)
    async with shop.process() as second:
        rest = await second.resume(call).end()
    assert (rest.status, rest.events) == (200, [])


def short_log(disk: Disk) -> StoredEvents:
    """Return a separate event log on the disk, which keeps three events of a stream."""
    return StoredEvents(CrashingStore(disk), stream_events=3)


async def test_without_a_durable_store_a_session_is_unknown_after_a_restart(shop: Shop) -> None:
    async with served(asgi_app(shop.server(None), limits=LIMITS)) as peer:
        headers = await peer.open_session()
    async with served(asgi_app(shop.server(None), limits=LIMITS)) as peer:
        assert (await peer.post(legacy_call("two"), headers)).status == 404
