"""What a call costs, beside the official SDKs and beside bare servers, in one run: `make bench`.

`targets.py` lists the servers, `workloads.py` what they are asked, and `running.py` lets them take turns. Each server runs on the
first core that this process may use, and everything else, with `load_generator/`, on the last. What is compared is the CPU time
of the server, which other programs on the machine change less than anything that a clock shows.

A *floor* is a server that says the same bytes without checking anything: what the wire alone costs.

Beside it are measurements of single things, each a program: `python tests/bench/hops.py`.
"""
