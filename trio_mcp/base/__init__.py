"""What every floor uses: argument checks, exception groups, logs, late loading, and files. Nothing here knows MCP or Trio."""
