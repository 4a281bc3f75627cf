"""`trio-mcp backfill`: a proxy that gives any server a model, for hosts without one."""

from __future__ import annotations

import gc
import logging
import os
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, asynccontextmanager, closing
from functools import partial
from typing import Protocol
from urllib.parse import urlsplit

import trio

from ..client.target import check_url, open_target
from ..errors import ConfigurationError, McpError
from ..groups import single_exception
from ..relay import Backfill, Connect, OnForm, RelayServer
from ..relay.server import MAX_SESSIONS
from ..sampling import SamplingProvider
from ..server.running import GC_THRESHOLD
from ..session import MessageChannel, as_message_channel, find_transport
from ..session.transport import owned_process
from .arguments import pairs
from .call import SCHEME, read_target
from .errors import CommandError, Status
from .numbers import count
from .output import log_to_stderr
from .prompting import Prompting
from .serve import describe_http, http_errors, http_options
from .terminal import ControllingTerminal

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


def describe(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("url", nargs="?", metavar="URL", help="the URL of a server; or put a command that starts one after --")
    add("--provider", metavar="NAME|URL", help="anthropic, openai, or the base URL (with /v1) of a compatible API")
    add("--model", metavar="NAME", help="the model to ask (default: the first that the API lists)")
    add("--elicit", choices=("terminal",), help="ask for input at the terminal, if the host shows no forms")
    add("--share-key", action="store_true", help="let the command have the key of the API in its environment, too")
    add("--header", action="append", default=[], metavar="NAME=VALUE", help="an HTTP header for URL; repeatable")
    add("--http", action="store_true", help="serve the host over HTTP, instead of stdin and stdout")
    add(
        "--max-sessions",
        type=count,
        metavar="N",
        help=f"sessions over HTTP, each with its server (default: {MAX_SESSIONS})",
    )
    describe_http(parser)
    parser.epilog = EXAMPLES


def execute(options: Namespace) -> int:
    """Run the proxy and return its exit status. Raises `CommandError`."""
    log_to_stderr(logging.DEBUG if options.debug else logging.WARNING)
    connect = connection(options)
    check_http_options(options)
    provider = find_provider(options.provider, options.model)
    with ExitStack() as stack:
        on_form: OnForm | None = None
        if options.elicit is not None:
            on_form = Prompting(stack.enter_context(controlling_terminal()), (), ()).elicit
        relay = RelayServer(connect, Backfill(provider, on_form), max_sessions=options.max_sessions or MAX_SESSIONS)
        if options.http:
            stack.enter_context(http_errors())
        try:
            run_relay(partial(serve, provider, options), relay)
        except Exception as error:
            raise command_error(single_exception(error)) from error
    if relay.failure is not None:
        raise CommandError(f"the server has gone: {relay.failure}", Status.UNREACHABLE)
    return 0


def run_relay(serve: Callable[[RelayServer], Awaitable[None]], relay: RelayServer) -> None:
    """Run a Trio loop that serves a proxy, in a process that exists for nothing else."""
    # As `Server.run` does, and for the same reason.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    with owned_process():
        trio.run(serve, relay)


async def serve(provider: Provider, options: Namespace, relay: RelayServer) -> None:
    """Serve hosts until they leave, or a signal comes."""
    # It keeps its connections to the API open in the block.
    async with provider:
        if options.http:
            await find_transport("http").serve(relay, **http_options(options))
        else:
            await find_transport("stdio").serve(relay)


def connection(options: Namespace) -> Connect:
    """Return what opens a connection to the server."""
    command: list[str] = options.started
    if bool(command) == bool(options.url):
        raise CommandError(
            "name a server: its URL, or after -- the command that starts it (trio-mcp backfill -- COMMAND)"
        )
    if options.url and not SCHEME.match(options.url):
        raise CommandError(f"{options.url!r} is not a URL; a command comes after --")
    if options.url:
        check_server(options.url)
    headers = dict(pairs(options.header, "--header ", "NAME=VALUE, such as authorization='Bearer ...'"))
    if headers and command:
        raise CommandError("--header is for the URL of a server; a command gets no headers")
    target = command or read_target(options.url)
    environment = environment_for(options) if command else {}

    @asynccontextmanager
    async def connect() -> AsyncIterator[MessageChannel]:
        own: dict[str, object] = {"env": environment} if command else {"headers": headers}
        async with open_target(target, own) as channel:
            yield as_message_channel(channel)

    return connect


def check_server(url: str) -> None:
    """Raise `CommandError` for a URL that cannot be connected to, or that shows a secret in errors."""
    try:
        check_url(url)
    except ValueError as error:
        raise CommandError(str(error) if "@" not in url else "the URL of the server is malformed") from error
    check_no_password(url, "the URL of the server", "--header authorization='Basic ...'")


def check_no_password(url: str, what: str, instead: str) -> None:
    """Raise `CommandError` for a URL with a user or a password: hosts read it in errors, and it stands in logs."""
    if "@" in urlsplit(url).netloc:
        raise CommandError(f"{what} has a user or a password in it: use {instead}")


def environment_for(options: Namespace) -> dict[str, str]:
    """Return the environment of the server's command: that of the proxy, without the key of its provider."""
    # Who wrote the command into the configuration of a host set the variables for it, but the key for the proxy.
    secret = None if options.share_key else KEYS.get(provider_name(options.provider), KEYS["openai"])
    return {name: value for name, value in os.environ.items() if name != secret}


def check_http_options(options: Namespace) -> None:
    """Raise `CommandError` for an option that is for HTTP only."""
    parser = ArgumentParser()
    describe_http(parser)
    for name, default in {**vars(parser.parse_args([])), "max_sessions": None}.items():
        if not options.http and getattr(options, name) != default:
            raise CommandError(f"--{name.replace('_', '-')} is for a host over HTTP: add --http")


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
        from ..providers import AnthropicProvider, OpenAIProvider  # noqa: PLC0415

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


def command_error(error: Exception) -> Exception:
    """Return the error for the user of a proxy that could not be started."""
    if isinstance(error, OSError):
        return CommandError(f"the server could not be started: {error}", Status.UNREACHABLE)
    if isinstance(error, McpError) and not isinstance(error, ConfigurationError):
        return CommandError(str(error), Status.UNREACHABLE)
    return error
