"""How Sphinx builds the site. `make site` puts its sources into one folder first (`staging.py`)."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from trio_mcp.model_formats import api_types

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

project = "trio_mcp"
author = "the authors of trio_mcp"
copyright = author
release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
version = release

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "api_reference",
]

# pages

# The anchors of headings are those of a forge, so that one link works in both places.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
nitpicky = True
FOREIGN = (
    "trio",
    "pydantic",
    "dataclasses",
    "types",
    "httpx2",
    "anthropic",
    "openai",
    "outcome",
    "ssl",
    "typing",
    "collections",
    "pathlib",
    "datetime",
    "enum",
    "os",
    "logging",
    "contextlib",
)
# The same name in two of our packages: the first one is meant.
suppress_warnings = ["ref.python"]
# What other projects define. Their pages are elsewhere, and the site is built without a network.
nitpick_ignore_regex = [
    # The types of the official clients of two models, which are extras, are names for type checkers alone.
    (r"py:class", "|".join(api_types.__all__)),
    (r"py:exc", "Others"),
    (r"py:.*", rf"({'|'.join(FOREIGN)})\..*"),
]
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = "$ "

# reference

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
maximum_signature_line_length = 88
add_module_names = False
default_role = "py:obj"

# look

html_theme = "furo"
html_title = f"trio_mcp {release}"
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
