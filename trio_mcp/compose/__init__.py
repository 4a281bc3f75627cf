"""Several servers as one: their connections, the names of what they offer, `ClientGroup`, and the agent that uses their tools."""
