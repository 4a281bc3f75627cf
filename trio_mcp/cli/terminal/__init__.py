"""What users see and enter: output, what a server sends, progress, and questions at the terminal."""
