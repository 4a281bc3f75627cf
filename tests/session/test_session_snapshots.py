"""What a session has agreed on with its client goes on in another process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from peer import Json
from talk import Talk, talk_to
from task_talk import LegacyTask

from trio_mcp import Context, Server
from trio_mcp.session import make_session
from trio_mcp.session.recovery.session_record import SessionSnapshot, StoredSession, decoded_record, encoded_record

URI = "note://one"


def notes() -> Server:
    server = Server("notes", version="1")

    @server.resource(URI)
    def note() -> str:
        return "text"

    @server.tool(task=True)
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", bool)).action

    @server.tool
    async def log(ctx: Context) -> str:
        await ctx.info("hello")
        return "logged"

    return server


@asynccontextmanager
async def continued(server: Server, snapshot: SessionSnapshot) -> AsyncIterator[Talk]:
    """The session in the next process, through what a store keeps."""
    stored = StoredSession(principal=None, node="first", epoch=0, standalone=0, snapshot=snapshot)
    read = decoded_record(StoredSession, encoded_record(stored)).snapshot
    assert read == snapshot
    async with talk_to(server) as talk:
        talk.session = make_session(talk.service, snapshot=read)
        talk.session.attach(talk.outbox)
        yield talk


async def snapshot_of(server: Server, *requests: tuple[str, Json], capabilities: Json | None = None) -> SessionSnapshot:
    """What a session leaves that has sent these requests."""
    async with talk_to(server) as talk:
        await talk.initialize(capabilities=capabilities or {"elicitation": {"form": {}}})
        for method, params in requests:
            await talk.result(talk.request(method, params))
        return talk.session.snapshot()


async def test_the_revision_and_what_the_client_declared() -> None:
    server = notes()
    snapshot = await snapshot_of(server)
    async with continued(server, snapshot) as talk:
        question_of = talk.call("ask")
        question = await talk.question()
        talk.answer(question, {"action": "decline"})
        assert await talk.text(question_of) == "decline"
        # Without a handshake, and not with a second one.
        assert talk.session.snapshot() == snapshot
    async with continued(server, await snapshot_of(server, capabilities={"roots": {}})) as talk:
        assert "elicitation" in await talk.failure(talk.call("ask"))


async def test_the_log_level() -> None:
    server = notes()
    async with continued(server, await snapshot_of(server, ("logging/setLevel", {"level": "error"}))) as talk:
        assert await talk.text(talk.call("log")) == "logged"
    async with continued(server, await snapshot_of(server, ("logging/setLevel", {"level": "info"}))) as talk:
        logging = talk.call("log")
        await talk.notification("notifications/message")
        assert await talk.text(logging) == "logged"


async def test_that_it_is_initialized_and_what_it_has_subscribed_to() -> None:
    server = notes()
    async with continued(server, await snapshot_of(server, ("resources/subscribe", {"uri": URI}))) as talk:
        server.resource_updated(URI)
        assert await talk.notification("notifications/resources/updated") == {"uri": URI}
        server.tool(name="more")(lambda: "more")
        await talk.notification("notifications/tools/list_changed")


async def test_the_numbers_of_its_requests_go_on_where_no_earlier_one_was() -> None:
    server = notes()
    snapshot = (await snapshot_of(server)).model_copy(update={"next_request_id": 1_000_001})
    async with continued(server, snapshot) as talk:
        talk.call("ask")
        assert (await talk.question())["id"] == 1_000_001


async def test_the_tasks_that_only_the_session_may_ask_for() -> None:
    server = notes()
    async with talk_to(server) as talk:
        task = LegacyTask(talk)
        await task.open()
        await task.start("ask")
        snapshot = talk.session.snapshot()
        again, stranger = Talk(talk.service), LegacyTask(Talk(talk.service))
        with again.outbox, stranger.talk.outbox:
            again.session = make_session(talk.service, snapshot=snapshot)
            mine = LegacyTask(again)
            await stranger.open()
            mine.id = stranger.id = task.id
            assert await mine.status() == "input_required"
            assert (await stranger.reply(stranger.about("tasks/get")))["error"]["code"] == -32602


async def test_what_is_counted_as_a_change() -> None:
    """A store writes a session again when it has changed, and not otherwise."""
    async with talk_to(notes()) as talk:
        seen = [talk.session.changes]

        async def changes(method: str, params: Json) -> bool:
            await talk.result(talk.request(method, params))
            seen.append(talk.session.changes)
            return seen[-1] > seen[-2]

        await talk.initialize()
        assert talk.session.changes > seen[0]
        assert await changes("logging/setLevel", {"level": "error"})
        assert await changes("resources/subscribe", {"uri": URI})
        assert await changes("resources/unsubscribe", {"uri": URI})
        assert not await changes("tools/list", {})


@pytest.mark.parametrize("value", [b"", b"{}", b'{"principal":1}', b"\xff"])
def test_what_another_version_wrote_is_an_error_without_its_contents(value: bytes) -> None:
    with pytest.raises(ValueError, match="StoredSession"):
        decoded_record(StoredSession, value)
