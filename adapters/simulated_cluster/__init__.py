"""The simulated cluster, as an adapter of the Cluster port."""

from adapters.simulated_cluster.cluster import SimulatedCluster

__all__ = ["SimulatedCluster"]
