"""What is wrong with an OpenAPI document, as a whole or with one of its operations."""

from __future__ import annotations


class OpenApiError(ValueError):
    """A document cannot be used: the message says what is wrong with it, and where."""


class UnsupportedOperation(Exception):
    """An operation is left out; the message is the reason that the report gives."""
