"""Readers of the Kubeflow scenarios: shorthand in, real manifests through the real kinds, and out."""
