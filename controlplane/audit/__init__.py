"""Examining a log: deciding it again, incident bundles, redaction."""
