"""The server's side of Streamable HTTP."""
