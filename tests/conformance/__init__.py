"""Runs files of published test vectors against the real engine, kinds and scheduler."""
