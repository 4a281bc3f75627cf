"""`python -m trio_mcp.cli` is the command `trio-mcp`."""

import sys

from . import main

sys.exit(main())
