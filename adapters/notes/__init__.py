"""What must outlive the process and is no decision, kept beside the log: a few books of notes.

The log holds what was asked, reported and decided. What simulated checkpoints hold, and how wrong
forecasts were, is neither; losing it would change no decision. See docs/adr/0016.
"""

from adapters.notes.book import Book
from adapters.notes.file import FileNotes
from adapters.notes.postgres import PostgresNotes

__all__ = ["Book", "FileNotes", "PostgresNotes"]
