"""Run the command `trio-mcp` for `python -m trio_mcp.cli`."""

import sys

from . import main

sys.exit(main())
