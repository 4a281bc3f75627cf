"""The limits of documents and of what an API may send."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import check_int


@dataclass(frozen=True, slots=True)
class OpenApiLimits:
    """The limits of a document, and of each response of its API.

    Attributes:
        max_document: bytes of a document as JSON.
        max_operations: operations that become tools; a document with more is refused.
        max_schema_depth: how deep the schema of an operation may be nested; an operation with a deeper one is left out.
        max_description: characters of the description of a tool; a longer one is cut.
        max_response: bytes of a response, after any decompression; a call whose response is larger fails.
        max_error_body: characters that the model sees of the body of an error.

    Raises:
        TypeError, ValueError: one of these has a wrong value.
    """

    max_document: int = 16 * 1024 * 1024
    max_operations: int = 500
    max_schema_depth: int = 48
    max_description: int = 2000
    max_response: int = 10 * 1024 * 1024
    max_error_body: int = 2000

    def __post_init__(self) -> None:
        for name in self.__slots__:
            check_int(name, getattr(self, name), least=1)
