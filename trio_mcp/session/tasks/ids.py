"""The ids of tasks: unguessable, and signed, so that a later process of the server can tell their owner what became of them.

Layout: base64url without padding of `random (16 bytes) | boot (8) | created (6) | expires (6) | tag (12)`, with times in Unix
milliseconds. The tag is a truncated HMAC-SHA256 (NIST SP 800-107, 5.3.3) over all of these, the owner and the server. A process
that has no record of a task knows by it that the task was given to this very owner, by another process of this server, and that
its time is not over: its work was lost with that process. All other unknown ids look the same.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from functools import cached_property
from typing import Final, NamedTuple

from ...protocol.sealing.request_state import KeyRing, from_base64url, to_base64url

_PURPOSE: Final = "trio_mcp task id v1"
_KEY_BYTES: Final = 32
_RANDOM_BYTES: Final = 16
_BOOT_BYTES: Final = 8
_TIME_BYTES: Final = 6
_TAG_BYTES: Final = 12
_CREATED: Final = slice(_RANDOM_BYTES + _BOOT_BYTES, _RANDOM_BYTES + _BOOT_BYTES + _TIME_BYTES)
_EXPIRES: Final = slice(_CREATED.stop, _CREATED.stop + _TIME_BYTES)
_BODY_BYTES: Final = _RANDOM_BYTES + _BOOT_BYTES + 2 * _TIME_BYTES
_KEY: Final = re.compile(r"[0-9a-f]{12}-[0-9a-f]{32}")
ID_CHARACTERS: Final = len(to_base64url(bytes(_BODY_BYTES + _TAG_BYTES)))
"""Characters of every id."""


class TaskLife(NamedTuple):
    """The times between which a task exists, in Unix seconds."""

    created: float
    expires: float


class TaskIds:
    """Makes and recognises the ids of one server's tasks.

    Args:
        ring: the keys. The first signs, all of them verify.
        audience: the identity of the server; ids of another audience are not recognised, also under the same keys.
    """

    def __init__(self, ring: KeyRing, audience: str) -> None:
        self._ring = ring
        self._audience = audience.encode()
        self._boot = secrets.token_bytes(_BOOT_BYTES)

    def new(self, owner: str, created: float, expires: float) -> str:
        """Return an id for a task of this owner that exists between these times, in Unix seconds."""
        times = b"".join(int(time * 1000).to_bytes(_TIME_BYTES) for time in (created, expires))
        body = secrets.token_bytes(_RANDOM_BYTES) + self._boot + times
        return to_base64url(body + self._tag(self._keys[0], body, owner))

    def life_in_another_process(self, task_id: str, owner: str) -> TaskLife | None:
        """Return when the task exists to which another process gave this id, for this owner; None if none did."""
        signed = signed_bytes(task_id)
        if signed is None:
            return None
        body, tag = signed[:_BODY_BYTES], signed[_BODY_BYTES:]
        # All keys are tried, so that time does not tell which one fits.
        fits = [hmac.compare_digest(tag, self._tag(key, body, owner)) for key in self._keys]
        if not any(fits) or body[_RANDOM_BYTES:].startswith(self._boot):
            return None
        return TaskLife(int.from_bytes(body[_CREATED]) / 1000, int.from_bytes(body[_EXPIRES]) / 1000)

    @cached_property
    def _keys(self) -> list[bytes]:
        """Derived for the first task."""
        return self._ring.derive(_PURPOSE, _KEY_BYTES)

    def _tag(self, key: bytes, body: bytes, owner: str) -> bytes:
        name = owner.encode()
        # The length parts the two names: ("a", "bc") must not sign as ("ab", "c") does.
        return hmac.digest(key, body + len(name).to_bytes(8) + name + self._audience, "sha256")[:_TAG_BYTES]


def storage_key(task_id: str) -> str | None:
    """Return the key of a task in a store, None for what is not an id. Keys sort by the time at which their tasks were created.

    It is not the id, which may be all that protects a task.
    """
    signed = signed_bytes(task_id)
    if signed is None:
        return None
    return f"{int.from_bytes(signed[_CREATED]):012x}-{hashlib.sha256(signed).hexdigest()[:32]}"


def is_storage_key(text: str) -> bool:
    """Return whether a text has the form of such a key."""
    return _KEY.fullmatch(text) is not None


def signed_bytes(task_id: str) -> bytes | None:
    """Return the bytes of an id; None for what is none."""
    return from_base64url(task_id) if len(task_id) == ID_CHARACTERS else None
