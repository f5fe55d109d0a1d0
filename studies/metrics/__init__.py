"""Metrics of a run: waiting times, use of GPUs, lost work and cost."""
