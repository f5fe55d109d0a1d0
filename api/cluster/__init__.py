"""Nodes, queues, the policy and telemetry over HTTP."""
