"""Verifying the tokens of callers: the hooks for `authenticate=`."""
