"""Calls as tasks: the rules that both eras share, and the life of a task."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from naming import naming
from peer import EVERYTHING
from talk import Talk, talk_to
from task_talk import DECLARES, TASK_ERAS, LegacyTask, ModernTask
from trio.testing import wait_all_tasks_blocked
from wire_terms import SERVER_BUSY

from trio_mcp import Context, Server, TaskOptions, ToolError
from trio_mcp.errors import ProtocolError
from trio_mcp.session import Limits, MemoryBudget, ServiceOptions

UNKNOWN = -32602


class Work:
    """Tools that run as tasks, and what they did."""

    def __init__(self) -> None:
        self.runs = 0
        self.cleaned = 0
        self.go_on = trio.Event()

    async def quick(self, text: str = "done") -> str:
        self.runs += 1
        return text

    async def ask(self, ctx: Context) -> str:
        self.runs += 1
        answer = await ctx.elicit("Sure?", bool)
        return f"{answer.action} {answer.content if answer.action == 'accept' else ''}"

    async def ask_both(self, ctx: Context) -> str:
        async def one(branch: Context) -> str:
            return (await branch.elicit("one?", bool)).action

        async def two(branch: Context) -> str:
            return (await branch.elicit("two?", bool)).action

        return " ".join(await ctx.branch_all(one, two))

    async def wait(self, ctx: Context) -> str:
        self.runs += 1
        await ctx.status("waiting")
        try:
            await self.go_on.wait()
        finally:
            self.cleaned += 1
        return "waited"

    async def fail(self) -> str:
        raise ToolError("no luck")

    async def crash(self) -> str:
        raise RuntimeError("secret")

    async def refuse(self) -> str:
        raise ProtocolError("not here", code=-32042, data={"why": "test"})

    async def unsendable(self) -> float:
        return float("nan")


def serving(work: Work, **options: Any) -> Server:
    server = Server("tester", version="1", options=ServiceOptions(**options))
    for tool in (work.quick, work.ask, work.ask_both, work.wait, work.fail, work.crash, work.refuse, work.unsendable):
        server.tool(task=True)(tool)
    server.tool(name="never")(work.quick)
    server.tool(name="always", task="required")(work.quick)
    return server


@asynccontextmanager
async def task_in(
    era: type[LegacyTask], work: Work, *, principal: str | None = None, **options: Any
) -> AsyncIterator[LegacyTask]:
    async with talk_to(serving(work, **options), principal=principal) as talk:
        task = era(talk)
        await task.open()
        yield task


async def test_a_call_as_a_task_is_answered_at_once_and_its_result_is_fetched(task_era: type[LegacyTask]) -> None:
    work = Work()
    async with task_in(task_era, work) as task:
        assert (await task.start("wait"))["status"] == "working"
        assert await task.status() == "working"
        assert (await task.get())["statusMessage"] == "waiting"
        work.go_on.set()
        await wait_all_tasks_blocked()
        assert await task.status() == "completed"
        assert (await task.result())["content"][0]["text"] == "waited"
        assert work.runs == 1


async def test_a_task_that_asks_shows_it_and_goes_on_with_the_answer(task_era: type[LegacyTask]) -> None:
    async with task_in(task_era, Work()) as task:
        await task.start("ask")
        assert await task.status() == "input_required"
        await task.answer(True)
        assert await task.status() == "completed"
        assert (await task.result())["content"][0]["text"] == "accept True"


async def test_cancelling_ends_the_work_and_stays(task_era: type[LegacyTask]) -> None:
    work = Work()
    async with task_in(task_era, work) as task:
        await task.start("wait")
        await wait_all_tasks_blocked()
        assert "result" in await task.reply(task.about("tasks/cancel"))
        assert await task.status() == "cancelled"
        assert work.cleaned == 1


@pytest.mark.parametrize(
    ("maker", "principal", "is_seen"),
    [(LegacyTask, "alice", True), (ModernTask, "alice", True), (LegacyTask, None, False), (ModernTask, None, True)],
    ids=["its principal", "its principal, modern", "nobody else without authentication", "whoever has its id, modern"],
)
async def test_a_task_is_seen_in_another_session_by(
    maker: type[LegacyTask], principal: str | None, is_seen: bool
) -> None:
    async with task_in(maker, Work(), principal=principal) as task:
        await task.start("wait")
        for kind in TASK_ERAS:
            other = kind(Talk(task.talk.service, principal=principal))
            other.id = task.id
            with other.talk.outbox:
                await other.open()
                reply = await other.reply(other.about("tasks/get"))
                seen = "working" if is_seen else UNKNOWN
                assert seen in (reply.get("result", {}).get("status"), reply.get("error", {}).get("code"))


async def test_the_end_of_a_session_removes_the_tasks_that_only_it_could_ask_for() -> None:
    work = Work()
    async with task_in(LegacyTask, work) as task:
        await task.start("wait")
        await wait_all_tasks_blocked()
        task.talk.session.close("disconnect")  # type: ignore[arg-type]
        await wait_all_tasks_blocked()
        assert work.cleaned == 1


@pytest.mark.parametrize(("wanted", "granted"), [(0, 1_000), (5_000, 5_000), (10**9, 120_000), (None, 60_000)])
async def test_the_ttl_that_a_caller_wants_has_bounds(wanted: int | None, granted: int) -> None:
    async with task_in(LegacyTask, Work(), tasks=TaskOptions(ttl=60, max_ttl=120)) as task:
        assert (await task.start("wait", ttl=wanted))["ttl"] == granted


@pytest.mark.parametrize("times", [{"ttl": 6000, "max_ttl": 3600}, {"max_ttl": 60}, {"ttl": 1_000_000}], ids=str)
def test_a_task_lives_no_longer_than_a_caller_may_ask_for(times: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=naming("ttl", "max_ttl")):
        TaskOptions(**times)


async def test_open_tasks_are_limited_for_each_owner(task_era: type[LegacyTask]) -> None:
    options = TaskOptions(open_per_owner=2)
    work = Work()
    async with task_in(task_era, work, principal="alice", tasks=options) as task:
        for _ in range(2):
            await task.start("wait")
        assert "open_per_owner" in (await task.reply(task.create("wait")))["error"]["message"]
        await wait_all_tasks_blocked()
        assert work.runs == len(task.talk.service.tasks) == 2


async def test_a_task_that_is_over_counts_no_longer(task_era: type[LegacyTask]) -> None:
    async with task_in(task_era, Work(), principal="alice", tasks=TaskOptions(open=3, open_per_owner=1)) as task:
        for _ in range(5):
            await task.start("quick")
            await wait_all_tasks_blocked()
        await task.start("wait")
        assert "open_per_owner" in (await task.reply(task.create("wait")))["error"]["message"]


@pytest.mark.parametrize(
    ("tool", "shown"), [("fail", "no luck"), ("crash", "internal error"), ("unsendable", "JSON cannot hold")]
)
async def test_a_failed_tool_says_why_in_its_result(task_era: type[LegacyTask], tool: str, shown: str) -> None:
    async with task_in(task_era, Work()) as task:
        await task.start(tool)
        assert await task.status() == ("failed" if task_era is LegacyTask else "completed")
        result = await task.result()
        assert result["isError"]
        assert shown in result["content"][0]["text"]
        assert "secret" not in str(result)


async def test_the_message_of_a_failed_task_is_the_reason_and_of_any_other_what_its_work_said(
    task_era: type[LegacyTask],
) -> None:
    class Hopeless(Work):
        async def fail(self, ctx: Context) -> str:
            await ctx.status("working hard")
            raise ToolError("no luck " * 1000)

        async def refuse(self, ctx: Context) -> str:
            await ctx.status("working hard")
            raise ProtocolError("no line", code=-32603)

    async with task_in(task_era, Hopeless()) as task:
        await task.start("fail")
        await wait_all_tasks_blocked()
        message = (await task.get())["statusMessage"]
        # The result of a tool is no failure of the task in the extension.
        assert message == "working hard" if task_era is ModernTask else message.startswith("no luck no luck")
        assert len(message) <= 1000
        await task.start("refuse")
        await wait_all_tasks_blocked()
        shown = await task.get()
        assert (shown["status"], shown["statusMessage"]) == ("failed", "no line")


async def test_wrong_arguments_end_the_task_with_the_reason() -> None:
    async with task_in(LegacyTask, Work()) as task:
        await task.start("quick", {"text": 5})
        assert (await task.result())["isError"]


async def test_a_tool_that_is_no_task_is_called_as_ever(task_era: type[LegacyTask]) -> None:
    async with task_in(task_era, Work()) as task:
        reply = await task.reply(task.create("never"))
        if task_era is LegacyTask:
            assert reply["error"]["code"] == -32601
        else:
            assert reply["result"]["content"][0]["text"] == "done"


async def test_a_tool_that_is_only_a_task_is_refused_otherwise() -> None:
    async with talk_to(serving(Work())) as talk:
        modern = await talk.error(talk.leg("always"))
        assert modern["code"] == -32021
        assert "io.modelcontextprotocol/tasks" in modern["data"]["requiredCapabilities"]["extensions"]
        await talk.initialize()
        assert (await talk.error(talk.call("always")))["code"] == -32601


async def test_no_client_gets_a_task_that_did_not_ask_for_one(task_era: type[LegacyTask]) -> None:
    async with talk_to(serving(Work())) as talk:
        if task_era is LegacyTask:
            await talk.initialize()
            assert await talk.text(talk.call("quick")) == "done"
        else:
            assert await talk.text(talk.leg("quick")) == "done"


async def test_a_server_without_such_tools_declares_no_tasks_and_ignores_that_one_is_wanted() -> None:
    server = Server("tester", version="1")
    server.tool(Work().quick)
    async with talk_to(server) as talk:
        assert "tasks" not in (await talk.initialize())["capabilities"]
        params = {"name": "quick", "arguments": {}, "task": {}}
        assert await talk.text(talk.request("tools/call", params)) == "done"
        assert (await talk.error(talk.request("tasks/get", {"taskId": "x"})))["code"] == -32601
        assert "extensions" not in (await talk.result(talk.ask("server/discover")))["capabilities"]
        assert await talk.text(talk.leg("quick", capabilities=DECLARES)) == "done"
        assert (await talk.error(talk.ask("tasks/get", DECLARES, taskId="x")))["code"] == -32601


async def test_what_is_declared_is_an_object_that_exists() -> None:
    async with talk_to(serving(Work())) as talk:
        assert (await talk.initialize())["capabilities"]["tasks"]["requests"]["tools"]["call"] == {}
        tools = (await talk.result(talk.request("tools/list")))["tools"]
        support = {tool["name"]: tool.get("execution", {}).get("taskSupport") for tool in tools}
        assert (support["quick"], support["never"], support["always"]) == ("optional", None, "required")


async def test_a_modern_server_declares_the_extension_and_lists_no_execution() -> None:
    async with talk_to(serving(Work())) as talk:
        found = await talk.result(talk.ask("server/discover"))
        assert found["capabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}
        assert "tasks" not in found["capabilities"]
        tools = (await talk.result(talk.ask("tools/list")))["tools"]
        assert not any("execution" in tool for tool in tools)


# 2025-11-25


async def test_the_questions_of_a_task_go_out_on_the_stream_of_its_result_one_at_a_time() -> None:
    async with task_in(LegacyTask, Work()) as task:
        await task.start("ask_both")
        # Trio starts branches in any order: both have asked before somebody takes their questions.
        await wait_all_tasks_blocked()
        result = task.about("tasks/result")
        for text in ("one?", "two?"):
            await wait_all_tasks_blocked()
            (question,) = [each for each in task.talk.waiting() if each.get("method") == "elicitation/create"]
            assert question["params"]["message"] == text
            assert question["params"]["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task.id}
            task.talk.answer(question, {"action": "decline"})
        reply = await task.reply(result)
        assert reply["result"]["content"][0]["text"] == "decline decline"
        assert reply["result"]["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task.id}


async def test_who_waits_for_a_result_and_goes_takes_its_question_back_and_the_next_one_is_asked() -> None:
    async with task_in(LegacyTask, Work()) as task:
        await task.start("ask")
        first = task.about("tasks/result")
        await wait_all_tasks_blocked()
        task.talk.cancel(first)
        await wait_all_tasks_blocked()
        assert "notifications/cancelled" in [each.get("method") for each in task.talk.waiting()]
        await task.answer(True)
        assert (await task.result())["content"][0]["text"] == "accept True"


async def test_of_two_that_wait_for_a_result_one_asks() -> None:
    async with task_in(LegacyTask, Work()) as task:
        await task.start("ask")
        task.about("tasks/result")
        task.about("tasks/result")
        await wait_all_tasks_blocked()
        assert [each.get("method") for each in task.talk.waiting()].count("elicitation/create") == 1


async def test_the_session_that_created_a_task_hears_how_it_goes() -> None:
    async with task_in(LegacyTask, Work()) as task:
        await task.start("ask")
        await wait_all_tasks_blocked()
        (news,) = task.talk.waiting()
        assert news["method"] == "notifications/tasks/status"
        assert news["params"]["status"] == "input_required"
        assert "_meta" not in news["params"]


async def test_a_finished_task_is_not_cancelled_which_is_an_error_in_2025_11_25(task_era: type[LegacyTask]) -> None:
    async with task_in(task_era, Work()) as task:
        await task.start("quick")
        await wait_all_tasks_blocked()
        reply = await task.reply(task.about("tasks/cancel"))
        assert reply.get("error", {}).get("code") == (UNKNOWN if task_era is LegacyTask else None)
        assert await task.status() == "completed"


async def test_the_result_of_a_cancelled_task_is_an_error() -> None:
    async with task_in(LegacyTask, Work()) as task:
        await task.start("wait")
        waiting = task.about("tasks/result")
        await wait_all_tasks_blocked()
        cancelled = task.about("tasks/cancel")
        await wait_all_tasks_blocked()
        replies = {each["id"]: each for each in task.talk.waiting() if "id" in each}
        assert replies[cancelled]["result"]["status"] == "cancelled"
        assert replies[waiting]["error"]["code"] == -32603


async def test_tasks_are_listed_page_by_page_for_their_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp.session.tasks.requests.PAGE", 2)
    async with task_in(LegacyTask, Work()) as task:
        ids = [(await task.start("wait"))["taskId"] for _ in range(5)]
        stranger = LegacyTask(Talk(task.talk.service))
        with stranger.talk.outbox:
            await stranger.open()
            assert (await stranger.reply(stranger.request("tasks/list")))["result"] == {"tasks": []}
        seen: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = (await task.reply(task.request("tasks/list", **cursor)))["result"]
            seen += [each["taskId"] for each in page["tasks"]]
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
        assert sorted(seen) == sorted(ids)
        assert (await task.reply(task.request("tasks/list", cursor="x")))["error"]["code"] == UNKNOWN


async def test_progress_goes_on_after_the_task_was_created() -> None:
    class Reporting(Work):
        async def wait(self, ctx: Context) -> str:
            await self.go_on.wait()
            await ctx.progress(1, 2, "half")
            return "done"

    work = Reporting()
    async with task_in(LegacyTask, work) as task:
        params = {"name": "wait", "arguments": {}, "task": {}, "_meta": {"progressToken": "p"}}
        task.id = (await task.reply(task.talk.request("tools/call", params)))["result"]["task"]["taskId"]
        work.go_on.set()
        await wait_all_tasks_blocked()
        (progress,) = [each for each in task.talk.waiting() if each.get("method") == "notifications/progress"]
        assert progress["params"]["progressToken"] == "p"
        assert progress["params"]["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task.id}


# the extension


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_a_client_that_does_not_declare_the_extension_is_refused(method: str) -> None:
    async with task_in(ModernTask, Work()) as task:
        await task.start("wait")
        more = {"inputResponses": {}} if method == "tasks/update" else {}
        error = await task.talk.error(task.talk.ask(method, EVERYTHING, taskId=task.id, **more))
        assert error["code"] == -32021


async def test_the_methods_of_the_other_face_do_not_exist() -> None:
    async with task_in(ModernTask, Work()) as task:
        await task.start("quick")
        assert (await task.reply(task.about("tasks/result")))["error"]["code"] == -32601
        assert (await task.reply(task.request("tasks/list")))["error"]["code"] == -32601


async def test_all_open_questions_are_shown_and_may_be_answered_one_by_one() -> None:
    async with task_in(ModernTask, Work()) as task:
        await task.start("ask_both")
        await wait_all_tasks_blocked()
        asked = (await task.get())["inputRequests"]
        assert [each["params"]["message"] for each in asked.values()] == ["one?", "two?"]
        first, second = asked
        for key in (first, first, "unknown"):
            answers = {key: {"action": "decline"}}
            await task.reply(task.update(answers))
        await wait_all_tasks_blocked()
        assert list((await task.get())["inputRequests"]) == [second]
        answers = {first: {"action": "cancel"}, second: {"action": "cancel"}}
        await task.reply(task.update(answers))
        assert (await task.result())["content"][0]["text"] == "decline cancel"


async def test_a_malformed_answer_is_refused_and_none_is_taken() -> None:
    async with task_in(ModernTask, Work()) as task:
        await task.start("ask_both")
        await wait_all_tasks_blocked()
        first, second = (await task.get())["inputRequests"]
        answers = {first: {"action": "decline"}, second: {"action": "perhaps"}}
        reply = await task.reply(task.update(answers))
        assert reply["error"]["code"] == UNKNOWN
        assert second in reply["error"]["message"]
        assert list((await task.get())["inputRequests"]) == [first, second]


async def test_a_listener_hears_each_state_of_its_tasks_and_of_no_other() -> None:
    async with task_in(ModernTask, Work(), principal="alice") as task:
        other = ModernTask(Talk(task.talk.service, principal="bob"))
        with other.talk.outbox:
            await other.start("wait")
        await task.start("ask")
        await wait_all_tasks_blocked()
        listen = task.request("subscriptions/listen", notifications={"taskIds": [task.id, other.id, "x"]})
        await wait_all_tasks_blocked()
        acknowledged, news = task.talk.waiting()
        assert acknowledged["params"]["notifications"] == {"taskIds": [task.id]}
        assert news["params"]["status"] == "input_required"
        assert news["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == listen
        await task.answer(True)
        statuses = [each["params"]["status"] for each in task.talk.waiting() if each["method"] == "notifications/tasks"]
        assert statuses[-1:] == ["completed"]


async def test_a_listener_that_does_not_declare_the_extension_is_refused() -> None:
    async with task_in(ModernTask, Work()) as task:
        await task.start("wait")
        params = {"notifications": {"taskIds": [task.id]}}
        assert (await task.talk.error(task.talk.ask("subscriptions/listen", EVERYTHING, **params)))["code"] == -32021


async def test_a_filter_names_no_more_tasks_than_a_subscriber_may_have() -> None:
    async with task_in(ModernTask, Work(), watched=2) as task:
        params = {"notifications": {"taskIds": ["a", "b", "c"]}}
        assert (await task.reply(task.request("subscriptions/listen", **params)))["error"]["code"] == UNKNOWN


async def test_no_progress_and_no_log_reaches_the_client_of_a_modern_task() -> None:
    class Reporting(Work):
        async def wait(self, ctx: Context) -> str:
            await ctx.progress(1)
            await ctx.error("oh")
            return "done"

    async with task_in(ModernTask, Reporting()) as task:
        meta = {"progressToken": 1, "io.modelcontextprotocol/logLevel": "debug"}
        task.id = (await task.talk.result(task.talk.leg("wait", meta=meta, capabilities=DECLARES)))["taskId"]
        await wait_all_tasks_blocked()
        assert task.talk.waiting() == []
        assert await task.status() == "completed"


# time, limits and owners


async def test_clean_up_that_takes_longer_than_the_ttl_keeps_no_task(task_era: type[LegacyTask]) -> None:
    class Slow(Work):
        async def wait(self, ctx: Context) -> str:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(3)
                self.cleaned += 1

    work = Slow()
    async with task_in(task_era, work, tasks=TaskOptions(ttl=60)) as task:
        await task.start("wait")
        await trio.sleep(59)
        assert (await task.get())["status"] == "working"
        await trio.sleep(2)
        assert work.cleaned == 0
        assert (await task.reply(task.about("tasks/get")))["error"]["code"] == UNKNOWN
        await trio.sleep(3)
        assert work.cleaned == 1
        assert len(task.talk.service.tasks) == 0


async def test_the_end_of_the_ttl_ends_a_task_that_waits_for_its_user(task_era: type[LegacyTask]) -> None:
    async with task_in(task_era, Work(), tasks=TaskOptions(ttl=60)) as task:
        await task.start("ask")
        await trio.sleep(59)
        assert (await task.get())["status"] == "input_required"
        assert task.talk.service.statistics().actors.parked == 1
        await trio.sleep(2)
        assert (await task.reply(task.about("tasks/get")))["error"]["code"] == UNKNOWN
        assert task.talk.service.statistics().actors.parked == 0


async def test_answers_draw_from_the_memory_budget(task_era: type[LegacyTask]) -> None:
    class Twice(Work):
        async def ask(self, ctx: Context) -> str:
            first = await ctx.elicit("Name?", str)
            second = await ctx.elicit("Sure?", bool)
            return f"{first.action} {second.action}"

    memory = MemoryBudget(10_000_000)
    async with task_in(task_era, Twice(), memory=memory) as task:
        await task.start("ask")
        before = memory.drawn
        await task.answer("x" * 100_000)
        assert await task.status() == "input_required"
        assert memory.drawn - before >= 100_000


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"])
async def test_every_request_about_an_unknown_foreign_or_expired_task_gets_one_answer(method: str) -> None:
    era = LegacyTask if method == "tasks/result" else ModernTask
    more = {"inputResponses": {}} if method == "tasks/update" else {}
    async with task_in(era, Work(), principal="alice", tasks=TaskOptions(ttl=60)) as task:
        other = era(Talk(task.talk.service, principal="bob"))
        with other.talk.outbox:
            await other.open()
            expired = (await task.start("wait"))["taskId"]
            await trio.sleep(61)
            foreign = (await other.start("wait"))["taskId"]
            errors = [
                (await task.reply(task.request(method, taskId=wrong, **more)))["error"]
                for wrong in (
                    "unknown",
                    "",
                    foreign[:-1] + ("A" if foreign[-1] != "A" else "B"),
                    foreign * 1000,
                    foreign,
                    expired,
                )
            ]
            assert await other.status() == "working"
    assert errors[0]["code"] == UNKNOWN
    assert errors == errors[:1] * 6


async def test_the_error_of_tasks_result_is_the_one_of_the_call_with_nothing_added() -> None:
    # An error has no `_meta` that could name the task, and `data` is the sender's.
    async with task_in(LegacyTask, Work()) as task:
        plain = (await task.reply(task.request("tools/call", name="refuse", arguments={})))["error"]
        await task.start("refuse")
        assert (
            (await task.outcome())["error"] == plain == {"code": -32042, "message": "not here", "data": {"why": "test"}}
        )


async def test_the_cancel_of_a_request_that_became_a_task_leaves_the_task(task_era: type[LegacyTask]) -> None:
    async with task_in(task_era, Work()) as task:
        request_id = task.create("wait")
        task.id = task.created(await task.reply(request_id))["taskId"]
        task.talk.cancel(request_id)
        assert await task.status() == "working"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"tasks": TaskOptions(waiting_per_owner=3)}, "waiting_per_owner"),
        ({"tasks": TaskOptions(waiting=3)}, "waiting"),
        ({"actors": Limits(actors=6)}, "actors"),
    ],
)
async def test_waiting_for_results_holds_up_nothing_else_and_has_its_own_limit(options: Any, named: str) -> None:
    async with task_in(LegacyTask, Work(), **options) as task:
        await task.start("wait")
        waits = [task.about("tasks/result") for _ in range(3)]
        await wait_all_tasks_blocked()
        refused = (await task.reply(task.about("tasks/result")))["error"]
        assert refused["code"] == SERVER_BUSY
        assert named in refused["message"]
        called = await task.reply(task.request("tools/call", name="never", arguments={}))
        assert called["result"]["content"][0]["text"] == "done"
        cancelled = task.about("tasks/cancel")
        await wait_all_tasks_blocked()
        answers = {each["id"]: each for each in task.talk.waiting() if "id" in each}
        assert answers.keys() == {*waits, cancelled}
        assert answers[cancelled]["result"]["status"] == "cancelled"
        # Nothing is left of the count.
        assert "error" in await task.reply(task.about("tasks/result"))
        await task.start("wait")
        task.about("tasks/result")
        await wait_all_tasks_blocked()
        assert not [each for each in task.talk.waiting() if "error" in each]
