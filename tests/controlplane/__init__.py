"""Tests of the core: given past events, when a command, then exactly these events."""
