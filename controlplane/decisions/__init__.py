"""A command or a timer in, events out."""
