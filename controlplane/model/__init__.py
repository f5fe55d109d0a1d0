"""Nouns of the control plane: specs, clusters, policies, resources, commands, events, errors."""
