"""Quota models: how queues share the cluster. One file for each; `quota_model.py` defines what a model answers."""
