"""The control plane: decides what becomes of jobs. No clock, dice, I/O or framework in here."""
