"""YAML files, read and written with their comments; nothing but the files of goose is YAML."""

from __future__ import annotations

from io import StringIO

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError


def editor() -> YAML:
    """Return what reads and writes YAML without changing more than it must."""
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    # Long values stay in one line.
    yaml.width = 10_000
    return yaml


def parse(text: str) -> object:
    """Return the document of a text. Raises `ValueError`."""
    try:
        return editor().load(text)
    except YAMLError as error:
        # Its text has the place in several lines.
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError:
        raise ValueError("its values are nested too deep") from None


def written(document: object) -> str:
    """Return a document, as it was read or changed, as a text."""
    text = StringIO()
    editor().dump(document, text)
    return text.getvalue()
