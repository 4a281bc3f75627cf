"""A legacy session that an earlier process has left, with its streams and the calls whose answers are owed on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trio_mcp.protocol.meta import PROGRESS_TOKEN
from trio_mcp.session import Peer
from trio_mcp.session.calls.earlier import EarlierRun
from trio_mcp.session.kept_requests import LeftCall, resume_requests
from trio_mcp.types import ProgressToken

from .left_streams import LeftStream
from .sessions import LegacySession
from .stored import EPOCH_IDS, LeftSession, SessionHome
from .streams import SessionStream


@dataclass(frozen=True, slots=True)
class Restoration:
    """Brings one session back.

    Args:
        entry: the session, which is in no table yet.
        new_stream: makes a stream of the session for a peer.
        on_unread: sees to a stream that has no reader.
    """

    home: SessionHome
    left: LeftSession
    entry: LegacySession
    new_stream: Callable[[LegacySession, Peer], SessionStream]
    on_unread: Callable[[LegacySession, SessionStream], None]

    async def run(self, peer: Peer) -> Sequence[str]:
        """Read what was said on the streams that are not over, and go on with them.

        Args:
            peer: who asks for the session now. Its headers are those of the calls that go on.

        Returns:
            the keys of the calls that have their answers. It returns in the step in which the calls go on.

        Raises:
            Exception: whatever the store raises; then nothing goes on.
        """
        place, streams = self.left.place, self.entry.streams
        streams.log.opened = streams.log.opened_before = place.epoch * EPOCH_IDS
        by_stream: dict[int, list[LeftCall]] = {}
        for call in self.left.calls:
            by_stream.setdefault(call.record.stream, []).append(call)
        said = {number: await streams.log.left(number) for number in by_stream}
        standalone = None if not place.standalone else await streams.log.left(place.standalone)
        # From here on in one step: no message of the client may come in between.
        self.entry.store_in(self.home, place)
        if standalone is not None:
            stream = self.new_stream(self.entry, peer)
            stream.continue_after(place.standalone, standalone.last)
            streams.standalone = stream
        return [key for number, calls in by_stream.items() for key in self._resume(number, calls, said[number], peer)]

    def _resume(self, number: int, calls: Sequence[LeftCall], said: LeftStream, peer: Peer) -> Sequence[str]:
        """Go on with a stream; return the keys of its calls that have their answers."""
        owed = [resumable(call, said) for call in calls if call.record.id not in said.answered]
        if not said.is_whole and not self.entry.streams.log.is_in(self.home.store):
            # The lost events may have contained their answers.
            owed = [replace(call, run=EarlierRun(is_readable=False)) for call in owed]
        if owed:
            stream = self.new_stream(self.entry, peer)
            stream.continue_after(number, said.last)
            listener, stream.kept = resume_requests(self.entry.session, stream.outbox, owed, peer, self.entry.holding)
            stream.listener = listener
            self.on_unread(self.entry, stream)
        return [call.key for call in calls if call.record.id in said.answered]


def resumable(call: LeftCall, said: LeftStream) -> LeftCall:
    """Return the call with what its stream says of it: which questions were sent, and the progress that was reported."""
    run = call.run
    sent = {key: request for key, request in run.requests.items() if request.id in said.asked}
    token = progress_token(call)
    progress = None if token is None else said.progress.get(token)
    return replace(call, run=replace(run, requests=sent, progress=progress))


def progress_token(call: LeftCall) -> ProgressToken | None:
    """Return the token under which a call reports its progress."""
    meta = call.record.params.get("_meta")
    token = meta.get(PROGRESS_TOKEN) if isinstance(meta, dict) else None
    return token if isinstance(token, str | int) else None
