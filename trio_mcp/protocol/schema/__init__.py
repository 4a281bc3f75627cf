"""JSON Schema: schemas and values that may come from a peer."""
