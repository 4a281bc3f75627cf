"""`python -m trio_mcp` is the command `trio-mcp`."""

import sys

from .cli import main

sys.exit(main())
