"""The numbers and names that the pages state are those of the code: one row a fact."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import astuple, fields
from typing import Any, get_type_hints

import click
import pytest
from constants import code
from convention import CONVENTION
from pages import Page, program
from wire_terms import SERVER_BUSY

from trio_mcp import ClientGroup, Context, HttpOptions, RelayServer, ServiceOptions, TaskOptions, ToolSearch, run_agent
from trio_mcp.auth import ENTRA, GITHUB, GOOGLE, OAuth
from trio_mcp.base.shared_limits import ANSWERED_QUESTIONS, STORED_RECORDS
from trio_mcp.client import MAX_ROUNDS, ClientOptions
from trio_mcp.errors import AuthorizationErrorKind
from trio_mcp.http import HttpLimits
from trio_mcp.mcp_json.entries import KNOWN
from trio_mcp.openapi import OpenApiLimits
from trio_mcp.providers import AnthropicProvider, OpenAIProvider
from trio_mcp.server import (
    BranchOptions,
    Elicitation,
    ElicitExchange,
    Sampled,
    SampleOptions,
    ToolBuilder,
    ToolLoopResult,
)
from trio_mcp.session import CallState, Limits, Service, find_transport
from trio_mcp.testing import Way
from trio_mcp.testing.mock.actions import ACTIONS
from trio_mcp_transports.hypercorn.config import DEFAULT_CONNECTION_LIMITS, ConnectionLimits, guarded_config

KIB, MIB = 1024, 1024**2
MINUTE, HOUR, DAY = 60, 60 * 60, 24 * 60 * 60
OPTIONS, PARKING, SEARCH = ServiceOptions(), Limits(), ToolSearch()
HTTP, GUARD = HttpLimits(), DEFAULT_CONNECTION_LIMITS
DEV = program.get_command(click.Context(program), "dev")
CONNECT = inspect.signature(find_transport("websocket").connect)
WEBSOCKET = {name: parameter.default for name, parameter in CONNECT.parameters.items()}


def default(function: Callable[..., object], parameter: str) -> Any:
    return inspect.signature(function).parameters[parameter].default


def same(first: object, *others: object) -> object:
    """Return what two parts of the code agree on; where they do not, no page has it."""
    return first if all(first == other for other in others) else (first, *others)


def words(text: str, value: object, is_now: object) -> str:
    """Return the words for a value that a page does not write as a number."""
    return text if value == is_now else repr(is_now)


FACTS = {
    "agents": [
        f"`max_iterations` ({default(run_agent, 'max_iterations')})",
        f"No answer has more than {code.session.MAX_CALLS} calls",
        f"at most `max_parallel` of them ({code.compose.MAX_PARALLEL})",
        f"`max_result` bytes ({code.compose.MAX_RESULT // MIB} MiB)",
        f"`max_tokens` ({default(run_agent, 'max_tokens'):,} for one answer)",
        f"`list_timeout` seconds ({code.compose.LIST_TIMEOUT:g})",
    ],
    "backfill": [f"more than {ANSWERED_QUESTIONS.limit} questions at a time"],
    "branches": [f"never more than the server ({OPTIONS.max_depth})"],
    "clients": [f"for this server ({default(ClientOptions, 'max_handlers')})"],
    "composition": [
        f"at most {code.relay.START_SECONDS:g} seconds",
        f"max_sessions={default(RelayServer, 'max_sessions')})",
        words("five minutes", 5 * MINUTE, code.relay.IDLE_SECONDS),
    ],
    "dev": [
        f"{code.server.LIFESPAN_EXIT_SECONDS:g} seconds",
        f"at most {code.cli.HAND_OVER_SECONDS:g} seconds",
        f"and {code.cli.dev.END_SECONDS:g} seconds",
        "from {first:g} to {longest:g} seconds".format_map(vars(code.cli.dev.BACKOFF)),
    ],
    "groups": [
        f"up to {code.compose.ATTEMPTS} attempts",
        f"at most {code.compose.BACKOFF.longest:g} seconds apart",
        f"at most `open_timeout` seconds ({code.compose.OPEN_TIMEOUT:g})",
        f"a connection of {code.base.STABLE_AFTER:g} seconds",
        f"`timeout` seconds ({default(ClientGroup.list_prompts, 'timeout'):g})",
    ],
    "handoff": [f"`ServiceOptions.cancel_grace` ({OPTIONS.cancel_grace:g} seconds)"],
    "limits": [
        f"| the same for the lists of a [mounted proxy](composition.md#mount-a-proxy) | {code.relay.OPEN_SECONDS:g} |",
        f"before it is used | {code.compose.LISTEN_SECONDS:g} |",
    ],
    "oauth-proxy": [
        words("| 90 days", 90 * DAY, code.auth.proxy.Client.LIFETIME),
        words("| 10 minutes each", 10 * MINUTE, code.auth.proxy.Login.LIFETIME),
        words("| 60 seconds, once", MINUTE, code.auth.proxy.Code.LIFETIME),
        words("| 1 hour", HOUR, code.auth.proxy.Access.LIFETIME),
        words("| 30 days", 30 * DAY, code.auth.proxy.Refresh.LIFETIME),
    ],
    "observing": [
        f"`{name}=` ({option.default})" for name, option in [*inspect.signature(Service.tree).parameters.items()][1:]
    ],
    "openapi": [
        f"within `timeout` seconds ({code.openapi.TIMEOUT:g} by default)",
        f"at most {code.openapi.names.MAX_NAME} of them",
        f"at most {code.openapi.MAX_VALUES:,} values and names, {code.openapi.MAX_DEPTH} levels",
        f"levels, and {code.protocol.JsonLimits.max_number_chars} characters",
        f"more than {code.openapi.READ_INLINE // KIB} KiB",
        words("at most five times", 5, code.openapi.MAX_REDIRECTS),
    ],
    "providers": [
        f"| `max_retries` | {default(OpenAIProvider, 'max_retries')} |",
        f"| `timeout` | {default(OpenAIProvider, 'timeout'):g} |",
        words(
            "from {first:g} to {longest:g} seconds, half of it random".format_map(vars(code.providers.RETRY_BACKOFF)),
            0.5,
            getattr(code.providers.RETRY_BACKOFF, "jitter", code.base.Backoff.jitter),
        ),
        f"longer than {code.providers.MAX_WAIT:g} seconds",
    ],
    "results": [
        f"A file may have {code.server.MAX_FILE // MIB} MiB",
        f"more than {code.server.MAX_INLINED // KIB} KiB",
        f"({OPTIONS.result_ttl:g} by default)",
    ],
    "rounds": [
        f"for {OPTIONS.settle} seconds at most",
        f"for {OPTIONS.outcome_grace:g} seconds after the call is over",
        f"| {PARKING.park_ttl:g} seconds |",
        f"| {PARKING.parked:,}; over half of them, [a quarter of one caller](limits.md#what-callers-share) |",
        f"| {OPTIONS.max_state // KIB} KiB |",
        f"| {code.protocol.MAX_STATE // KIB} KiB |",
        f"give up after {MAX_ROUNDS} rounds",
    ],
    "servers": [f"The first {code.server.MAX_VALUES} suggestions"],
    "state": [
        f"has {code.server.LIFESPAN_EXIT_SECONDS:g} seconds (`LIFESPAN_EXIT_SECONDS`)",
        f"at most every {code.http.server.lifespan.RESTART_DELAY:g} seconds",
        f"the error {SERVER_BUSY} (HTTP 503)",
    ],
    "stores": [
        f"waits {code.stores.BUSY_SECONDS:g} seconds for the lock",
        f"one behind another write up to {code.stores.sealed.SECONDS:g}",
        f"after {code.stores.sealed.SECONDS:g} seconds the operation fails",
        f"A file over {code.stores.CHECKED_BYTES // MIB} MiB",
        words("deleted every five seconds", 5, code.stores.SWEEP_SECONDS),
        words("100,000 records", 100_000, STORED_RECORDS.limit),
    ],
    "telemetry": [
        *(f"{number:,}" for number in code.telemetry.LONGEST.values()),
        f"{code.telemetry.MAX_CONTENT:,}",
        words(
            "-32700, -32600 to -32602 and -32002 are no errors",
            [-32700, -32602, -32601, -32600, -32002],
            sorted(CONVENTION["server_refusals"]),
        ),
    ],
    "tool-loops": [f"`max_iterations={code.server.MAX_ITERATIONS}`", f"more than {code.session.MAX_CALLS} calls"],
    "tool-search": [
        f"| `results`, `max_results` | {SEARCH.results}, {SEARCH.max_results} |",
        f"| `max_query` | {SEARCH.max_query} | characters of a query, of which the first {code.server.MAX_TERMS} ",
        f"| `max_result_bytes` | {SEARCH.max_result_bytes:,} |",
        f"| `{SEARCH.search_name}`, `{SEARCH.call_name}` |",
    ],
    "http": [f"every `HttpLimits.recheck_seconds` ({HTTP.recheck_seconds:g})"],
    "websocket": [
        f"| a message to the server | {HTTP.body // MIB} MiB |",
        f"| a message to our client | {WEBSOCKET['max_message'] // MIB} MiB |",
        f"| open WebSockets | {HTTP.websockets:,} |",
        f"| time without data from the peer | {same(WEBSOCKET['ping_interval'], guarded_config().websocket_ping_interval):g} s |",
        f"| time for one write | {same(WEBSOCKET['write_deadline'], GUARD.send_timeout):g} s |",
        f"| time from the first byte of a message to its last | {GUARD.message_timeout:g} s,",
        f"| messages for a client that does not read | {OPTIONS.outbox} |",
        f"| messages from a client that does not read its answers | those of one read, {code.hypercorn.MAX_RECV // KIB} KiB |",
        f"| messages that wait for a slow receiver in our client | {code.websocket.INBOX}, or one `max_message` |",
        f"| what a server may send before our client's connection is open | {code.websocket.MAX_HANDSHAKE // KIB} KiB |",
        *(f"`{name}` ({WEBSOCKET[name]:g}" for name in ("connect_timeout", "write_deadline", "ping_interval")),
    ],
}


@pytest.mark.parametrize("page", FACTS)
def test_the_numbers_of_a_page_are_those_of_the_code(page: str) -> None:
    prose = Page(page).prose
    assert [text for text in FACTS[page] if text not in prose] == []


def public(names: Iterable[str]) -> list[str]:
    return [name for name in names if not name.startswith("_")]


NAMES: list[tuple[str, str, Iterable[object]]] = [
    ("authorization", " {}", [400, 401, 403, 503]),
    ("branches", "`{}=", get_type_hints(BranchOptions)),
    ("branches", "ServiceOptions({}=", ["parallel_prompts", "estimate_tokens"]),
    ("deployment", "`{}`", [field.name for field in fields(HttpOptions)]),
    ("dev", "{}", [name for option in DEV.params if isinstance(option, click.Option) for name in option.opts]),
    ("forms", "ctx.{}", [f"elicit.{name}" for name in public(vars(Elicitation))] + ["elicit_url"]),
    ("forms", "`{}", [name for name in public(dir(ElicitExchange)) if name != "arguments"]),
    ("groups", "`{}`", KNOWN - {"environment"}),
    ("handoff", "`.{}(", public(vars(ToolBuilder))),
    ("observing", "| `{}` |", [state.value for state in CallState]),
    (
        "providers",
        "| `{}` |",
        {*inspect.signature(AnthropicProvider).parameters, *inspect.signature(OpenAIProvider).parameters},
    ),
    ("sampling", "`{}=", SampleOptions.__optional_keys__ | {"tools", "tool_choice", "returns", "retries"}),
    ("sampling", "`{}`", {*public(dir(Sampled))} - {"reply", "request"}),
    ("servers", "ctx.{}", public(vars(Context))),
    ("testing", "| `{}(", [action.__name__ for action in ACTIONS]),
    ("tool-loops", "`{}`", ToolLoopResult.__dataclass_fields__),
]


@pytest.mark.parametrize(("page", "form", "names"), NAMES, ids=[f"{page}-{form}" for page, form, _ in NAMES])
def test_a_page_has_every_name_of_the_code(page: str, form: str, names: Iterable[object]) -> None:
    text = Page(page).text
    assert [name for name in names if form.format(name) not in text] == []


def section(page: str, title: str, end: str = "## ") -> str:
    return Page(page).text.partition(title)[2].partition(end)[0]


def first_cells(text: str) -> list[str]:
    return re.findall(r"`(\w+)[`=]", " ".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)))


TABLES: list[tuple[str, Iterable[str], Iterable[str]]] = [
    (
        "kinds of errors",
        first_cells(section("logins", "## What goes wrong")),
        [kind.value for kind in AuthorizationErrorKind],
    ),
    ("settings", first_cells(section("logins", "## A user", "### ")), [field.name for field in fields(OAuth)]),
    ("ways", re.findall(r"\| `Way\.(\w+)`", Page("sweep").text), [way.name for way in Way]),
    *(
        (provider.name, re.findall(r"`(\w+)`", cells), [provider.principal, *provider.claims])
        for provider, cell in ((GITHUB, "`GITHUB`"), (GOOGLE, "`GOOGLE`"), (ENTRA("contoso.com"), "`ENTRA(tenant)`"))
        for cells in re.findall(rf"^\| {re.escape(cell)} \| (.*)$", Page("oauth-proxy").text, re.MULTILINE)
    ),
]


@pytest.mark.parametrize(("what", "listed", "known"), TABLES, ids=[what for what, *_ in TABLES])
def test_a_table_has_each_name_of_the_code_and_no_other(what: str, listed: Iterable[str], known: Iterable[str]) -> None:
    assert sorted(set(listed)) == sorted(known)


def test_the_limits_of_documents_are_listed_with_their_values() -> None:
    table = re.findall(r"^\| [^|]*? \| ([\d,]+)( MiB)? \|", Page("openapi").text, re.MULTILINE)
    values = [int(number.replace(",", "")) * (MIB if unit else 1) for number, unit in table]
    assert values == list(astuple(OpenApiLimits()))


OWNERS = {each.__name__: each for each in (HttpLimits, ServiceOptions, TaskOptions, Limits, ConnectionLimits)}
NAMED = re.findall(
    r"(HttpLimits|ServiceOptions|TaskOptions|ConnectionLimits|Limits)(?:\.|\()(\w+)", Page("limits").text
)


def test_the_options_that_the_page_on_limits_names_exist() -> None:
    options = {(name, field.name) for name, owner in OWNERS.items() for field in fields(owner)}
    assert len(NAMED) > 20
    assert set(NAMED) - options == set()


def test_what_people_change_comes_first_on_the_page_of_limits() -> None:
    first, second, *_ = re.findall(r"^## (.*)$", Page("limits").text, re.MULTILINE)
    assert (first, second) == ("What you are most likely to change", "How to read the tables")
