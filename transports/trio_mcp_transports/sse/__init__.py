"""The transport `sse`: HTTP+SSE of 2024-11-05, for peers that support no newer revision.

`endpoint` serves it as part of the HTTP application, `client` connects to it.
"""
