"""What a proxy with several principals binds to each of them, though its server takes all of them for one caller.

An idempotency key goes on with a digest of the principal before it. What the server gives out, and wants back, is sealed for the
principal that gets it: `requestState`, the ids of tasks, and the links of results that are kept. The proxy stores nothing.
"""

# Where a task's id stands (2025-11-25; the tasks extension of 2026-07-28), besides the `_meta` of whatever belongs to a task:
#
#     from the server    result of a request           taskId, or task.taskId if that has become a task, or tasks[].taskId
#                        notifications/tasks[/status]  taskId
#                        ../acknowledged               notifications.taskIds
#     from the host      tasks/*                       taskId
#                        subscriptions/listen          notifications.taskIds
#
# What the server requests about tasks is about those of the host, whose ids are left as they are.

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Final, Protocol

from ..errors import LimitExceeded, RemoteProtocolError, ResourceNotFound
from ..protocol.codec.reading import Inbound
from ..protocol.connection import Rejected
from ..protocol.jsonrpc import METHOD_NOT_FOUND, SERVER_BUSY, Request, error_response
from ..protocol.revisions import IDEMPOTENCY_KEY, RELATED_TASK
from ..protocol.sealing.owned_names import OwnedNames
from ..protocol.sealing.request_state import KeyRing, to_base64url
from ..protocol.uri.uris import KEPT, KEPT_HERE, is_kept, with_links
from ..runtime import CancelReason, Outbox
from ..server.large_results import with_kept_links
from ..session import Envelope, OpenBatch, Received, ReplyTarget
from ..session.idempotency import MAX_KEY, malformed
from ..session.tasks.tasks import unknown_task
from ..types import JsonObject, JsonValue, Model, ReadResourceRequestParams, RequestParams
from .rounds import ASKING, Round, RoundStates, as_object

TASK: Final = "task"
LINK: Final = "link"
"""The kinds of sealed names."""

READ: Final = "resources/read"
LISTEN: Final = "subscriptions/listen"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
TASK_LIST: Final = "tasks/list"
OWNER_BYTES: Final = 16

Rename = Callable[[str], str]


class Bindings:
    """Binds what passes between a server and the principals of its proxy. Without a principal everything stays as it is.

    Args:
        ring: the keys.
        audience: the proxy, whose principals these are; a principal of another one in front of the server may have the same name.

    Attributes:
        states: the sealed `requestState`s.
    """

    def __init__(self, ring: KeyRing, audience: str) -> None:
        self._ring, self._audience = ring, audience
        self.states = RoundStates(ring, audience)

    @cached_property
    def _names(self) -> OwnedNames:
        return OwnedNames(self._ring, self._audience)

    # from the host

    def request(self, principal: str, method: str, params: JsonObject) -> JsonObject:
        """Return the params of a request as the server gets them; its state is opened by `RoundStates.joined`.

        Raises:
            RemoteProtocolError: -32602, a key is malformed, or an id is not one of this principal.
            ResourceNotFound: a link is not one of this principal.
        """
        task_id, uri, wanted = params.get("taskId"), params.get("uri"), params.get("notifications")
        open_task = partial(self._task, principal)
        found = with_related_task(self._with_key(principal, params), open_task)
        if method.startswith("tasks/") and isinstance(task_id, str):
            found = {**found, "taskId": open_task(task_id)}
        elif method == LISTEN and isinstance(wanted, dict):
            found = {**found, "notifications": self._filter(principal, wanted)}
        elif method == READ and isinstance(uri, str) and is_kept(uri):
            found = {**found, "uri": self.link_of(principal, uri)}
        return found

    def answer(self, principal: str, result: JsonObject) -> JsonObject:
        """Return the host's answer to a question as the server gets it. Its task is that of the question, or one of the host."""
        return with_related_task(result, lambda text: self._names.open(TASK, principal, text) or text)

    def link_of(self, principal: str, uri: str) -> str:
        """Return the URI at the server of a result that was kept for this principal. Raises `ResourceNotFound` if it was not."""
        name = self._names.open(LINK, principal, uri.removeprefix(KEPT_HERE))
        if name is None:
            raise ResourceNotFound(uri)
        return KEPT + name

    def _task(self, principal: str, text: str) -> str:
        name = self._names.open(TASK, principal, text)
        if name is None:
            raise unknown_task()
        return name

    def _filter(self, principal: str, wanted: JsonObject) -> JsonObject:
        """Return a filter without the tasks of others, which a server leaves out of what it agrees to, too."""
        texts = wanted.get("taskIds")
        if not isinstance(texts, list):
            return wanted
        names = [self._names.open(TASK, principal, text) for text in texts if isinstance(text, str)]
        return {**wanted, "taskIds": [name for name in names if name is not None]}

    # from the server

    def result(self, principal: str, method: str, params: JsonObject, result: JsonObject) -> JsonObject:
        """Return the result of a request as its host gets it.

        Args:
            params: those that the host sent.

        Raises:
            LimitExceeded: the server's state is too large to be sealed.
        """
        state = result.get("requestState")
        if method in ASKING and isinstance(state, str):
            sealed = self.states.split(principal, method, params, Round({}, {}, state), {})
            result = {**result, "requestState": sealed}
        return self.of_call(principal, result) if method in ASKING or method.startswith("tasks/") else result

    def of_call(self, principal: str, result: JsonObject) -> JsonObject:
        """Return a result, or the state of a task, with its ids and links sealed."""
        seal = partial(self._names.seal, TASK, principal)
        found = with_related_task(self.links(principal, with_task_id(result, seal)), seal)
        task, tasks, inner, asked = (found.get(name) for name in ("task", "tasks", "result", "inputRequests"))
        changes: JsonObject = {}
        if isinstance(task, dict):
            changes["task"] = with_task_id(task, seal)
        if isinstance(tasks, list):
            changes["tasks"] = [with_task_id(each, seal) if isinstance(each, dict) else each for each in tasks]
        if isinstance(inner, dict) and "taskId" in found:
            changes["result"] = self.of_call(principal, inner)
        if isinstance(asked, dict):
            changes["inputRequests"] = {key: self._question(principal, each) for key, each in asked.items()}
        return {**found, **changes} if changes else found

    def links(self, principal: str, result: JsonObject) -> JsonObject:
        """Return a result with its links to kept results sealed."""
        return with_links(result, partial(self._link, principal))

    def _link(self, principal: str, uri: str) -> str:
        return KEPT_HERE + self._names.seal(LINK, principal, uri.removeprefix(KEPT))

    # the same as models, where a client of the proxy calls the server

    def call(self, principal: str, params: RequestParams) -> RequestParams:
        """Return the params of a call as the server gets them. Raises as `request`."""
        if params.meta is not None and IDEMPOTENCY_KEY in params.meta:
            params = params.model_copy(update={"meta": self._with_key(principal, {"_meta": params.meta})["_meta"]})
        if isinstance(params, ReadResourceRequestParams) and is_kept(params.uri):
            params = params.model_copy(update={"uri": self.link_of(principal, params.uri)})
        return params

    def returned(self, principal: str, result: Model) -> Model:
        """Return the result of a call with its links to kept results sealed."""
        return with_kept_links(result, partial(self._link, principal))

    def _with_key(self, principal: str, params: JsonObject) -> JsonObject:
        """Return params with the idempotency key of one principal, if there is one.

        Raises:
            RemoteProtocolError: -32602, the key is malformed.
        """
        meta = params.get("_meta")
        if not isinstance(meta, dict) or IDEMPOTENCY_KEY not in meta:
            return params
        key = meta[IDEMPOTENCY_KEY]
        if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY:
            raise malformed(IDEMPOTENCY_KEY)
        return {**params, "_meta": {**meta, IDEMPOTENCY_KEY: key_of(self._audience, principal, key)}}

    # questions and news of the server

    def question(self, principal: str, params: JsonObject) -> JsonObject:
        """Return the params of a question of the server as the host gets them."""
        return with_related_task(params, partial(self._names.seal, TASK, principal))

    def notification(self, principal: str, method: str, params: JsonObject) -> JsonObject:
        """Return the params of a notification of the server as the host gets them."""
        if method.startswith("notifications/tasks"):
            return self.of_call(principal, params)
        wanted = params.get("notifications")
        if method == ACKNOWLEDGED and isinstance(wanted, dict) and isinstance(texts := wanted.get("taskIds"), list):
            sealed: list[JsonValue] = [
                self._names.seal(TASK, principal, each) for each in texts if isinstance(each, str)
            ]
            params = {**params, "notifications": {**wanted, "taskIds": sealed}}
        return self.question(principal, params)

    def _question(self, principal: str, question: JsonValue) -> JsonValue:
        params = as_object(question).get("params")
        if not isinstance(question, dict) or not isinstance(params, dict):
            return question
        return {**question, "params": self.question(principal, params)}


def with_task_id(holder: JsonObject, change: Rename) -> JsonObject:
    """Return an object with another `taskId`, if it has one."""
    task_id = holder.get("taskId")
    return {**holder, "taskId": change(task_id)} if isinstance(task_id, str) else holder


def with_related_task(holder: JsonObject, change: Rename) -> JsonObject:
    """Return params or a result with another task that they belong to, if there is one."""
    meta = holder.get("_meta")
    related = meta.get(RELATED_TASK) if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or not isinstance(related, dict):
        return holder
    return {**holder, "_meta": {**meta, RELATED_TASK: with_task_id(related, change)}}


def key_of(audience: str, principal: str, key: str) -> str:
    """Return the idempotency key of one principal as the server gets it: no key of another principal is the same."""
    # Not keyed by the ring: after a rotation, a repeat of an earlier call would run again.
    owner = text_digest(f"{audience} {principal}", OWNER_BYTES)
    # The sign tells a digest from a key that looks like one.
    whole = f"{owner}.{key}"
    return whole if len(whole) <= MAX_KEY else f"{owner}!{text_digest(key)}"


def audience_of(name: str, leads_to: Sequence[str], outer: Sequence[str]) -> str:
    """Return the audience of a proxy, which its replicas have, and it has itself after a restart.

    Args:
        leads_to: its server, as `words_of` returns it.
        outer: the names of the servers in which it is mounted.
    """
    return text_digest(json.dumps([name, [*leads_to], sorted(outer)]))


def text_digest(text: str, size: int | None = None) -> str:
    return to_base64url(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:size])


def without_task_list(result: JsonObject) -> JsonObject:
    """Return the result of `initialize` without the list of tasks, which would be that of all principals."""
    capabilities = as_object(result.get("capabilities"))
    tasks = as_object(capabilities.get("tasks"))
    if "list" not in tasks:
        return result
    kept = {name: value for name, value in tasks.items() if name != "list"}
    return {**result, "capabilities": {**capabilities, "tasks": kept}}


def no_task_list() -> RemoteProtocolError:
    """Return the error for a list of tasks that would be that of all principals."""
    return RemoteProtocolError(
        f"{TASK_LIST}: the server behind this proxy does not tell its callers apart", code=METHOD_NOT_FOUND
    )


# The sessions that modern hosts over HTTP have at the server: one for each principal, since they have none themselves.


class OneSession(Protocol):
    """What is needed of a session; it is a `RelaySession`."""

    @property
    def busy(self) -> bool: ...

    @property
    def working(self) -> bool: ...

    def close(self, reason: CancelReason) -> None: ...

    def receive_own(
        self, envelope: Envelope[Received], outbox: Outbox[Envelope], *, owns_outbox: bool, inbound: Inbound | None
    ) -> ReplyTarget | OpenBatch | Rejected | None: ...


class PrincipalSessions:
    """The sessions by principal, the one that was used last at the end.

    Args:
        make: makes the session of a principal, which connects to the server at its first message.
        limit: how many there may be.
    """

    def __init__(self, make: Callable[[str], OneSession], limit: int) -> None:
        self._make, self._limit = make, limit
        self._sessions: OrderedDict[str, OneSession] = OrderedDict()

    def receive(
        self, principal: str, envelope: Envelope[Received], outbox: Outbox[Envelope], inbound: Inbound
    ) -> ReplyTarget | OpenBatch | Rejected | None:
        """Take a request of a principal; it is rejected if requests use as many sessions as there may be."""
        found = self._sessions.pop(principal, None)
        try:
            if found is None:
                self._make_room()
                found = self._make(principal)
        except LimitExceeded as error:
            problem = RemoteProtocolError(str(error), code=SERVER_BUSY)
            problem.request_id = inbound.message.id if isinstance(inbound.message, Request) else None
            outbox.post(Envelope(error_response(problem), about=problem.request_id))
            return Rejected(problem, answer=True)
        self._sessions[principal] = found
        return found.receive_own(envelope, outbox, owns_outbox=True, inbound=inbound)

    def close_all(self, reason: CancelReason) -> None:
        """End all sessions."""
        while self._sessions:
            self._sessions.popitem()[1].close(reason)

    def _make_room(self) -> None:
        """End a session that no request uses, if there are too many. Raises `LimitExceeded` if requests use all of them."""
        if len(self._sessions) < self._limit:
            return
        idle = next((principal for principal, session in self._sessions.items() if not session.busy), None)
        if idle is None:
            raise LimitExceeded(f"{self._limit} principals use the server at once, and no more may (max_sessions)")
        self._sessions.pop(idle).close(CancelReason.SHUTDOWN)

    @property
    def busy(self) -> bool:
        """Whether a request has no reply yet."""
        return any(session.busy for session in self._sessions.values())

    @property
    def working(self) -> bool:
        """Whether a request other than a subscription has no reply yet."""
        return any(session.working for session in self._sessions.values())
