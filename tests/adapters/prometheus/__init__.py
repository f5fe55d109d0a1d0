"""Counters from Prometheus."""
