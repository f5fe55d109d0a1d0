"""Planned starts, and gangs that may start ahead of them without a delay."""
