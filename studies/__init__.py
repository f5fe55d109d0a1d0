"""The studies room."""
