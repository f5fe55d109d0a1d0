"""Muster on a real Kubernetes cluster: run with `make test-cluster`, see docs/test-cluster.md."""
