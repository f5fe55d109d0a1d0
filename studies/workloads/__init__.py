"""Workloads: recorded ones in the forms their owners publish, and synthetic ones like them."""
