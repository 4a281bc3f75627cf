"""A request as its client sent it to the proxies in front of the server."""

from __future__ import annotations

from ...asgi.access_log import record_of
from ...asgi.forwarded import TrustedProxies
from ...asgi.messages import Scope


def as_client_sent(scope: Scope, proxies: TrustedProxies | None, root_path: str) -> Scope:
    """Return the scope of a request as its client sent it; the access log has it so too.

    Args:
        proxies: those that are believed.
        root_path: the prefix of the server, if neither a proxy nor the ASGI server names one.

    Raises:
        HttpRejection: 400, what a trusted proxy says of it cannot be read.
    """
    if proxies is not None:
        scope = proxies.seen_by_client(scope)
    if root_path and not scope.get("root_path"):
        scope = {**scope, "root_path": root_path}
    record = record_of(scope)
    if record is not None:
        record.scope = scope
    return scope
