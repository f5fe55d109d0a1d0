"""Logs without a database: the log in memory, and following any log as it grows."""
