"""Where the benchmark finds and leaves things."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "bench"
"""The environments of the targets, the load generator, and what the servers wrote to stderr."""

GENERATOR_SOURCE = ROOT / "tests" / "bench" / "load_generator"
SERVERS = ROOT / "tests" / "bench" / "servers"

PAGE = ROOT / "docs" / "internals" / "performance.md"
PICTURE = PAGE.with_suffix(".svg")
CERTIFICATE = BUILD / "certificate.pem"
