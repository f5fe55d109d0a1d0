"""One file per framework: what its manifest means as a JobSpec. Pure functions only."""
