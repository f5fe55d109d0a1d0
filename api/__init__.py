"""The HTTP API: parse a request, submit a command or ask a question, answer. It decides nothing."""
