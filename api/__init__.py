"""The HTTP API: parse, submit, answer. It decides nothing."""
