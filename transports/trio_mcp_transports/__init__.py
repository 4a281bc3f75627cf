"""The transports of trio_mcp: the only floor that opens a connection to a peer."""
