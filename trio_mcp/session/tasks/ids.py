"""The ids of tasks: unguessable, and signed, so that a later process of the server can tell their owner what became of them.

Layout: base64url without padding of `random (16 bytes) | boot (8) | created, in Unix milliseconds (6) | tag (12)`. The tag is a
truncated HMAC-SHA256 (NIST SP 800-107, 5.3.3) over all of these, the owner and the server. A process that has no record of a task
knows by it that the task was given to this very owner, by another process of this server: its work was lost with that process.
All other unknown ids look the same.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from functools import cached_property
from typing import Final

from ...protocol.sealing.request_state import KeyRing, from_base64url, to_base64url

_PURPOSE: Final = "trio_mcp task id v1"
_KEY_BYTES: Final = 32
_RANDOM_BYTES: Final = 16
_BOOT_BYTES: Final = 8
_TIME_BYTES: Final = 6
_TAG_BYTES: Final = 12
_BODY_BYTES: Final = _RANDOM_BYTES + _BOOT_BYTES + _TIME_BYTES
_KEY: Final = re.compile(r"[0-9a-f]{12}-[0-9a-f]{32}")
ID_CHARACTERS: Final = len(to_base64url(bytes(_BODY_BYTES + _TAG_BYTES)))
"""Characters of every id."""


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

    def new(self, owner: str, created: float) -> str:
        """Return an id for a task of this owner that is created now, in Unix seconds."""
        body = secrets.token_bytes(_RANDOM_BYTES) + self._boot + int(created * 1000).to_bytes(_TIME_BYTES)
        return to_base64url(body + self._tag(self._keys[0], body, owner))

    def created_by_another_process(self, task_id: str, owner: str) -> float | None:
        """Return when, in Unix seconds, another process gave this id to this owner; None if none did."""
        signed = from_base64url(task_id) if len(task_id) == ID_CHARACTERS else None
        if signed is None:
            return None
        body, tag = signed[:_BODY_BYTES], signed[_BODY_BYTES:]
        # All keys are tried, so that time does not tell which one fits.
        fits = [hmac.compare_digest(tag, self._tag(key, body, owner)) for key in self._keys]
        if not any(fits) or body[_RANDOM_BYTES:].startswith(self._boot):
            return None
        return created_at(body)

    @cached_property
    def _keys(self) -> list[bytes]:
        """Derived for the first task."""
        return self._ring.derive(_PURPOSE, _KEY_BYTES)

    def _tag(self, key: bytes, body: bytes, owner: str) -> bytes:
        name = owner.encode()
        # The length parts the two names: ("a", "bc") must not sign as ("ab", "c") does.
        return hmac.digest(key, body + len(name).to_bytes(8) + name + self._audience, "sha256")[:_TAG_BYTES]


def storage_key(task_id: str) -> str | None:
    """Return the key of a task in a store, None for what is no id. Keys sort by the time at which their tasks were created.

    It is not the id, which may be all that protects a task.
    """
    signed = from_base64url(task_id) if len(task_id) == ID_CHARACTERS else None
    if signed is None:
        return None
    milliseconds = int.from_bytes(signed[_BODY_BYTES - _TIME_BYTES : _BODY_BYTES])
    return f"{milliseconds:012x}-{hashlib.sha256(signed).hexdigest()[:32]}"


def is_storage_key(text: str) -> bool:
    """Return whether a text has the form of such a key."""
    return _KEY.fullmatch(text) is not None


def created_at(body: bytes) -> float:
    return int.from_bytes(body[-_TIME_BYTES:]) / 1000
