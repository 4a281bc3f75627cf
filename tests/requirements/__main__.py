"""Bring the ledger's part of `docs/internals/conformance.md` up to date: `python -m tests.requirements`."""

from __future__ import annotations

from .ledger import PAGE, with_section

PAGE.write_text(with_section(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
