"""Workloads: public traces in their published formats, and synthetic workloads fitted to them."""
