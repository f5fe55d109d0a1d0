"""Tests of the Kubernetes adapter's pure parts."""
