"""Muster on a real API server, against bare loops on the same one: `make bench-cluster`."""
