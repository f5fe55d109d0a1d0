"""Where the control plane meets the outside: they talk or wait, and never decide."""
