"""What the servers of `http`, `sse` and `websocket` share: ASGI messages, access checks, authentication, limits, responses."""
