"""`trio-mcp backfill`: a proxy that gives any server a model, for hosts without one."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, closing
from functools import partial
from importlib import import_module
from typing import Protocol

import click

from ...errors import AuthorizationError, McpError
from ...relay import Backfill, OnForm, RelayServer
from ...relay.server import MAX_SESSIONS
from ...relay.upstream import behind_target, words_of
from ...sampling import SamplingProvider
from ...server.running import run_process, serve_over
from ..arguments import WholeNumber, header_option
from ..command import CommandError, Status, command, http_errors, status_of
from ..connecting import started
from ..targets.passing import check_no_password, connection, proxy_errors, transport_options
from ..targets.target import SCHEME, CommandTarget, PythonTarget, UrlTarget, read_target
from ..terminal.output import log_to_stderr
from ..terminal.prompting import ControllingTerminal, Prompting
from .serve import HTTP_OPTIONS, serves_http

EXAMPLES = """\
examples:
  trio-mcp backfill -- python server.py --verbose
  trio-mcp backfill --provider openai --model gpt-5-mini -- npx -y some-mcp-server
  trio-mcp backfill --provider http://localhost:11434/v1 -- uvx some-mcp-server
  trio-mcp backfill --elicit terminal https://mcp.example.com/mcp
  trio-mcp backfill --http --port 9000 -- python server.py

In the configuration of a host, put it in front of the command of a server. It answers a sampling request if the host has no model
(or its model uses no tools, and the request has some), and passes on everything else. The key comes from ANTHROPIC_API_KEY or
OPENAI_API_KEY. Without --provider it takes the API whose key is set.
"""


class Provider(SamplingProvider, AbstractAsyncContextManager["Provider"], Protocol):
    """A provider that keeps connections while it is open."""


KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
"""The environment variable with the key, by the name of a provider."""


@command("backfill", EXAMPLES, {Status.USAGE: "the command line is wrong, or there is no key"})
@click.argument("server", nargs=-1, type=click.UNPROCESSED, metavar="TARGET | -- COMMAND ...")
@click.option(
    "--provider", metavar="NAME|URL", help="anthropic, openai, or the base URL (with /v1) of a compatible API."
)
@click.option("--model", metavar="NAME", help="The model to ask (default: the first that the API lists).")
@click.option(
    "--elicit", type=click.Choice(["terminal"]), help="Ask for input at the terminal, if the host shows no forms."
)
@click.option("--share-key", is_flag=True, help="Let the command have the key of the API in its environment, too.")
@header_option
@click.option("--check-open", is_flag=True, hidden=True)
@click.option("--http", "over_http", is_flag=True, help="Serve the host over HTTP, instead of stdin and stdout.")
@click.option(
    "--max-sessions",
    type=WholeNumber(1),
    metavar="N",
    help=f"Sessions over HTTP, each with its server (default: {MAX_SESSIONS}).",
)
@serves_http
@click.pass_context
def command_line(
    ctx: click.Context,
    server: Sequence[str],
    provider: str | None,
    model: str | None,
    elicit: str | None,
    share_key: bool,
    check_open: bool,
    headers: Sequence[tuple[str, str]],
    over_http: bool,
    max_sessions: int | None,
    http: dict[str, object],
    debug: bool,
) -> int:
    """Give any server a model, for a host without one.

    TARGET is a URL, a command in quotes, a Python file or module, or a server of a file (mcp.json:name). Or put a command
    after --.
    """
    log_to_stderr(logging.DEBUG if debug else logging.WARNING)
    target = read_server(server)
    if check_open:
        # Loaded only for this, as by `run`; without a key, which the question does not need.
        check = import_module("..targets.passing", __package__).check_open_access
        connect_to, own = transport_options(target, dict(headers), None)
        return int(check(RelayServer(connection(connect_to, own), Backfill(), behind=behind_target(connect_to, own))))
    secret = None if share_key else KEYS.get(provider_name(provider), KEYS["openai"])
    connect_to, own = transport_options(target, dict(headers), secret, for_user=not over_http)
    connect = connection(connect_to, own)
    if not over_http:
        check_http_options(ctx)
    model_api = find_provider(provider, model)
    with ExitStack() as stack:
        on_form: OnForm | None = None
        if elicit is not None:
            on_form = Prompting(stack.enter_context(controlling_terminal()), (), ()).elicit
        relay = RelayServer(
            connect,
            Backfill(model_api, on_form),
            max_sessions=max_sessions or MAX_SESSIONS,
            behind=behind_target(connect_to, own),
            leads_to=words_of(connect_to),
        )
        if over_http:
            stack.enter_context(http_errors())
        with proxy_errors():
            run_process(partial(serve, model_api, http if over_http else None, relay))
    if isinstance(relay.failure, AuthorizationError):
        raise CommandError(str(relay.failure), status_of(relay.failure))
    if relay.failure is not None:
        raise CommandError(f"the server has gone: {relay.failure}", Status.UNREACHABLE)
    return 0


async def serve(provider: Provider, http: dict[str, object] | None, relay: RelayServer) -> None:
    """Serve hosts until they leave, or a signal comes."""
    # It keeps its connections to the API open in the block.
    async with provider:
        if http is None:
            await serve_over("stdio", relay, {})
        else:
            await serve_over("http", relay, http)


def read_server(words: Sequence[str]) -> CommandTarget | UrlTarget:
    """Return what the words name: one is a target, several are a command."""
    if not words:
        raise CommandError(
            "name a server: its URL, or after -- the command that starts it (trio-mcp backfill -- COMMAND)"
        )
    if len(words) > 1:
        if SCHEME.match(words[0]):
            raise CommandError(f"{words[0]!r} is a URL, and takes no words after it; a command comes after --")
        return CommandTarget(tuple(words))
    # One plain word is a command, as after -- it should be, and no module.
    if words[0].isidentifier():
        return CommandTarget(tuple(words))
    target = read_target(words[0])
    return started(target) if isinstance(target, PythonTarget) else target


def check_http_options(ctx: click.Context) -> None:
    """Raise `CommandError` for an option that is for HTTP only."""
    for name in (*HTTP_OPTIONS, "max_sessions"):
        if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            option = name.removesuffix("s") if name.startswith("allowed") else name
            raise CommandError(f"--{option.replace('_', '-')} is for a host over HTTP: add --http")


def provider_name(given: str | None) -> str:
    """Return the provider to use: the given one, or the API whose key is set.

    Raises:
        CommandError: none is given, and no key is set.
    """
    name = given if given is not None else next((each for each, key in KEYS.items() if os.environ.get(key)), None)
    if name is None:
        raise CommandError(f"there is no key of an API: set {' or '.join(KEYS.values())}, or give --provider URL")
    return name


def find_provider(name: str | None, model: str | None) -> Provider:
    """Return the provider of this name or base URL.

    Raises:
        CommandError: there is none of that name, or its key or its library is missing.
    """
    name = provider_name(name)
    url = name if SCHEME.match(name) else None
    if url is None and name not in KEYS:
        raise CommandError(f"--provider is {', '.join(KEYS)} or the base URL of an API, not {name!r}")
    if url is not None:
        check_base_url(url)
    if model == "":
        raise CommandError("--model is empty: leave it out for the first model that the API lists")
    if url is None and not os.environ.get(KEYS[name]):
        raise CommandError(f"there is no key for {name}: set {KEYS[name]}")
    try:
        # Loaded now, since a proxy without it would be of no use, and by no other command.
        from ...providers import AnthropicProvider, OpenAIProvider  # noqa: PLC0415

        if name == "anthropic":
            return AnthropicProvider(model=model)
        # Named, because a server that is named by its URL gets the key of another one only if the user wants that.
        return OpenAIProvider(model=model, base_url=url, api_key=os.environ.get(KEYS["openai"]))
    except ImportError as error:
        raise CommandError(str(error), Status.UNREACHABLE) from error
    except (ValueError, TypeError, McpError) as error:
        raise CommandError(f"--provider {name}: {error}") from error


def check_base_url(url: str) -> None:
    """Raise `CommandError` for a base URL that has a password in it, or is malformed."""
    try:
        check_no_password(url, "--provider", f"{KEYS['openai']} for a key")
    except ValueError as error:
        raise CommandError(f"--provider is not the base URL of an API: {error}") from error


def controlling_terminal() -> AbstractContextManager[ControllingTerminal]:
    """Return the terminal to ask at."""
    try:
        return closing(ControllingTerminal())
    except OSError as error:
        raise CommandError("--elicit terminal: there is no terminal to ask at") from error
