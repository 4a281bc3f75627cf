"""Calls: how a request is run as an actor, how it asks its client, and what is kept of it between two requests."""
