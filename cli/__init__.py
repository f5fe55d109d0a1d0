"""The command line: `muster` and its commands."""
