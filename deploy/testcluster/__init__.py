"""A real Kubernetes cluster on one Linux machine, built from package registries, for the tests.

`python -m deploy.testcluster up` builds what is missing, once, and starts it; `docs/test-cluster.md`
explains the rest. The packages of the product import nothing of this.
"""
