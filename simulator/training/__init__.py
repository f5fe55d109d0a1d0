"""The training of one gang: input, compute, exchange and checkpoints, as formulas."""
