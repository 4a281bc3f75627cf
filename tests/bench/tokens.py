"""A token for the workload with authentication, and the key that verifies it. The key that signed it was discarded."""

from __future__ import annotations

import json
from typing import Final

KEYS: Final = json.dumps(
    {
        "keys": [
            {
                "crv": "P-256",
                "x": "AJAaO_Z8LygK5a-ItMcr-KSSXlIR4tSzuJgI6_7AyQE",
                "y": "gEfVkuPL-Imps7eC-IVtQD3jg-lzIvgPh2Yf4aUxGq4",
                "kty": "EC",
                "kid": "key-0",
                "alg": "ES256",
                "use": "sig",
            }
        ]
    }
)
TOKEN: Final = (
    "eyJhbGciOiJFUzI1NiIsImtpZCI6ImtleS0wIiwidHlwIjoiYXQrand0In0.eyJpc3MiOiJodHRwczovL2lzc3Vlci5iZW5jaCIs"
    "InN1YiI6ImJlbmNoIiwiYXVkIjoiYmVuY2giLCJleHAiOjQwMDAwMDAwMDAsImlhdCI6MTcwMDAwMDAwMCwic2NvcGUiOiJiZW5j"
    "aCJ9.epiroskKqRDMlXLm_4y-LYcGeZEKKOk4uDnZvTw1apa6DOokdTsF1gNtbXRF7A16rpc5FYq8cmlKaLGDJTVgDA"
)
"""Issued by https://issuer.bench for "bench", until 2096."""
