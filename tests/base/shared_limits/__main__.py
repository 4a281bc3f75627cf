"""Bring the table of shared limits in `docs/limits.md` up to date: `python -m tests.base.shared_limits`."""

from __future__ import annotations

from .limits_page import PAGE, with_section

PAGE.write_text(with_section(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
