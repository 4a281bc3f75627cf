"""Sessions of the legacy era over HTTP."""
