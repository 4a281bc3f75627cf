"""What things cost in the memory budget, in bytes: measured on CPython 3.11 with the memory that a thousand of each take."""

from __future__ import annotations

from typing import Final

CONNECTION_SIZE: Final = 32 * 1024
"""An HTTP or WebSocket connection, with what of a request head may be buffered, or of a small request or response."""

SESSION_SIZE: Final = 8 * 1024
"""A legacy session, or the session of a channel."""

SUBSCRIPTION_SIZE: Final = 1024
"""A subscription of a session to a resource, besides its URI."""

QUEUE_SIZE: Final = 8 * 1024
"""What may wait to be sent on a stream or a channel before more is drawn: the fixed cost of each includes it."""

STREAM_SIZE: Final = 4 * 1024 + QUEUE_SIZE
"""A stream that belongs to no call, or the queue of a channel."""

CALL_SIZE: Final = 16 * 1024
"""A call with its stream, besides its request and what its body uses; it takes half of it without what waits on the stream."""

HEADER_SIZE: Final = 256
"""A header of the HTTP request that started a call."""

OUTCOME_SIZE: Final = 2 * 1024
"""A call that has ended and whose outcomes are kept, besides these."""

KEY_SIZE: Final = 512
"""A call with an idempotency key, or a key that was used, besides the outcome that is kept."""

UNSETTLED_SIZE: Final = 8 * 1024
"""A record of a store that is written again by a task, besides its value."""

KEPT_RESULT_SIZE: Final = 2 * 1024
"""A result that is kept until its caller reads it, besides its content."""

PAGE_SIZE: Final = 1024
"""A URL elicitation that nothing waits for, until it is completed."""

MESSAGE_SIZE: Final = 512
"""A message that waits to be sent, besides its content."""
