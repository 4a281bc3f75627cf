"""Serve the `server` of a Python file over HTTP, on a port of the system's choice: `serve_http.py FILE`, or `... FILE sse`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    script = Path(sys.argv[1])
    sys.path.insert(0, str(script.parent))
    paths = {"path": None, "sse_path": "/sse"} if sys.argv[2:] == ["sse"] else {}
    importlib.import_module(script.stem).server.run("http", port=0, **paths)
