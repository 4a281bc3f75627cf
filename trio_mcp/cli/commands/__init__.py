"""The commands of `trio-mcp`: the command NAME is in `NAME.py`."""
