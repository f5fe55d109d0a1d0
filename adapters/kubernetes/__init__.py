"""The Cluster port on Kubernetes.

Rendering, planning and reading statuses are pure functions over documents as an API server returns
them; the other modules list, watch and write those documents.
"""
