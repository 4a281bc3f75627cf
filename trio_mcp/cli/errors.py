"""How a command ends when it does not end well."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from enum import IntEnum

from ..errors import Disconnected, LocalProtocolError, McpError, PeerError


class Status(IntEnum):
    """Exit statuses; a command that a signal ended has 128 plus its number, which is 130 for Ctrl-C."""

    OK = 0
    TOOL_ERROR = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    BUG = 70


EXIT_STATUSES = """\
exit status:
  0    it worked
  1    the tool answered with an error result, or the demonstration went wrong
  2    the command line is wrong: an unknown option or tool, a bad key=value, an answer that does not fit
  3    the server could not be loaded, started or reached, or its connection ended
  4    the server refused, broke the protocol, or took longer than --timeout
  70   a bug in trio-mcp; --debug shows where
  130  interrupted by Ctrl-C
"""


class CommandError(Exception):
    """A command cannot go on; its text is the one line that its user is told."""

    def __init__(self, message: str, status: Status) -> None:
        super().__init__(message)
        self.status = status


DECLARED_BY = {"roots": "--root FOLDER", "sampling": "--sample TEXT"}
"""The option of `trio-mcp call` that declares a capability."""


@contextmanager
def translate_errors() -> Generator[None]:
    """What the library and the system raise, in the command's words."""
    try:
        yield
    except PeerError as error:
        raise CommandError(f"the server refused: {error}{capability_hint(error)}", Status.REFUSED) from error
    except Disconnected as error:
        raise CommandError(str(error), Status.UNREACHABLE) from error
    except LocalProtocolError as error:  # arguments or answers that JSON cannot hold
        raise CommandError(str(error), Status.USAGE) from error
    except McpError as error:
        raise CommandError(str(error), Status.REFUSED) from error
    except OSError as error:
        raise CommandError(f"the server could not be started: {error}", Status.UNREACHABLE) from error


def capability_hint(error: PeerError) -> str:
    """What would give the server the capability that it misses."""
    missing = error.data.get("requiredCapabilities") if isinstance(error.data, dict) else None
    wanted = [option for name, option in DECLARED_BY.items() if isinstance(missing, dict) and name in missing]
    return f"; give {' and '.join(wanted)}" if wanted else ""
