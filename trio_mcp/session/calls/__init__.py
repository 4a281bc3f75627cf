"""Calls: how a request runs as an actor, how it asks its client, and what is stored of it between two requests."""
