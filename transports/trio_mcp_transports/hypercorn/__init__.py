"""Our servers run by hypercorn: its connections guarded, its start and its end."""
