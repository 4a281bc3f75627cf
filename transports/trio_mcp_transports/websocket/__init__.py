"""The transport `websocket`: one JSON-RPC message per text frame, on the port and path of Streamable HTTP."""
