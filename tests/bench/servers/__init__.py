"""The programs that the targets start."""
