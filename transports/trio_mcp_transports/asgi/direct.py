"""The direct way of a request: what the connection and the application say to each other without ASGI messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .messages import Headers, Receive, Respond, Send, respond


class DirectRequest(NamedTuple):
    """A POST or a GET that has come whole.

    Attributes:
        method: POST or GET.
        path: as it was sent.
        headers: by their names in lower case; no name came twice.
        body: at most 64 KiB.
        connection: tells its connection from others.
        receive: belongs to the `RequestEvents` of the request; for a response that is sent by a task.
        send: for a response that is sent in parts, as ASGI messages.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: Hashable
    receive: Receive
    send: Send


class DirectApp(ABC):
    """An ASGI application that takes requests without ASGI messages."""

    @property
    @abstractmethod
    def takes_direct_requests(self) -> bool:
        """Whether it takes any."""

    @property
    @abstractmethod
    def may_wait(self) -> bool:
        """Whether other tasks should have a turn of the event loop before `process_directly` is called."""

    @abstractmethod
    async def wait(self) -> None:
        """Let them have it."""

    @abstractmethod
    def process_directly(self, request: DirectRequest) -> Respond | None:
        """Process a request, and return what sends its response.

        None if the request is to be served over ASGI, which includes every request whose head or body is refused; nothing was
        done for it then.
        """


def direct_app(app: object) -> DirectApp | None:
    """Return `app` if nothing is lost when it is not called with ASGI messages: it is a `DirectApp` with its own `__call__`."""
    if not isinstance(app, DirectApp):
        return None
    owner = next(kind for kind in type(app).__mro__ if "__call__" in vars(kind))
    return app if "process_directly" in vars(owner) else None


@dataclass(slots=True, eq=False)
class KnownResponse:
    """A whole response. It is sent by a call, or by a server that knows it, in one write."""

    send: Send
    status: int
    body: bytes = b""
    headers: Headers = ()

    async def __call__(self) -> None:
        await respond(self.send, self.status, self.body, self.headers)


class StreamPart(NamedTuple):
    """A part of a response that is a stream.

    Attributes:
        headers: of the response, whose status is 200; None if an earlier part had them.
        is_last: nothing follows.
    """

    headers: Headers | None
    body: bytes
    is_last: bool


class OpenResponse:
    """The response to a request whose call may still run.

    A call sends it, to its end, or the rest of it. Before that, a server without a task for the request may `watch` it:

        it is known before anything was sent          `take_known`, and `finish` when it has been sent
        something is to be sent before the answer     `take_part`; sent, `watch` again, or `finish` after the last
        nothing is to be sent for `max_silence`       `take_filler`, as a part
        a part can only be had by waiting             it is called, in a task
        its client leaves                             `lose`
    """

    __slots__ = ()

    @property
    def max_silence(self) -> float:
        """Seconds without anything to send after which a filler is due."""
        raise NotImplementedError

    def watch(self, on_ready: Callable[[], None]) -> bool:
        """Call `on_ready` when there is something to send, once or more often; return False, and do not, if there is already."""
        raise NotImplementedError

    def take_known(self) -> KnownResponse | None:
        """Return the whole response; None if it is none, or none yet."""
        raise NotImplementedError

    @property
    def is_complete(self) -> bool:
        """Whether nothing follows what is to be sent now."""
        raise NotImplementedError

    def take_part(self) -> StreamPart | None:
        """Return what is to be sent now of a stream; None, and nothing is taken, if it has to be waited for."""
        raise NotImplementedError

    def take_filler(self) -> StreamPart | None:
        """Return what is to be sent after a silence; None, and nothing is taken, if it has to be waited for."""
        raise NotImplementedError

    def finish(self) -> None:
        """Note that all of it has been sent."""
        raise NotImplementedError

    def lose(self) -> None:
        """Note that the client has gone."""
        raise NotImplementedError

    async def __call__(self) -> None:
        """Send it."""
        raise NotImplementedError
