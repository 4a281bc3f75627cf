"""The tools of the contract's server, for one group of rules each."""
