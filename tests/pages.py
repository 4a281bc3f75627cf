"""A page of the documentation, for the tests that hold it to the code."""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any

from serving import ROOT

Names = dict[str, Any]


class Page:
    """A page of `docs/`. Its blocks of Python are one program."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        self.prose = " ".join(self.text.split())
        """The text without line breaks."""
        self.blocks = re.findall(r"```python\n(.*?)```", self.text, re.DOTALL)

    def run(self) -> Names:
        """Run the program from top to bottom; return what it defines."""
        # A module that can be imported by its name, because annotations are evaluated in it later.
        module = sys.modules[f"{self.name}_page"] = ModuleType(f"{self.name}_page")
        for block in self.blocks:
            exec(compile(block, f"docs/{self.name}.md", "exec", dont_inherit=True), vars(module))
        return vars(module)
