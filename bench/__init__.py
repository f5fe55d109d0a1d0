"""Benchmarks: each module has `run(quick)`, which returns what it measured beside its baseline."""

from cli.compiled import prefer_compiled

# What users run is measured: the compiled core, where it was compiled.
prefer_compiled()
