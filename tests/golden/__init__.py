"""Logs that older releases wrote. Each must still replay to the state it had then."""
