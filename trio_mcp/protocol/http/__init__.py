"""What the protocol says of HTTP: headers and event streams."""
