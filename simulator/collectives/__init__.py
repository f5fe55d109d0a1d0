"""Communication times as formulas: numbers or numpy arrays in, seconds out, without a clock."""
