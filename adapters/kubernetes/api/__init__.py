"""Requests to one API server: connection, retries, rate limit, error classes and reflectors."""
