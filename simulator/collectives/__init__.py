"""Communication as formulas: numbers and numpy arrays in, seconds out. No events, no clock."""
