"""Reconciliation: compare desired with observed state, and send the requests that align them."""
