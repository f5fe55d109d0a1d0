"""The logs of ranks: read from their pods, and kept after the pods are gone."""
