"""One suite for each port, run on every adapter of it."""
