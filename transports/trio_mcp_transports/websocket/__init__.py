"""The transport `websocket`: one JSON-RPC message per text frame, on the port and path of Streamable HTTP.

Nothing is imported here: the HTTP application serves upgrades with `endpoint`, and `transport` serves with the application.
"""
