"""What a call costs, beside the official SDKs and beside bare servers, in one run: `make bench`, or `python -m bench`.

`targets.py` lists the servers, `workloads.py` what they are asked, and `running.py` lets them take turns. Each server runs on the
first core that this process may use, and everything else, with the load generator of `load/`, on the last. What is compared is
the CPU time of the server, which other programs on the machine change less than anything that a clock shows.

A *floor* is a server that says the same bytes without checking anything: what the wire alone costs.
"""
