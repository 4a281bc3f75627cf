"""JSON Schema, for what a peer wrote as well as for what an author did."""
