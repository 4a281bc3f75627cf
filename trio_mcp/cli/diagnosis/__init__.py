"""What is wrong with the offers of a server, for `inspect`, and on a machine, for `doctor`."""
