"""Rules of the contract that are about our server and client, and not about a transport.

Importing a module registers its rules, and `tools` what they call. `transports/makers.py` imports them all.
"""
