"""How a peer of the contract is notified of changes, in either era."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.jsonrpc import RequestId
from ...protocol.revisions import SUBSCRIPTION_ID
from ...types import JsonObject
from .peer import Peer

LISTS = ("tools", "prompts", "resources")
UPDATED = "notifications/resources/updated"
CHANGES = (UPDATED, *(f"notifications/{name}/list_changed" for name in LISTS))


class Watch:
    """One listener: a stream in the modern era, the session with its subscriptions in the legacy era."""

    def __init__(self, peer: Peer, stream: RequestId | None, uris: Sequence[str]) -> None:
        self._peer = peer
        self._stream = stream
        self._uris = uris

    async def heard(self) -> str:
        """Return the next change: the name of a list, or the URI of a resource."""
        message = await self._peer.first(self._is_ours)
        params = message.get("params")
        if message["method"] == UPDATED:
            assert isinstance(params, dict), message
            return str(params["uri"])
        return str(message["method"]).split("/")[1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._stream is not None:
            await self._peer.cancel(self._stream)
            return
        for uri in self._uris:
            assert await self._peer.result(await self._peer.request("resources/unsubscribe", {"uri": uri})) == {}

    def _is_ours(self, message: JsonObject) -> bool:
        return message.get("method") in CHANGES and self._stream in (None, stream_of(message))


async def watch(peer: Peer, *, lists: bool = False, uris: Sequence[str] = ()) -> Watch:
    """Subscribe to changes of the lists and of these resources; return when the server has confirmed it.

    In the legacy era every session is notified of the lists.
    """
    if not peer.modern:
        for uri in uris:
            assert await peer.result(await peer.request("resources/subscribe", {"uri": uri})) == {}
        return Watch(peer, None, uris)
    wanted: JsonObject = {f"{name}ListChanged": True for name in LISTS} if lists else {}
    if uris:
        wanted["resourceSubscriptions"] = list(uris)
    stream = await peer.request("subscriptions/listen", {"notifications": wanted})
    honoured = await peer.message("notifications/subscriptions/acknowledged")
    assert honoured["params"] == {"_meta": {SUBSCRIPTION_ID: stream}, "notifications": wanted}, honoured
    return Watch(peer, stream, uris)


def stream_of(message: JsonObject) -> object:
    """Return the subscription id that a message names, if any."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta.get(SUBSCRIPTION_ID) if isinstance(meta, dict) else None


def changes(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the messages that announce a change."""
    return [message for message in messages if message.get("method") in CHANGES]
