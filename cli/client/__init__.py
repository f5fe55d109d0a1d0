"""The HTTP client of the command line, and reading of input files."""
