"""Real server processes on one store, faults, and clients whose operations have effects that a ledger counts.

`world` has the processes and the run, `faults` what goes wrong, `operations` what clients do and what they were promised, `ledger`
the effects, `wire` the requests in plain JSON. A run is drawn from a seed.
"""
