"""Benchmarks: each module has `run(quick)`, which returns what it measured beside its baseline."""
