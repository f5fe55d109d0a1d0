"""Counters of GPUs from a Prometheus server."""

from adapters.prometheus.telemetry import PodsOf, PrometheusTelemetry

__all__ = ["PodsOf", "PrometheusTelemetry"]
