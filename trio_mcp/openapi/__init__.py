"""Servers whose tools are the operations of an OpenAPI document.

The package uses no HTTP library: the author passes the client that sends the requests (`HttpClient`).
"""

from .adding import OpenApiKeywords, OpenApiLimits, OpenApiServer, add_openapi, fetch_openapi, from_openapi
from .calls import Credentials, CredentialSource
from .documents import DocumentSource
from .names import LeftOutOperation, OpenApiReport, Rename, Selector, TakenOperation
from .operations import Operation
from .parts import OpenApiError
from .sending import HttpClient, HttpRequest, HttpResponse

__all__ = [
    "CredentialSource",
    "Credentials",
    "DocumentSource",
    "HttpClient",
    "HttpRequest",
    "HttpResponse",
    "LeftOutOperation",
    "OpenApiError",
    "OpenApiKeywords",
    "OpenApiLimits",
    "OpenApiReport",
    "OpenApiServer",
    "Operation",
    "Rename",
    "Selector",
    "TakenOperation",
    "add_openapi",
    "fetch_openapi",
    "from_openapi",
]
