"""Tasks at a server: to call a tool as one, watch it and follow it to its result."""
