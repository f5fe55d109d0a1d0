"""The log as one SQLite file: the embedded default."""

from adapters.sqlite_log.log import SqliteLog

__all__ = ["SqliteLog"]
