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


def in_both_eras(
    name: str, what: str, *goals: tuple[Goal, ...], kind: type[Calls] = Calls, **more: Any
) -> Iterator[Calls]:
    """Yield a workload of each era, whose goals are given in this order."""
    for era, own in zip((LEGACY, MODERN), goals, strict=True):
        name_of, what_of = name.format(era.value), what.format(era.value)
        yield kind(name=name_of, what=what_of, era=era, connections=16, goals=own, **more)


def in_order() -> Iterator[Workload]:
    yield StdioCalls(name="stdio-1", what="stdio, one call at a time", in_flight=1, goals=(ts(1.15), mcp(0.25)))
    yield StdioCalls(name="stdio-16", what="stdio, 16 calls in flight", in_flight=16, goals=(ts(1.1), mcp(0.125)))
    plain = (floor(1.15), ts(0.6)), (floor(1.3), ts(0.6))
    yield from in_both_eras("http-{}-16", "HTTP, {}, 16 connections", *plain)
    yield from with_options(LEGACY)
    yield from with_options(MODERN)
    yield from on_uvicorn()
    what, token = "HTTP, modern, 16 connections, a verified token", {"Authorization": f"Bearer {TOKEN}"}
    variables = {"BENCH_KEYS": KEYS}
    yield Calls(name="http-token-16", what=what, era=MODERN, connections=16, headers=token, variables=variables)
    progress: dict[str, Any] = {"tool": "progress", "arguments": STEPS, "expect": LAST_STEP, "progress": True}
    yield from in_both_eras("progress-{}-16", "ten progress reports a call, {}", (), (floor(1.1),), **progress)
    asking = (floor(1.2), ts(1.0)), (floor(1.6), mcp(0.65))
    yield from in_both_eras("elicit-{}-16", "one question during the call, {}", *asking, kind=Questions)
    yield Fan(name="fan-100", what="one call that asks 100 questions at once", number=100, goals=(ts(1.0), mcp(0.5)))
    yield WebSocketCalls(name="ws-1", what="WebSocket, one call at a time", connections=1, in_flight=1)
    what, goals = "16 WebSockets, one call each", (floor(1.3),)
    yield WebSocketCalls(name="ws-16", what=what, connections=16, in_flight=1, goals=goals)
    yield WebSocketCalls(name="ws-1x16", what="one WebSocket, 16 calls in flight", connections=1, in_flight=16)
    big: dict[str, Any] = {"arguments": {"text": MEBIBYTE}, "expect": "xxxx", "goals": (floor(1.6), mcp(0.6))}
    yield Calls(name="big-modern", what="an argument of 1 MiB, modern", era=MODERN, connections=1, **big)
    many: dict[str, Any] = {"expect": "extra_499", "variables": {"BENCH_TOOLS": "500"}, "goals": (mcp(0.067),)}
    yield Lists(name="list500-modern", what="`tools/list` of 500 tools, modern", era=MODERN, connections=4, **many)
    what = "memory of a call that waits for an answer, of 1,000"
    yield Waiting(name="suspended-1000", what=what, number=1000, goals=(absolute(20),))
    what = "memory of an idle session with its stream, of 1,000"
    yield Idle(name="idle-1000", what=what, number=1000, goals=(absolute(17),))
    what = "first answer on stdio, from the start of the process"
    yield FirstAnswer(name="startup", what=what, goals=(ts(1.0), mcp(0.4)))


WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in in_order()}
