"""The tools of the contract's server, by the group of rules that uses them."""
