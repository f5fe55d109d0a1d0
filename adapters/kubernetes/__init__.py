"""Kubernetes: documents, plans and sightings as pure functions over what an API server returns."""
