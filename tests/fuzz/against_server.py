"""A hostile client: several messages in one connection to our server, each followed by the checks."""

from __future__ import annotations

from typing import Any, NamedTuple

import trio
from checks import Bystander, Oracle, check, check_budget, check_nothing_left, records
from hypothesis import strategies as st
from mutations import KINDS, Mutation, mutated
from peer import Json
from scripted import living
from seeds import LEGACY_VERSIONS, filled_in, handshake, to_a_server
from server_stage import LIFETIME, fuzzed_server
from talk import Talk
from trio.testing import MockClock, wait_all_tasks_blocked
from wire_terms import MODERN
from wires import WIRES, Step, connected


class ServerCase(NamedTuple):
    """What one hostile client does."""

    wire: str
    steps: tuple[Step, ...]


def run(case: ServerCase) -> None:
    """Raise unless our server holds what it promises, whatever this client does."""
    with records() as log:
        trio.run(attack, case, clock=MockClock(autojump_threshold=0))
    log.check()


async def attack(case: ServerCase) -> None:
    stage = fuzzed_server()
    stage.go_on = trio.Event()
    budget = stage.server.options.memory
    drawn = budget.drawn
    oracle = Oracle()
    async with connected(case.wire, stage.server) as (service, wire):
        bystander = Bystander(Talk(service))
        await bystander.start()
        tasks = living()
        said: Json = {}
        for step in case.steps:
            data = filled_in(step.data, said)
            for each in data.split(b"\n") if case.wire == "lines" else [data]:
                oracle.sent(each, dict(step.headers).get("mcp-protocol-version"))
            await wire.send(step._replace(data=data))
            await bystander.works()
            await wait_all_tasks_blocked()
            listen(wire.heard(), oracle, said)
        await bystander.end(stage.go_on)
        await wait_all_tasks_blocked()
        listen(wire.heard(), oracle, said)
        await wire.close()
        bystander.leave()
        await trio.sleep(LIFETIME)
        check_nothing_left(service.statistics())
        check(service.statistics().actors.ever_stuck == 0, "a call was stuck")
        check(await wire.is_forgotten(), "a session is left")
        check(living() <= tasks, "tasks are left", living(), tasks)
    check_budget(budget, drawn)


def listen(messages: list[Any], oracle: Oracle, said: Json) -> None:
    """Hold messages of the server against the schemas, and note what a client needs to go on."""
    for message in messages:
        oracle.heard(message)
        if not isinstance(message, dict):
            continue
        if "method" in message and "id" in message:
            said["question"] = message["id"]
        result = message.get("result")
        if isinstance(result, dict) and result.get("resultType") == "input_required":
            said["state"] = result.get("requestState")
            said["key"] = next(iter(result.get("inputRequests", {"": None})))


# what is tried

MUTATION = st.builds(Mutation, st.sampled_from(KINDS), st.integers(0, 60), st.integers(0, 400))
MUTATIONS = st.lists(MUTATION, max_size=3)
HEADERS: tuple[tuple[str, str | None], ...] = (
    ("content-type", None),
    ("content-type", "text/plain"),
    ("content-type", "application/json; charset=utf-16"),
    ("accept", None),
    ("accept", "text/event-stream"),
    ("accept", "application/json;q=0, */*;q=x"),
    ("host", "evil.example"),
    ("origin", "https://evil.example"),
    ("content-length", "99999999999"),
    ("content-length", "-1"),
    ("mcp-session-id", None),
    ("mcp-session-id", "x" * 5000),
    ("mcp-session-id", "\xff"),
    *(("mcp-protocol-version", version) for version in (*LEGACY_VERSIONS, MODERN, "2099-01-01", "", None)),
    ("mcp-method", "tools/list"),
    ("mcp-method", None),
    ("mcp-name", "=?base64?%%%?="),
    ("mcp-name", None),
    ("last-event-id", "1"),
    ("last-event-id", "-1/99999999999999999999"),
    ("last-event-id", "\xe9"),
    ("mcp-param-text", "=?base64?/w==?="),
)


@st.composite
def steps(draw: st.DrawFn, wire: str) -> Step:
    pool = to_a_server()
    data = mutated(pool[draw(st.integers(0, len(pool) - 1))], draw(MUTATIONS), pool)
    if wire != "http":
        return Step(data)
    verb = draw(st.sampled_from(["POST"] * 8 + ["GET", "DELETE", "DROP", "PUT"]))
    headers = draw(st.lists(st.sampled_from(HEADERS), max_size=2)) if draw(st.integers(0, 3)) == 3 else []
    if verb == "GET":
        headers.append(("accept", "text/event-stream"))
    return Step(data, verb, tuple(headers))


INITIALIZED = Step(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')


@st.composite
def openings(draw: st.DrawFn) -> tuple[Step, ...]:
    """A handshake, a mutated one, or none."""
    version = draw(st.sampled_from((None, *LEGACY_VERSIONS)))
    if version is None:
        return ()
    changes = draw(MUTATIONS) if draw(st.integers(0, 4)) == 4 else []
    return Step(mutated(handshake(version), changes, to_a_server())), INITIALIZED


@st.composite
def cases(draw: st.DrawFn) -> ServerCase:
    wire = draw(st.sampled_from(WIRES))
    return ServerCase(wire, draw(openings()) + tuple(draw(st.lists(steps(wire), min_size=1, max_size=8))))
