"""`muster up`: the composition root."""
