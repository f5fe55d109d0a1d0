"""Cluster files: parsing and validation."""
