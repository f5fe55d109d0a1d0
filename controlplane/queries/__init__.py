"""Read-only answers about a world: views, reasons, dry runs."""
