"""The telemetry port on a Prometheus server: GPU metrics."""

from adapters.prometheus.telemetry import PodsOf, PrometheusTelemetry

__all__ = ["PodsOf", "PrometheusTelemetry"]
