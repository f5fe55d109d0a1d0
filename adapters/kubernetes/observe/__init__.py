"""Observation of the cluster: informers, and the pod statuses and nodes that become reports."""
