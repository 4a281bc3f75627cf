"""The numbers and names that the pages state are those of the code: one row a fact."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import astuple, fields
from typing import get_type_hints

import click
import pytest
from pages import Page
from wire_terms import SERVER_BUSY

from trio_mcp import Context, HttpOptions, ServiceOptions, TaskOptions, ToolSearch
from trio_mcp.auth import ENTRA, GITHUB, GOOGLE, OAuth
from trio_mcp.auth.proxy.sealed import Access, Client, Code, Login, Refresh
from trio_mcp.base.backoff import STABLE_AFTER
from trio_mcp.base.shared_limits import ANSWERED_QUESTIONS, STORED_RECORDS
from trio_mcp.cli.commands.dev import command_line
from trio_mcp.cli.dev.child import HAND_OVER_SECONDS
from trio_mcp.cli.dev.parent import BACKOFF, END_SECONDS
from trio_mcp.client import MAX_ROUNDS
from trio_mcp.compose import connection, group, lists
from trio_mcp.compose.agent import agent, calls
from trio_mcp.errors import AuthorizationErrorKind, ProviderError, ProviderErrorKind
from trio_mcp.http import HttpLimits
from trio_mcp.mcp_json.entries import KNOWN
from trio_mcp.openapi import OpenApiLimits
from trio_mcp.openapi.adding import TIMEOUT as API_TIMEOUT
from trio_mcp.openapi.documents import MAX_DEPTH, MAX_VALUES
from trio_mcp.openapi.names import MAX_NAME
from trio_mcp.openapi.reading import READ_INLINE
from trio_mcp.openapi.sending import MAX_REDIRECTS
from trio_mcp.protocol.json_limits import JsonLimits
from trio_mcp.protocol.sealing.request_state import MAX_STATE
from trio_mcp.providers import AnthropicProvider, OpenAIProvider
from trio_mcp.providers.api import MAX_RETRIES, MAX_WAIT, PASSING, RETRY_BACKOFF, TIMEOUT
from trio_mcp.relay.host_links import IDLE_SECONDS
from trio_mcp.relay.mirroring import OPEN_SECONDS
from trio_mcp.relay.proxies import START_SECONDS
from trio_mcp.relay.server import MAX_SESSIONS
from trio_mcp.server import (
    BranchOptions,
    Elicitation,
    ElicitExchange,
    Sampled,
    SampleOptions,
    ToolBuilder,
    ToolLoopResult,
)
from trio_mcp.server.data import completion
from trio_mcp.server.lifespan import LIFESPAN_EXIT_SECONDS
from trio_mcp.server.sampling.looper import MAX_ITERATIONS
from trio_mcp.server.tools.search_index import MAX_TERMS
from trio_mcp.server.values.media import MAX_FILE
from trio_mcp.server.values.schemas import MAX_INLINED
from trio_mcp.session import CallState, Limits, Service, token_usage
from trio_mcp.session.server_requests import MAX_HANDLERS
from trio_mcp.stores.sealed import SECONDS
from trio_mcp.stores.sqlite import SWEEP_SECONDS
from trio_mcp.stores.sqlite_schema import BUSY_SECONDS, CHECKED_BYTES
from trio_mcp.telemetry.conventions import MAX_CONTENT, REFUSALS
from trio_mcp.telemetry.spans import LONGEST
from trio_mcp.testing import Way
from trio_mcp.testing.mock.actions import ACTIONS
from trio_mcp_transports.http.server.lifespan import RESTART_DELAY
from trio_mcp_transports.hypercorn.config import DEFAULT_CONNECTION_LIMITS, ConnectionLimits, guarded_config
from trio_mcp_transports.hypercorn.connection import MAX_RECV
from trio_mcp_transports.websocket.client import INBOX, connect
from trio_mcp_transports.websocket.handshake import MAX_HANDSHAKE

KIB, MIB = 1024, 1024**2
MINUTE, HOUR, DAY = 60, 60 * 60, 24 * 60 * 60
OPTIONS, PARKING, SEARCH = ServiceOptions(), Limits(), ToolSearch()
HTTP, GUARD = HttpLimits(), DEFAULT_CONNECTION_LIMITS
WEBSOCKET = {name: parameter.default for name, parameter in inspect.signature(connect).parameters.items()}


def same(first: object, *others: object) -> object:
    """Return what two parts of the code agree on; where they do not, no page has it."""
    return first if all(first == other for other in others) else (first, *others)


def words(text: str, value: object, is_now: object) -> str:
    """Return the words for a value that a page does not write as a number."""
    return text if value == is_now else repr(is_now)


FACTS = {
    "agents": [
        f"`max_iterations` ({token_usage.MAX_ITERATIONS})",
        f"No answer has more than {token_usage.MAX_CALLS} calls",
        f"at most `max_parallel` of them ({calls.MAX_PARALLEL})",
        f"`max_result` bytes ({calls.MAX_RESULT // MIB} MiB)",
        f"`max_tokens` ({agent.MAX_TOKENS:,} for one answer)",
        f"`list_timeout` seconds ({calls.LIST_TIMEOUT:g})",
    ],
    "backfill": [f"more than {ANSWERED_QUESTIONS.limit} questions at a time"],
    "branches": [f"never more than the server ({OPTIONS.max_depth})"],
    "clients": [f"for this server ({MAX_HANDLERS})"],
    "composition": [
        f"at most {START_SECONDS:g} seconds",
        f"max_sessions={MAX_SESSIONS})",
        words("five minutes", 5 * MINUTE, IDLE_SECONDS),
    ],
    "dev": [
        f"{LIFESPAN_EXIT_SECONDS:g} seconds",
        f"at most {HAND_OVER_SECONDS:g} seconds",
        f"and {END_SECONDS:g} seconds",
        f"from {BACKOFF.first:g} to {BACKOFF.longest:g} seconds",
    ],
    "groups": [
        f"up to {connection.ATTEMPTS} attempts",
        f"at most {connection.BACKOFF.longest:g} seconds apart",
        f"at most `open_timeout` seconds ({group.OPEN_TIMEOUT:g})",
        f"a connection of {STABLE_AFTER:g} seconds",
        f"`timeout` seconds ({lists.LIST_TIMEOUT:g})",
    ],
    "handoff": [f"`ServiceOptions.cancel_grace` ({OPTIONS.cancel_grace:g} seconds)"],
    "limits": [
        f"| the same for the lists of a [mounted proxy](composition.md#mount-a-proxy) | {OPEN_SECONDS:g} |",
        f"before it is used | {connection.LISTEN_SECONDS:g} |",
    ],
    "oauth-proxy": [
        words("| 90 days", 90 * DAY, Client.LIFETIME),
        words("| 10 minutes each", 10 * MINUTE, Login.LIFETIME),
        words("| 60 seconds, once", MINUTE, Code.LIFETIME),
        words("| 1 hour", HOUR, Access.LIFETIME),
        words("| 30 days", 30 * DAY, Refresh.LIFETIME),
    ],
    "observing": [
        f"`{name}=` ({option.default})" for name, option in [*inspect.signature(Service.tree).parameters.items()][1:]
    ],
    "openapi": [
        f"within `timeout` seconds ({API_TIMEOUT:g} by default)",
        f"at most {MAX_NAME} of them",
        f"at most {MAX_VALUES:,} values and names, {MAX_DEPTH} levels, and {JsonLimits().max_number_chars} characters",
        f"more than {READ_INLINE // KIB} KiB",
        words("at most five times", 5, MAX_REDIRECTS),
    ],
    "providers": [
        f"| `max_retries` | {MAX_RETRIES} |",
        f"| `timeout` | {TIMEOUT:g} |",
        words(
            f"from {RETRY_BACKOFF.first:g} to {RETRY_BACKOFF.longest:g} seconds, half of it random",
            0.5,
            RETRY_BACKOFF.jitter,
        ),
        f"longer than {MAX_WAIT:g} seconds",
    ],
    "results": [
        f"A file may have {MAX_FILE // MIB} MiB",
        f"more than {MAX_INLINED // KIB} KiB",
        f"({OPTIONS.result_ttl:g} by default)",
    ],
    "rounds": [
        f"for {OPTIONS.settle} seconds at most",
        f"for {OPTIONS.outcome_grace:g} seconds after the call is over",
        f"| {PARKING.park_ttl:g} seconds |",
        f"| {PARKING.parked:,}; over half of them, [a quarter of one caller](limits.md#what-callers-share) |",
        f"| {OPTIONS.max_state // KIB} KiB |",
        f"| {MAX_STATE // KIB} KiB |",
        f"give up after {MAX_ROUNDS} rounds",
    ],
    "servers": [f"The first {completion.MAX_VALUES} suggestions"],
    "state": [
        f"has {LIFESPAN_EXIT_SECONDS:g} seconds (`LIFESPAN_EXIT_SECONDS`)",
        f"at most every {RESTART_DELAY:g} seconds",
        f"the error {SERVER_BUSY} (HTTP 503)",
    ],
    "stores": [
        f"waits {BUSY_SECONDS:g} seconds for the lock, and one behind another write up to {SECONDS:g}",
        f"after {SECONDS:g} seconds the operation fails",
        f"A file over {CHECKED_BYTES // MIB} MiB",
        words("deleted every five seconds", 5, SWEEP_SECONDS),
        words("100,000 records", 100_000, STORED_RECORDS.limit),
    ],
    "telemetry": [
        *(f"{number:,}" for number in (*LONGEST.values(), MAX_CONTENT)),
        words(
            "-32700, -32600 to -32602 and -32002 are no errors",
            [-32700, -32602, -32601, -32600, -32002],
            sorted(REFUSALS),
        ),
    ],
    "tool-loops": [f"`max_iterations={MAX_ITERATIONS}`", f"more than {token_usage.MAX_CALLS} calls"],
    "tool-search": [
        f"| `results`, `max_results` | {SEARCH.results}, {SEARCH.max_results} |",
        f"| `max_query` | {SEARCH.max_query} | characters of a query, of which the first {MAX_TERMS} ",
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
        f"| messages from a client that does not read its answers | those of one read, {MAX_RECV // KIB} KiB |",
        f"| messages that wait for a slow receiver in our client | {INBOX}, or one `max_message` |",
        f"| what a server may send before our client's connection is open | {MAX_HANDSHAKE // KIB} KiB |",
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
    ("dev", "{}", [name for option in command_line.params if isinstance(option, click.Option) for name in option.opts]),
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


def test_the_failures_of_providers_are_listed_with_those_that_are_tried_again() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \|.*\| (yes|no) \|$", Page("providers").text, re.MULTILINE)
    assert {name: again == "yes" for name, again in rows} == {kind.name: kind in PASSING for kind in ProviderErrorKind}
    assert all(ProviderError("x", kind=kind).public_text for kind in ProviderErrorKind)


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
