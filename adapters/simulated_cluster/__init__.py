"""The simulated cluster, as an adapter of the Cluster port; `workload` is the hint that it owns."""
