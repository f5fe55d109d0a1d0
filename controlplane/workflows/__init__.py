"""Decisions about owners of several jobs, and about jobs that wait for other jobs.

The values, tables and folds are in `lifecycle/owner.py` and `lifecycle/dependencies.py`, the index
is in `state/workflows.py`. `docs/workflows.md` explains how to add another kind of owner.
"""
