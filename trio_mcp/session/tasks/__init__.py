"""Tasks: calls with a public handle, which outlive the request that started them. Two eras see the same record."""
