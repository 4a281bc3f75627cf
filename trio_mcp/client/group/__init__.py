"""Several servers as one client: `ClientGroup`."""
