"""`MockClient`: calls tools in this process, and answers their questions from a script.

    client = MockClient(elicits=[{"flight": "TP1", "seat": "aisle"}], samples=["A short hop."])
    assert "Booked TP1" in (await client.call(book_flight, destination="Lisbon")).text

The tool runs in a real server and is called by a real client over a connection in memory; only the user and the model are
replaced by the script.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Never, Self, TypeAlias, TypeVar, Unpack, cast, overload

import trio
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict

from ...base.checks import check_choice, check_instance, check_names, mistake
from ...base.groups import unwrap
from ...base.unawaited import unawaited
from ...client import Client, ClientOptions
from ...client.handlers import as_root
from ...client.target import open_target
from ...http.authenticator import Authenticator
from ...protocol.revisions import REVISIONS, TASKS_EXTENSION, Era
from ...scripts import Script
from ...server import AnyElicit, Context, Server
from ...session import Caller
from ...session.calls.failures import context_hint
from ...session.envelope import caller_of
from ...session.event_loop import works_on_asyncio
from ...types import (
    CallToolResult,
    ClientCapabilities,
    CreateMessageRequestParams,
    ElicitationCapability,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    Implementation,
    JsonValue,
    LoggingMessageNotificationParams,
    ProgressNotificationParams,
    Root,
    RootsCapability,
    SamplingCapability,
)
from .actions import may_be_second_worker
from .connections import Connection, Connections
from .handlers import Attempt, ScriptedHandlers
from .held_call import HeldCall
from .questions import Kind, Question
from .target import Target, find_tool
from .workers import Workers

S = TypeVar("S")

ElicitScript: TypeAlias = Sequence[object] | Callable[[ElicitRequestFormParams], object]
"""Answers to forms, in order, or a function that answers every form."""
UrlScript: TypeAlias = Sequence[object] | Callable[[ElicitRequestURLParams], object]
"""Answers to pages that the user is to open, in order, or a function that answers each."""
SampleScript: TypeAlias = Sequence[object] | Callable[[CreateMessageRequestParams], object]
"""Answers of the model, in order, or a function that answers every sampling request."""

ALL_CAPABILITIES = ClientCapabilities(
    elicitation=ElicitationCapability(form={}, url={}),
    sampling=SamplingCapability(tools={}, context={}),
    roots=RootsCapability(list_changed=True),
    extensions={TASKS_EXTENSION: {}},
)
NO_SERVER = (
    "MockClient takes no server, and its scripts by keyword: write client = MockClient(elicits=[...]), and "
    '`await client.call(tool, name=value)` with the function of a tool or (server, "its name")'
)
ERAS = ("modern", "legacy", *REVISIONS)
INFO = Implementation(name="trio_mcp.testing", version="1")


class ScriptKeywords(TypedDict, total=False, closed=True):
    """The keyword arguments of `MockClient`, which describes each."""

    elicits: ElicitScript | None
    urls: UrlScript | None
    samples: SampleScript | None
    roots: Sequence[Root | Path] | None
    era: str
    capabilities: ClientCapabilities | None
    principal: str | None
    caller: Caller | None


class MockClient:
    """A client whose user and model follow a script.

    An answer in a script is one of these:

    - a value, with which the form is accepted: a dict, a model, or the value of the only field. It must fit the form.
    - `accept(...)`, `decline()`, `dismiss()` or another `ElicitResult`, sent as it is, also if it does not fit the form;
    - for a sample, a string, a block such as `tool_use("search", query="fado")` or a list of them, a dict or a model with the
      data of a structured answer, or a `CreateMessageResult`;
    - a function, plain or async, that takes the question's params and returns any of these; what it raises fails the test;
    - an exception, with which the client fails: a legacy tool gets it as an error response (`PeerError` with its code), and in
      the modern era, which has no such response, `call` raises it;
    - `Delay`, `Never`, `Disconnect` or `SecondWorker`.

    A `call` that asks more than the script answers, or less, raises `AssertionError`. To use one script for several calls, make
    them in a `with` block: then the script must be used up at its end. In an `async with` block the calls of a server share one
    connection as well, and the server enters its lifespan once.

    Args:
        elicits, urls, samples: the scripts for forms, for pages to open, and for sampling requests.
        roots: the folders of the client.
        era: "modern", "legacy" or a revision such as "2025-06-18". The same script works in all.
        capabilities: what the client declares; by default everything that a script can answer.
        principal: the identity of the client, as the server sees it.
        caller: the same with its scopes and claims: `Caller("alice", scopes=["notes:read"])`. A `ProtectedResource` of the server
            adds the scopes that they imply, and refuses a caller without those that it requires.

    Attributes:
        questions: what the tools asked, in order.
        progress: the progress that they reported, without heartbeats.
        logs: the log messages that they sent, of all levels.
        result: the last result; None before the first.

    Raises:
        TypeError, ValueError: an argument is invalid.
        CredentialsRejected: from each call, if the caller lacks a scope that every request to the server needs.
    """

    def __init__(self, *positional: Never, **options: Unpack[ScriptKeywords]) -> None:
        check_names(options, ScriptKeywords.__optional_keys__, "MockClient()")
        if positional:
            raise TypeError(NO_SERVER)
        self._era = check_choice("era", options.get("era", "modern"), ERAS)
        capabilities, principal, caller = options.get("capabilities"), options.get("principal"), options.get("caller")
        if capabilities is not None:
            check_instance("capabilities", capabilities, ClientCapabilities, "ClientCapabilities(...)")
        if principal is not None:
            check_instance("principal", principal, str, "a string")
        if caller is not None:
            check_instance("caller", caller, Caller, 'Caller("alice", scopes=["notes:read"])')
            if principal is not None:
                raise TypeError("caller= has the principal: leave principal= out")
        self._scripts: Mapping[Kind, Script] = {
            "elicit": Script("elicits", options.get("elicits"), actions=True),
            "url": Script("urls", options.get("urls"), actions=True),
            "sample": Script("samples", options.get("samples"), actions=True),
        }
        roots = options.get("roots")
        self._roots = None if roots is None else [as_root(root) for root in roots]
        self._capabilities = ALL_CAPABILITIES if capabilities is None else capabilities
        self._given = caller
        self._caller = caller_of(principal, caller)
        self._in_block = False
        self._connections: Connections | None = None
        self.questions: list[Question] = []
        self.progress: list[ProgressNotificationParams] = []
        self.logs: list[LoggingMessageNotificationParams] = []
        self.result: CallToolResult | None = None

    @unawaited("client.call")
    @works_on_asyncio
    async def call(self, target: Target, /, *positional: Never, **arguments: object) -> CallToolResult:
        """Call a tool and return its result.

        Args:
            target: a function, registered as a tool or not; a `Tool`; or a server and the name of its tool: `(server, "add")`. A
                function that was registered is called as the tool of its server, with the options that it has there.
            arguments: its arguments; models and dataclasses are sent as JSON.

        Raises:
            AssertionError: the script does not fit what the tool asked; the message names both.
            Disconnected: the script lost the connection. The tool has cleaned up then.
            TypeError: the target is none of these, or an argument cannot be sent.

        And the errors of `Client.call_tool`. A cancel cancels the tool.
        """
        if positional:
            raise TypeError(f"arguments of a tool go by keyword: call(tool, name=value), not {positional[0]!r:.80}")
        server, name = find_tool(target)
        sent = {key: to_json(key, value) for key, value in arguments.items()}
        if self._connections is not None:
            connection = await self._connections.to(server)
            result = await self._call_over(connection, name, sent)
        else:
            async with self._connection(server) as connection:
                result = await self._call_over(connection, name, sent)
        if connection.attempt.failure is not None:
            raise connection.attempt.failure
        assert result is not None, "only a failure cancels the call"
        self.result = result
        if not self._in_block:
            self.check_used_up()
        return result

    async def _call_over(self, connection: Connection, name: str, sent: dict[str, JsonValue]) -> CallToolResult | None:
        """Call a tool over a connection, and return its result; None if the script did not fit, now or before."""
        client, attempt = connection
        attempt.workers.legs = 0
        if attempt.failure is None:
            with attempt.until_failure():
                return await client.call_tool(name, sent, on_progress=self._note_progress)
        return None

    @overload
    def context(
        self, *, state: S, server: Server | None = None, declares: Sequence[AnyElicit] = ()
    ) -> AbstractAsyncContextManager[Context[S]]: ...
    @overload
    def context(
        self, *, server: Server | None = None, declares: Sequence[AnyElicit] = ()
    ) -> AbstractAsyncContextManager[Context]: ...
    def context(
        self, *, state: object = None, server: Server | None = None, declares: Sequence[AnyElicit] = ()
    ) -> AbstractAsyncContextManager[Context[object]]:
        """Return a context manager that makes a call and yields its context: for functions that take one.

        Args:
            state: `ctx.state`; the lifespan of `server` is not entered then.
            server: the server of the call, with its lifespan, middleware, resources and prompts; by default an empty one.
            declares: the questions that may be asked by key, as the `elicits` of a tool.

        The block raises `AssertionError` as `call` does. It is cancelled if the call ends before it.
        """
        return self._open_context(HeldCall(declares, server, state))

    @asynccontextmanager
    async def _open_context(self, held: HeldCall) -> AsyncGenerator[Context]:
        attempt = self._attempt(held.server)
        # Not raised inside of the block: the nursery would wrap it, and a failure of the call counts more than what follows.
        error: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hold, held, attempt)
                with held.block:
                    yield await held.context()
                held.left.set()
        except BaseExceptionGroup as group:
            error = unwrap(group)
        if attempt.failure is not None:
            raise attempt.failure
        if error is not None:
            if hint := context_hint(error):
                error.add_note(hint.removeprefix("; "))
            raise error
        if not self._in_block:
            self.check_used_up()

    async def _hold(self, held: HeldCall, attempt: Attempt) -> None:
        """Make the call whose context is used, and end the block if the call ends first."""
        try:
            async with self._connect(attempt) as client:
                with attempt.until_failure():
                    result = await client.call_tool(held.name, on_progress=self._note_progress)
                    if result.is_error:
                        attempt.failure = AssertionError(f"the call of the context ended: {result.text}")
        except Exception as error:  # noqa: BLE001  the block raises it
            attempt.failure = error
        finally:
            held.end()

    def check_used_up(self) -> None:
        """Raise `AssertionError` if an answer of a script was not used; the message names it, and what was asked."""
        left = [step for script in self._scripts.values() for step in script.left]
        if not left:
            return
        asked = "; ".join(map(str, self.questions)) or "nothing"
        error = f" with the error {self.result.text!r:.500}" if self.result is not None and self.result.is_error else ""
        unused = ", ".join(f"{step.name} ({step.answer!r:.200})" for step in left)
        # As `MockClient` is often made for several calls of a test, and one script for all of them.
        several = "" if self._in_block else "; for several calls with one script, make them inside `with client:`"
        raise AssertionError(
            f"the call ended{error}, and the script was not used up: {unused} is left; asked: {asked}{several}"
        )

    def __enter__(self) -> Self:
        self._in_block = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            # Of a test that failed, the rest of the script says nothing.
            if error is None:
                self.check_used_up()
        finally:
            self._in_block = False

    async def __aenter__(self) -> Self:
        if not trio.lowlevel.in_trio_task():
            raise RuntimeError(
                "several calls over one connection of a MockClient need Trio: mark the test with `trio` (pytest-trio), or run it "
                "by trio.run(...); on asyncio, call it without `async with`"
            )
        self._connections = await Connections(self._connection).__aenter__()
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        connections, self._connections = self._connections, None
        assert connections is not None
        try:
            await connections.__aexit__(kind, error, traceback)  # noqa: ASYNC102  what closes the connections is bounded
        finally:
            self.__exit__(kind, error, traceback)

    def _note_progress(self, report: ProgressNotificationParams) -> None:
        # No tool has made a heartbeat, and a test that lasts for hours of virtual time has hundreds of them.
        if not report.is_heartbeat:
            self.progress.append(report)

    def _attempt(self, server: Server) -> Attempt:
        revision = REVISIONS.get(self._era)
        is_modern = self._era == "modern" if revision is None else revision.era is Era.MODERN
        may_move = any(script.has(may_be_second_worker) for script in self._scripts.values())
        workers = Workers(server, self._caller_at(server), shares_keys=may_move)
        return Attempt(workers, self._scripts, self._roots, self.questions, is_modern)

    def _caller_at(self, server: Server) -> Caller | None:
        """Return the caller as `authenticate=` of the server would let it in. Raises `CredentialsRejected`."""
        hook = None if server.http is None else server.http.authenticate
        return (
            hook.admitted(self._given) if isinstance(hook, Authenticator) and self._given is not None else self._caller
        )

    @asynccontextmanager
    async def _connection(self, server: Server) -> AsyncGenerator[Connection]:
        """Connect to a server."""
        attempt = self._attempt(server)
        async with self._connect(attempt) as client:
            yield Connection(client, attempt)

    def _connect(self, attempt: Attempt) -> Client:
        options = ClientOptions(
            info=INFO,
            handlers=ScriptedHandlers(declared=self._capabilities, attempt=attempt),
            on_log=self.logs.append,
            log_level="debug",
            mode=self._era,
        )
        return Client(open_target(attempt.workers, {}), options)

    def __repr__(self) -> str:
        scripts = ", ".join(str(script) for script in self._scripts.values())
        return f"<MockClient {self._era}: {scripts}, asked {len(self.questions)}>"


def to_json(name: str, value: object) -> JsonValue:
    """Return an argument as JSON. Raises `TypeError`, naming it, if it has no JSON."""
    try:
        return cast("JsonValue", to_jsonable_python(value, by_alias=True))
    except ValueError as error:
        raise TypeError(mistake(name, "a value that JSON has", value, str(error))) from None


@overload
def make_context(
    *, state: S, server: Server | None = None, declares: Sequence[AnyElicit] = (), **options: Unpack[ScriptKeywords]
) -> AbstractAsyncContextManager[Context[S]]: ...
@overload
def make_context(
    *, server: Server | None = None, declares: Sequence[AnyElicit] = (), **options: Unpack[ScriptKeywords]
) -> AbstractAsyncContextManager[Context]: ...
def make_context(
    *,
    state: object = None,
    server: Server | None = None,
    declares: Sequence[AnyElicit] = (),
    **options: Unpack[ScriptKeywords],
) -> AbstractAsyncContextManager[Context[object]]:
    """Return a context manager that yields the context of a call, for a function that takes one.

        async with make_context(elicits=[True], state=Database()) as ctx:
            assert await confirm(ctx, "Sure?")

    `state`, `server` and `declares` are those of `MockClient.context`, the other arguments and the errors those of `MockClient`.
    """
    return MockClient(**options).context(state=state, server=server, declares=declares)
