"""What the clients of `http` and `sse` share: requests and response bodies on httpx2, and limits."""
