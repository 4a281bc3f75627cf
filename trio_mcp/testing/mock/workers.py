"""Serving a server to one client as one process, or as several that share their keys.

    client ---- channel ---- Workers ---+--- worker 1: a service with its own calls
                                        +--- worker 2: another one, after `use_second`

What the client sends goes to the worker in use; what any worker sends goes to the client. Modern requests need no session, so
that the next worker can serve the next request.
"""

from __future__ import annotations

from dataclasses import replace

import trio

from ...protocol.jsonrpc import Request
from ...protocol.sealing.request_state import KeyRing
from ...server import Server
from ...session import AnyChannel, Caller
from ...session.channel import MessageChannel, as_message_channel
from ...session.envelope import Envelope, Peer, Received, Sent

FIRST_LOOK = 0.01
LAST_LOOK = 1.0
"""Seconds between two looks at whether a tool still waits for an answer; they double."""


def without_file(server: Server) -> Server:
    """Return the server with its state in memory, unless its options have an open store."""
    # A test must neither need the keys of the deployment nor write into its store, not even that of `TRIO_MCP_STORE`, and a fake
    # clock does not wait for the threads that write.
    options = server.options
    if isinstance(options.store, str | None):
        return server.copy(options=replace(options, store="memory:"))
    return server


class WorkerChannel(MessageChannel):
    """The server's end of the connection of one worker."""

    in_process = True

    def __init__(self, client: MessageChannel, peer: Peer) -> None:
        self.peer = peer
        self.raised = client.raised
        self._client = client
        self.inbox, self._received = trio.open_memory_channel[Envelope[Received]](1)

    async def send(self, value: Envelope[Sent]) -> None:
        """Send a message to the client."""
        await self._client.send(value)

    async def receive(self) -> Envelope[Received]:
        """Return the next message that was given to this worker."""
        return await self._received.receive()

    async def aclose(self) -> None:
        """Take no more messages. The connection of the client stays open for the other workers."""
        self._received.close()
        await trio.lowlevel.checkpoint()


class Workers:
    """A `ChannelServer` of one connection, whose requests may move to a second worker.

    Args:
        caller: the identity of the client; None for none.
        shares_keys: whether the second worker may be used. All workers then open each other's states, as processes with the same
            TRIO_MCP_KEYS do; a server without such keys knows that no other process can continue its calls.

    Attributes:
        legs: how many requests of the method `tools/call` have come.
    """

    def __init__(self, server: Server, caller: Caller | None, *, shares_keys: bool) -> None:
        if shares_keys and server.options.keys is None:
            keys = KeyRing.from_environment() or KeyRing.random()
            server = server.copy(options=replace(server.options, keys=keys))
        self._server = without_file(server)
        self._peer = Peer() if caller is None else Peer(caller.principal, known_caller=caller)
        self._wanted = 1
        self._lost = trio.CancelScope()
        self.legs = 0

    def use_second(self) -> None:
        """Send everything from now on to another worker."""
        self._wanted += 1

    def disconnect(self) -> None:
        """Lose the connection: the client and every worker find it closed."""
        self._lost.cancel()

    async def wait_given_up(self, key: str) -> None:
        """Wait until no call of the server waits for the answer to a question of a round."""
        # Looked at now and then, because nothing is sent to a client that has no request open.
        pause = FIRST_LOOK
        while self._is_open(key):
            await trio.sleep(pause)
            pause = min(2 * pause, LAST_LOOK)

    def _is_open(self, key: str) -> bool:
        actors = (actor for service in self._server.services for actor in service.supervisor.actors)
        return any(actor.opened_mailbox is not None and key in actor.opened_mailbox for actor in actors)

    async def serve_channel(self, channel: AnyChannel, /) -> None:
        """Serve the client until the connection ends; the calls of all workers have cleaned up then."""
        channel = as_message_channel(channel)
        async with trio.open_nursery() as nursery:
            workers: list[WorkerChannel] = []
            try:
                with self._lost:
                    while True:
                        envelope = await channel.receive()
                        if len(workers) < self._wanted:
                            workers.append(WorkerChannel(channel, self._peer))
                            nursery.start_soon(self._server.serve_channel, workers[-1])
                        self._count(envelope)
                        await workers[-1].inbox.send(envelope._replace(peer=self._peer))
            except (trio.EndOfChannel, trio.BrokenResourceError):
                pass  # the client or the worker has ended the connection
            finally:
                for worker in workers:
                    worker.inbox.close()
                if self._lost.cancel_called:
                    await trio.aclose_forcefully(channel)

    def _count(self, envelope: Envelope[Received]) -> None:
        if isinstance(envelope.message, Request) and envelope.message.method == "tools/call":
            self.legs += 1
