"""The workloads, in the order of the table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .calls import Calls, FirstAnswer, HostedCalls, Lists, Questions, SlowlySentCalls, StdioCalls, WebSocketCalls
from .messages import Era
from .open_calls import Fan, Idle, Waiting
from .paths import CERTIFICATE
from .tokens import KEYS, TOKEN
from .workload import Goal, Workload

LEGACY, MODERN = Era.LEGACY, Era.MODERN
MEBIBYTE = "x" * (1 << 20)
STEPS = {"n": 10}
LAST_STEP = '"progress":10'


def floor(most: float) -> Goal:
    return Goal("floor", most)


def mcp(most: float) -> Goal:
    return Goal("mcp", most)


def ts(most: float) -> Goal:
    return Goal("ts", most)


def absolute(most: float) -> Goal:
    return Goal("trio_mcp", most)


def with_options(era: Era) -> Iterator[Workload]:
    """Yield calls over HTTP with each of the options that a deployment may have."""
    title, name = f"HTTP, {era.value}, 16 connections", f"http-{era.value}-16"
    token = {"Authorization": "Bearer bench"}
    forwarded = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https"}

    def calls(option: str, what: str, **more: Any) -> Calls:
        return Calls(name=f"{name}-{option}", what=f"{title}, {what}", era=era, connections=16, **more)

    yield calls("authenticate", "`authenticate=`", headers=token, variables={"BENCH_HTTP": "authenticate"})
    yield calls("query", "a query", query="?a=1&b=2")
    yield calls("access-log", "an access log", variables={"BENCH_HTTP": "access_log"})
    yield calls("proxies", "`trusted_proxies=`", headers=forwarded, variables={"BENCH_HTTP": "trusted_proxies"})
    for tls, option, what in ((True, "tls", "TLS"), (False, "no-tls", "as for TLS, without it")):
        yield SlowlySentCalls(
            name=f"{name}-{option}",
            what=f"{title}, {what}",
            era=era,
            connections=16,
            tls=tls,
            variables={"BENCH_TLS": str(CERTIFICATE)} if tls else {},
        )


def on_uvicorn() -> Iterator[Workload]:
    """Yield calls on uvicorn, with asyncio and h11, beside uvicorn with fixed answers and the official SDK on it."""
    host = {"BENCH_HOST": "uvicorn"}
    token = {"Authorization": "Bearer bench"}

    def calls(name: str, what: str, era: Era = MODERN, connections: int = 16, **more: Any) -> HostedCalls:
        what = f"uvicorn, {era.value}, {connections} connection{'s' if connections > 1 else ''}{what}"
        return HostedCalls(name=f"uvicorn-{name}", what=what, era=era, connections=connections, **more)

    yield calls("legacy-16", "", LEGACY, goals=(mcp(0.35),))
    yield calls("modern-16", "", goals=(mcp(0.35),))
    yield calls("modern-1", "", connections=1)
    yield calls("asyncio", ", `asyncio=True`", variables={**host, "BENCH_ASYNCIO": "1"})
    authenticated = {**host, "BENCH_HTTP": "authenticate"}
    yield calls("authenticate", ", `authenticate=`", headers=token, variables=authenticated)
    authenticated["BENCH_ASYNCIO"] = "1"
    yield calls("auth-asyncio", ", both", headers=token, variables=authenticated)


WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        StdioCalls(name="stdio-1", what="stdio, one call at a time", in_flight=1, goals=(ts(1.15), mcp(0.25))),
        StdioCalls(name="stdio-16", what="stdio, 16 calls in flight", in_flight=16, goals=(ts(1.1), mcp(0.125))),
        Calls(
            name="http-legacy-16",
            what="HTTP, legacy, 16 connections",
            era=LEGACY,
            connections=16,
            goals=(floor(1.15), ts(0.6)),
        ),
        Calls(
            name="http-modern-16",
            what="HTTP, modern, 16 connections",
            era=MODERN,
            connections=16,
            goals=(floor(1.3), ts(0.6)),
        ),
        *with_options(LEGACY),
        *with_options(MODERN),
        *on_uvicorn(),
        Calls(
            name="http-token-16",
            what="HTTP, modern, 16 connections, a verified token",
            era=MODERN,
            connections=16,
            headers={"Authorization": f"Bearer {TOKEN}"},
            variables={"BENCH_KEYS": KEYS},
        ),
        Calls(
            name="progress-legacy-16",
            what="ten progress reports a call, legacy",
            era=LEGACY,
            connections=16,
            tool="progress",
            arguments=STEPS,
            expect=LAST_STEP,
            progress=True,
        ),
        Calls(
            name="progress-modern-16",
            what="ten progress reports a call, modern",
            era=MODERN,
            connections=16,
            tool="progress",
            arguments=STEPS,
            expect=LAST_STEP,
            progress=True,
            goals=(floor(1.1),),
        ),
        Questions(
            name="elicit-legacy-16",
            what="one question during the call, legacy",
            era=LEGACY,
            connections=16,
            goals=(floor(1.2), ts(1.0)),
        ),
        Questions(
            name="elicit-modern-16",
            what="one question during the call, modern",
            era=MODERN,
            connections=16,
            goals=(floor(1.6), mcp(0.65)),
        ),
        Fan(name="fan-100", what="one call that asks 100 questions at once", number=100, goals=(ts(1.0), mcp(0.5))),
        WebSocketCalls(name="ws-1", what="WebSocket, one call at a time", connections=1, in_flight=1),
        WebSocketCalls(
            name="ws-16", what="16 WebSockets, one call each", connections=16, in_flight=1, goals=(floor(1.3),)
        ),
        WebSocketCalls(name="ws-1x16", what="one WebSocket, 16 calls in flight", connections=1, in_flight=16),
        Calls(
            name="big-modern",
            what="an argument of 1 MiB, modern",
            era=MODERN,
            connections=1,
            arguments={"text": MEBIBYTE},
            expect="xxxx",
            goals=(floor(1.6), mcp(0.6)),
        ),
        Lists(
            name="list500-modern",
            what="`tools/list` of 500 tools, modern",
            era=MODERN,
            connections=4,
            expect="extra_499",
            variables={"BENCH_TOOLS": "500"},
            goals=(mcp(0.067),),
        ),
        Waiting(
            name="suspended-1000",
            what="memory of a call that waits for an answer, of 1,000",
            number=1000,
            goals=(absolute(20),),
        ),
        Idle(
            name="idle-1000",
            what="memory of an idle session with its stream, of 1,000",
            number=1000,
            goals=(absolute(17),),
        ),
        FirstAnswer(
            name="startup",
            what="first answer on stdio, from the start of the process",
            goals=(ts(1.0), mcp(0.4)),
        ),
    )
}
