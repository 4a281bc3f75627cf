"""How the client logs in, in the scenarios of the official conformance suite that ask for it."""

from __future__ import annotations

from collections.abc import Mapping

import httpx2

from trio_mcp.auth import ClientCredentials, EnterpriseManaged, MemoryTokens, OAuth, WorkloadIdentity
from trio_mcp.errors import AuthorizationErrorKind
from trio_mcp.types import JsonObject

METADATA_URL = "https://conformance-test.local/client-metadata.json"
"""The client id that the suite knows as the URL of a client's metadata."""

REFUSALS: Mapping[str, AuthorizationErrorKind | str] = {
    "auth/resource-mismatch": AuthorizationErrorKind.RESOURCE,
    "auth/iss-supported-missing": AuthorizationErrorKind.ISSUER,
    "auth/iss-wrong-issuer": AuthorizationErrorKind.ISSUER,
    "auth/iss-unexpected": AuthorizationErrorKind.ISSUER,
    "auth/iss-normalized": AuthorizationErrorKind.ISSUER,
    "auth/metadata-issuer-mismatch": AuthorizationErrorKind.ISSUER,
    "auth/scope-retry-limit": "rejected",
}
"""The scenarios in which the client must refuse to log in, and why it does; or the server rejects its requests to the end."""


def auth_for(
    scenario: str, context: JsonObject
) -> OAuth | ClientCredentials | EnterpriseManaged | WorkloadIdentity | None:
    """The settings of the client in a scenario; None for one without a login."""
    if not scenario.startswith("auth/"):
        return None
    given = {name: value for name, value in context.items() if isinstance(value, str)}
    match scenario.removeprefix("auth/"):
        case "client-credentials-jwt":
            key, algorithm = given["private_key_pem"], given["signing_algorithm"]
            return ClientCredentials(given["client_id"], private_key=key, algorithm=algorithm)
        case "client-credentials-basic":
            return ClientCredentials(given["client_id"], given["client_secret"])
        case "enterprise-managed-authorization":
            return EnterpriseManaged(
                given["client_id"],
                given["client_secret"],
                idp=given["idp_issuer"],
                idp_client_id=given["idp_client_id"],
                id_token=given["idp_id_token"],
            )
        case "wif-jwt-bearer":
            return WorkloadIdentity(given["client_id"], given["valid_jwt"])
        case name:
            return OAuth(
                client_id=given.get("client_id"),
                client_secret=given.get("client_secret"),
                metadata_url=METADATA_URL,
                dpop=name.startswith("dpop"),
                browser=follow,
                store=MemoryTokens(),
            )


async def follow(url: str) -> str:
    """What a browser does for a user who agrees: the redirect of the suite's page is the answer."""
    async with httpx2.AsyncClient() as http:
        response = await http.get(url)
    return str(response.url.join(response.headers["location"]))
