"""Indexes over the whole log, for questions about spans of time: marks, usage, timelines.

They follow the log as it grows and have a bounded size, so that a request is a lookup. Nothing here
reads a log or a clock; `api/history/history_index.py` feeds them.
"""
