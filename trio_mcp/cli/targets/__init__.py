"""What a command connects to or serves: reading its name, loading its file or passing it on, and what its project says."""
