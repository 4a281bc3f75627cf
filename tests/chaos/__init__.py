"""Real server processes on one store, faults, and clients whose operations have effects that a ledger counts.

`world` has the processes and one run, which is drawn from a seed; `faults` what goes wrong, `operations` what clients do and what
they were promised, `ledger` the effects, `wire` the requests in plain JSON, `story` what is printed of a failure.
"""
