"""The transport `http`: Streamable HTTP and WebSocket, served by hypercorn behind a guard."""
