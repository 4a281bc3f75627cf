"""What the server hands out and wants back unchanged: sealed state and signed cursors."""
