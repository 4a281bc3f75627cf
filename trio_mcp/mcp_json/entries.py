"""One server of a host's file, as a value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from ..base.checks import nearest
from ..base.named_tuples import NamedTuple
from ..base.values import JsonValue
from ..errors import ConfigurationError
from .variables import BARE, Variables, read_env_file

Wire: TypeAlias = Literal["stdio", "http", "sse", "websocket"]

WIRES: Final[Mapping[str, Wire]] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "remote": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "sse": "sse",
    "ws": "websocket",
    "websocket": "websocket",
}
"""The values of `type`, and of `transport`, its other name."""

URLS: Final = ("url", "httpUrl", "serverUrl")
ALIASES: Final = {"environment": "env", "transport": "type", "cmd": "command", "envs": "env", "uri": "url"}
"""Other names of members; the last three are those of goose."""
LISTS: Final = ("includeTools", "excludeTools", "disabledTools", "tools")
FLAGS: Final = ("disabled", "enabled")
OF_COMMANDS: Final = ("command", "args", "env", "envFile", "cwd")
OF_URLS: Final = (*URLS, "headers", "oauth", "auth")
OAUTH_MEMBERS: Final[Mapping[str, Mapping[str, str]]] = {
    "oauth": {"clientId": "client_id", "callbackPort": "redirect_port", "scopes": "scopes"},
    "auth": {"CLIENT_ID": "client_id", "CLIENT_SECRET": "client_secret", "scopes": "scopes"},
}
"""How Claude Code and Cursor write the OAuth client of a server."""
UNUSED: Final = frozenset(
    {
        "alwaysAllow",
        "autoApprove",
        "available_tools",
        "bundled",
        "description",
        "dev",
        "displayName",
        "env_keys",
        "gallery",
        "icon",
        "name",
        "timeout",
        "trust",
        "version",
    }
)
"""What hosts write for themselves: for their windows, about their users' consent, or in units that differ."""
KNOWN: Final = frozenset({"type", *ALIASES, *LISTS, *FLAGS, *OF_COMMANDS, *OF_URLS})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredServer:
    """What servers of both kinds have.

    Attributes:
        name: the server's name in the file.
        only: the names of the tools to use; None for all.
        without: the names of the tools not to use.
    """

    name: str
    only: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandServer(StoredServer):
    """A server that is started as a child process.

    Attributes:
        command: the executable and its arguments.
        env: the variables that the file gives it.
        cwd: its working directory; None for that of this process.
    """

    command: tuple[str, ...]
    # Neither these nor headers are shown: they hold secrets.
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """The OAuth client that a file names for a server, as it was registered by hand.

    Attributes:
        scopes: those to request; None for those that the server asks for.
        redirect_port: the port of its redirect URI; 0 for any.
    """

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] | None = None
    redirect_port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlServer(StoredServer):
    """A server that is reached at a URL.

    Attributes:
        url: where.
        headers: sent with every request.
        wire: "http", "sse" or "websocket".
        oauth: the client for logging in; None if the file names none.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    wire: Wire = "http"
    oauth: OAuthClient | None = None


HostServer: TypeAlias = CommandServer | UrlServer
"""A server of a host's file."""


class Entry:
    """The members of one server in a file.

    Args:
        where: names the entry in errors.
        variables: None leaves texts as they are in the file, and reads no file with variables.
        warnings: receives what is ignored.
    """

    def __init__(
        self, name: str, value: JsonValue, where: str, variables: Variables | None, warnings: list[str]
    ) -> None:
        if not isinstance(value, dict):
            raise ConfigurationError(f"{where} is no object with a command or a url")
        self._name = name
        self._members: dict[str, JsonValue] = {}
        self._where = where
        self._variables = variables
        self._warnings = warnings
        for key, member in value.items():
            known = ALIASES.get(key, key)
            if known in self._members:
                raise ConfigurationError(f"{where}: {key!r} and {known!r} are one member; write one of them")
            self._members[known] = member

    @property
    def is_disabled(self) -> bool:
        """Whether the file has the server, but turns it off.

        Raises:
            ConfigurationError: a flag is not a boolean.
        """
        flags = {"disabled": False, "enabled": True}
        for key in FLAGS:
            flag = self._members.get(key, flags[key])
            if not isinstance(flag, bool):
                raise ConfigurationError(f"{self._where}.{key} must be true or false")
            flags[key] = flag
        return flags["disabled"] or not flags["enabled"]

    def server(self) -> HostServer:
        """Return the server.

        Raises:
            ConfigurationError: a member has the wrong type or no value, or it is neither a command nor a URL.
        """
        self._name_unknown()
        wire = self._wire()
        urls = [key for key in URLS if key in self._members]
        if "command" in self._members and urls:
            raise ConfigurationError(f"{self._where} has both 'command' and {urls[0]!r}; a server has one of them")
        if "command" in self._members:
            return self._command(wire)
        if urls:
            return self._url(urls[0], wire)
        unknown = [f"{key!r}{_advice(key)}" for key in self._members if key not in KNOWN | UNUSED]
        found = f"; it has {', '.join(unknown)}" if unknown else ""
        raise ConfigurationError(f"{self._where} has neither 'command' nor 'url'{found}")

    def _command(self, wire: Wire | None) -> CommandServer:
        if wire not in (None, "stdio"):
            raise ConfigurationError(f"{self._where}.type is not that of a command, which is 'stdio'")
        self._ignore(OF_URLS, "of a command")
        command = self._members["command"]
        # Some hosts write the arguments into it.
        words = [self._text("command")] if isinstance(command, str) else self._texts("command")
        if not words or not words[0]:
            raise ConfigurationError(f"{self._where}.command names no executable")
        cwd = self._optional("cwd")
        only, without = self._tools()
        return CommandServer(
            name=self._name,
            only=only,
            without=without,
            command=(*words, *self._texts("args")),
            env={**self._env_file(), **self._mapping("env")},
            cwd=None if cwd is None else str(self._path(cwd, "cwd")),
        )

    def _url(self, key: str, wire: Wire | None) -> UrlServer:
        if wire == "stdio":
            raise ConfigurationError(f"{self._where}.type is that of a command, but the server has {key!r}")
        self._ignore(OF_COMMANDS, "of a URL")
        url = self._text(key)
        if wire is None:
            wire = "websocket" if url.lower().startswith(("ws://", "wss://")) else "http"
        only, without = self._tools()
        return UrlServer(
            name=self._name,
            only=only,
            without=without,
            url=url,
            headers=self._mapping("headers"),
            wire=wire,
            oauth=self._oauth(),
        )

    def _oauth(self) -> OAuthClient | None:
        found = [key for key in OAUTH_MEMBERS if self._members.get(key) is not None]
        if len(found) > 1:
            raise ConfigurationError(f"{self._where} has both 'oauth' and 'auth'; write one of them")
        return self._oauth_client(found[0]) if found else None

    def _oauth_client(self, key: str) -> OAuthClient:
        value = self._members[key]
        if not isinstance(value, dict):
            raise ConfigurationError(f"{self._where}.{key} must be an object")
        for name in value.keys() - OAUTH_MEMBERS[key].keys():
            self._warnings.append(f"{self._where}.{key}.{name} is unknown, and was ignored")
        members = {known: value[name] for name, known in OAUTH_MEMBERS[key].items() if value.get(name) is not None}
        port, scopes = members.pop("redirect_port", 0), members.pop("scopes", None)
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
            raise ConfigurationError(f"{self._where}.{key}.callbackPort must be the number of a port")
        # One text with spaces in Claude Code, a list in Cursor.
        parts = scopes.split() if isinstance(scopes, str) else scopes
        if not isinstance(parts, list | None):
            raise ConfigurationError(f"{self._where}.{key}.scopes must be a list of strings, or a string")
        texts = {name: self._expanded(text, f"{key}.{name}") for name, text in members.items()}
        return OAuthClient(
            client_id=texts.get("client_id"),
            client_secret=texts.get("client_secret"),
            scopes=None if parts is None else tuple(self._expanded(each, f"{key}.scopes") for each in parts),
            redirect_port=port,
        )

    def _wire(self) -> Wire | None:
        kind = self._members.get("type")
        if kind is None:
            return None
        if not isinstance(kind, str) or kind not in WIRES:
            raise ConfigurationError(f"{self._where}.type is {kind!r:.80}, which is none of {', '.join(WIRES)}")
        return WIRES[kind]

    def _tools(self) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
        only: tuple[str, ...] | None = None
        for key in ("includeTools", "tools"):
            if key in self._members:
                names = tuple(self._texts(key))
                only = names if only is None else tuple(name for name in only if name in names)
        return only, (*self._texts("excludeTools"), *self._texts("disabledTools"))

    # members

    def _text(self, key: str) -> str:
        return self._expanded(self._members[key], key)

    def _optional(self, key: str) -> str | None:
        return None if self._members.get(key) is None else self._text(key)

    def _texts(self, key: str) -> list[str]:
        value = self._members.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise ConfigurationError(f"{self._where}.{key} must be a list of strings")
        return [self._expanded(each, f"{key}[{index}]") for index, each in enumerate(value)]

    def _mapping(self, key: str) -> dict[str, str]:
        value = self._members.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise ConfigurationError(f"{self._where}.{key} must be an object of strings")
        # Null, in some hosts, is a variable that is not set.
        return {name: self._expanded(text, f"{key}.{name}") for name, text in value.items() if text is not None}

    def _expanded(self, value: JsonValue, key: str) -> str:
        where = f"{self._where}.{key}"
        if isinstance(value, int | float) and not isinstance(value, bool) and key.startswith("env."):
            return str(value)
        if not isinstance(value, str):
            raise ConfigurationError(f"{where} must be a string, not {type(value).__name__}")
        if self._variables is None:
            return value
        if BARE.fullmatch(value) and not self._variables.bare:
            self._warnings.append(f"{where} is passed as it is; for the value of the variable write ${{{value[1:]}}}")
        return self._variables.expand(value, where)

    def _env_file(self) -> dict[str, str]:
        path = self._optional("envFile")
        if path is None or self._variables is None:
            return {}
        return read_env_file(self._path(path, "envFile"), f"{self._where}.envFile")

    def _path(self, text: str, key: str) -> Path:
        if self._variables is None:
            return Path(text)
        try:
            return self._variables.folder / Path(text).expanduser()
        except RuntimeError:
            raise ConfigurationError(
                f"{self._where}.{key}: {text!r:.200} names the home of a user who is not known here"
            ) from None

    # what is ignored

    def _name_unknown(self) -> None:
        for key in self._members:
            if key not in KNOWN and key not in UNUSED:
                self._warnings.append(f"{self._where}.{key} is unknown, and was ignored{_advice(key)}")

    def _ignore(self, keys: Iterable[str], why: str) -> None:
        for key in keys:
            if key in self._members:
                self._warnings.append(f"{self._where}.{key} is no member {why}, and was ignored")


def _advice(key: str) -> str:
    """Return the member that was probably meant, in parentheses; empty if none was."""
    question = nearest(key, KNOWN)
    return f" ({question})" if question else ""


class FoundServer(NamedTuple):
    """What a file says of one server.

    Attributes:
        server: None if it cannot be used.
        error: why.
        enabled: False if the file turns it off.
    """

    name: str
    server: HostServer | None
    error: ConfigurationError | None
    enabled: bool


def read_servers(
    members: Mapping[str, JsonValue], source: str, variables: Variables | None, warnings: list[str]
) -> Iterator[FoundServer]:
    """Yield the servers in the object that has them by their names.

    Args:
        variables: None leaves texts as they are in the file.
        warnings: receives what is ignored.
    """
    for name, value in members.items():
        enabled = True
        try:
            entry = Entry(name, value, f"{source}: {name}", variables, warnings)
            enabled = not entry.is_disabled
            yield FoundServer(name, entry.server(), None, enabled)
        except ConfigurationError as error:
            yield FoundServer(name, None, error, enabled)


def as_entries(value: JsonValue, where: str) -> dict[str, JsonValue]:
    """Return the object that has the servers by their names.

    Raises:
        ConfigurationError: it is not an object.
    """
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where} must be an object of servers by their names")
    return value
