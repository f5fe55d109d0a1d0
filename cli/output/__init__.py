"""Output on the terminal: tables, times, events as text, plots."""
