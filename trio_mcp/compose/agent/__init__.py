"""Agents: a model that calls the tools of servers in a loop."""
