"""Errors of a command, and the exit statuses that they lead to."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Final

from ..base.values import JsonValue
from ..errors import AuthorizationError, AuthorizationErrorKind, Disconnected, LocalProtocolError, McpError, PeerError


class Status(IntEnum):
    """Exit statuses. A command that a signal ended has 128 plus the number of the signal, which is 130 for Ctrl-C."""

    # 2 is what click exits with for a wrong command line, and 70 is EX_SOFTWARE of sysexits.h. The error of a tool is
    # apart from every other failure, so that a script can tell "the tool said no" from "there was no answer".
    OK = 0
    TOOL_ERROR = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    BUG = 70


STATUSES: Final[Mapping[int, str]] = {
    Status.OK: "it worked",
    Status.USAGE: "the command line is wrong",
    Status.UNREACHABLE: "the server could not be loaded, started or reached, its connection ended, or a file cannot be used",
    Status.BUG: "a bug in trio-mcp (--debug shows where)",
    130: "interrupted by Ctrl-C",
}
"""What the exit statuses of every command mean; a command may have others, or say more about one."""
REFUSED: Final[Mapping[int, str]] = {
    Status.USAGE: "the command line is wrong: an unknown option or name, a bad key=value, an answer that does not fit",
    Status.REFUSED: "the server rejected a request, broke the protocol, or took longer than --timeout",
}
"""The same for commands that send requests."""


def exit_statuses(own: Mapping[int, str]) -> str:
    """Return the part of a help that explains the exit statuses of a command."""
    lines = [f"  {status:<4d} {text}\n" for status, text in sorted({**STATUSES, **own}.items())]
    return f"exit status:\n{''.join(lines)}"


class CommandError(Exception):
    """A command fails; its text is the one line that the user reads."""

    def __init__(self, message: str, status: Status = Status.USAGE) -> None:
        super().__init__(message)
        self.status = status


NOT_REACHED: Final = (AuthorizationErrorKind.STORE, AuthorizationErrorKind.UNAVAILABLE)
"""Why there is no token, if that is not a refusal: a file cannot be used, or a server cannot be reached."""

DECLARED_BY = {"roots": "--root FOLDER", "sampling": "--sample TEXT"}
"""The option of `trio-mcp call` that declares a capability."""


class Rejection(PeerError):
    """The user refused to answer a question. A legacy server receives it as this error; a modern one receives nothing."""


class AlreadyReported(CommandError):
    """A command fails, and another process of it has written why."""


@contextmanager
def translate_errors(*, starts_file: bool = False, failed: str = "the server could not be started") -> Generator[None]:
    """Raise `CommandError`, with a text and a status for the user, for an error of the library or the system.

    Args:
        starts_file: the server is a `trio-mcp run` that the block has started.
        failed: what an error of the system means.

    Raises:
        AlreadyReported: that command could not load its file.
    """
    try:
        yield
    except Rejection as error:
        raise CommandError(error.message, Status.REFUSED) from error
    except PeerError as error:
        missing = error.data.get("requiredCapabilities") if isinstance(error.data, dict) else None
        raise rejected(str(error), missing) from error
    except Disconnected as error:
        # The only status with which `trio-mcp run` ends after it has written an error.
        if starts_file and f"exited with status {Status.UNREACHABLE:d}" in str(error):
            raise AlreadyReported(str(error), Status.UNREACHABLE) from error
        raise CommandError(str(error), Status.UNREACHABLE) from error
    # Before `McpError`, whose subclass it is: arguments or answers that JSON cannot hold are the user's mistake.
    except LocalProtocolError as error:
        raise CommandError(str(error)) from error
    except AuthorizationError as error:
        raise CommandError(str(error), status_of(error)) from error
    except McpError as error:
        raise CommandError(str(error), Status.REFUSED) from error
    # The reader of the output has left. This is not about the server.
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"{failed}: {error}", Status.UNREACHABLE) from error


def status_of(error: AuthorizationError) -> Status:
    """Return the exit status for a login that failed, or is not there."""
    return Status.UNREACHABLE if error.kind in NOT_REACHED else Status.REFUSED


def rejected(why: str, missing: JsonValue) -> CommandError:
    """Return the error of a call that the server rejected; it names the options that declare the `missing` capabilities."""
    wanted = [option for name, option in DECLARED_BY.items() if isinstance(missing, dict) and name in missing]
    hint = f"; give {' and '.join(wanted)}" if wanted else ""
    sampling = missing.get("sampling") if isinstance(missing, dict) else None
    if isinstance(sampling, dict) and "tools" in sampling:
        hint = "; trio-mcp call cannot answer with tools"
    return CommandError(f"the server rejected it: {why}{hint}", Status.REFUSED)
