"""The parts of the HTTP transports that need no I/O: headers and event streams."""
