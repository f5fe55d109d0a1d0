"""Bugs planted on purpose, to see that the suites would notice them."""
